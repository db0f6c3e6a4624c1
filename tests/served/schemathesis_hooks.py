"""What `schemathesis` is told beyond its own checks; see `schemathesis.toml`."""

from typing import Any

import schemathesis


@schemathesis.check
def refused_by_the_provider_alone(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """A model call that fits the schema is refused by a provider alone, but for images at addresses.

    Whether an image may be fetched depends on the provider, which is one at a loopback address here.
    """
    asks_a_model = case.operation.path.startswith("/v1/llm/") and case.method == "POST"
    if asks_a_model and case.meta and case.meta.generation.mode.is_positive:
        problem: dict[str, Any] = response.json() if response.status_code == 400 else {}
        if problem and {fault["code"] for fault in problem.get("errors", ())} == {"data_only"}:
            return
        assert problem.get("code", "provider_rejected") == "provider_rejected", problem
