"""The estimate of a request's prompt for the targets that may be asked."""

from collections.abc import Sequence
from uuid import UUID

from llmproxy.catalogue.choosing import Choice
from llmproxy.dialects.protocol import Target
from llmproxy.prompts.estimates import Estimate, images_in, prompt_estimate
from llmproxy.prompts.tokenizers import counting
from llmproxy.requests.call_request import CallRequest


def estimate_of(
    request: CallRequest,
    targets: Sequence[Target],
    *,
    model: Choice,
    of: UUID,
    files: int | None = None,
) -> Estimate:
    """As counted for the first of these targets, and the most that any makes of it.

    Other prompts ``of`` this person are waited for. ``files``: their tokens, where they are known.
    """
    prompt, images = request.prompt, 0
    for image in images_in(prompt):
        images += (
            max(each.dialect.image_tokens(image, each.model) for each in targets)
            if model.image_tokens is None
            else model.image_tokens
        )
    codecs = {each.codec(request.surface) for each in targets}
    with counting.share_of(of):
        return prompt_estimate(
            prompt,
            measures=tuple(dict.fromkeys(each.measure for each in targets)),
            images=images,
            overhead=max(codec.prompt_overhead(request) for codec in codecs),
            files=files,
        )
