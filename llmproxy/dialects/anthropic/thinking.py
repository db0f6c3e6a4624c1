"""Translates ``reasoning_effort`` to Anthropic's thinking.

Newer Claude models take an effort and decide for themselves how long they think; older ones, and other servers of
this API, take a budget of tokens within the output limit.
"""

from typing import Any

from llmproxy.dialects.model_rules import EFFORT, refuses

MIN_BUDGET = 1_024
MAX_BUDGET = 32_000

_EFFORTS = {
    "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
}  # fmt: skip
# The share of the output limit that is the budget for thinking.
_SHARES = {"low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.9, "max": 0.9}


def takes_effort(model: str) -> bool:
    return "claude" in model and not refuses(model, EFFORT)


def thinking(
    effort: str | None, *, model: str, output_limit: int, forced: bool, unfinished: bool
) -> dict[str, Any]:
    """The members ``thinking`` and ``output_config`` of the request, as far as the effort needs them.

    ``forced``: the model has to call a tool, which excludes thinking. ``unfinished``: the last turn continues an answer
    whose thinking the caller did not give back, which excludes a budget.
    """
    if effort is None:
        return {}
    if takes_effort(model):
        return _by_effort(effort, forced=forced)
    if forced or unfinished or effort not in _SHARES or output_limit < 2 * MIN_BUDGET:
        return {}
    budget = min(MAX_BUDGET, max(MIN_BUDGET, int(output_limit * _SHARES[effort])))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _by_effort(effort: str, *, forced: bool) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    members: dict[str, Any] = {"output_config": {"effort": _EFFORTS[effort]}}
    if not forced:
        members["thinking"] = {"type": "adaptive", "display": "summarized"}
    return members
