"""``reasoning_effort`` as thinking.

Newer Claude models decide for themselves how long they think and are told the effort; older ones, and other
servers of this API, are given a budget of tokens within the output limit.
"""

import re
from typing import Any

MIN_BUDGET = 1_024
MAX_BUDGET = 32_000

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
# The part of the output limit that may be spent on thinking.
_SHARES = {"low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.9}
# Claude up to 4.5; no model will be added to these.
_OLDER = re.compile(
    r"claude-(?:instant|[123]|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-\d{8})?(?!-?\d))"
)


def thinks_by_effort(model: str) -> bool:
    return "claude" in model and not _OLDER.search(model)


def thinking(
    effort: str | None, *, model: str, output_limit: int, forced: bool, unfinished: bool
) -> dict[str, Any]:
    """The members that ask for thinking, if any: ``thinking`` and ``output_config``.

    ``forced``: a tool has to be called, which excludes thinking. ``unfinished``: the last turn goes on with
    an answer whose thinking the caller never had, which excludes a budget.
    """
    if effort is None:
        return {}
    if thinks_by_effort(model):
        return _by_effort(effort, forced=forced)
    if forced or unfinished or effort not in _SHARES or output_limit < 2 * MIN_BUDGET:
        return {}
    budget = min(MAX_BUDGET, max(MIN_BUDGET, int(output_limit * _SHARES[effort])))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _by_effort(effort: str, *, forced: bool) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    asked: dict[str, Any] = {"output_config": {"effort": _EFFORTS[effort]}}
    if not forced:
        asked["thinking"] = {"type": "adaptive", "display": "summarized"}
    return asked
