"""The members that models have refused lately, so that the calls that follow need not hear it again.

A refusal counts once the same call was answered without the member: its words may only repeat a caller's text. It is
this process's alone, and forgotten after a while, since a provider may take the member again.
"""

import time
from collections import OrderedDict

from llmproxy.dialects.model_rules import Refused
from llmproxy.dialects.protocol import Target
from llmproxy.requests.call_request import Surface

SECONDS = 3_600.0
# Models that are remembered; the one that refused first goes first.
MOST = 1_000

_Place = tuple[str, str, str, Surface]
# By model, when each is forgotten, on the monotonic clock.
_known: OrderedDict[_Place, dict[Refused, float]] = OrderedDict()


def note_answer(target: Target, surface: Surface) -> None:
    """Remembers what a target was asked without because it had refused it, and has answered."""
    lasting = [each for each in target.drops if each.is_lasting]
    if lasting:
        until = time.monotonic() + SECONDS
        _known.setdefault(_place(target, surface), {}).update(dict.fromkeys(lasting, until))
        while len(_known) > MOST:
            _known.popitem(last=False)


def refused_by(target: Target, surface: Surface) -> frozenset[Refused]:
    """Returns the members that a target has refused, in this call and lately."""
    if not (known := _known.get(_place(target, surface))):
        return target.drops
    now = time.monotonic()
    return target.drops.union(refused for refused, until in known.items() if now < until)


def _place(target: Target, surface: Surface) -> _Place:
    """A provider's model on one surface. At another address it is another."""
    return (target.provider, target.base_url, target.model, surface)
