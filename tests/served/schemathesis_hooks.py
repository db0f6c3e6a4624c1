"""Hooks of `schemathesis` beyond its own checks; see `schemathesis.toml`."""

from typing import Any

import schemathesis

MODELS = {
    "/v1/llm/chat/completions": "stand-in-small",
    "/v1/llm/responses": "stand-in-small",
    "/v1/llm/embeddings": "stand-in-embedding",
}


@schemathesis.hook
def map_case(
    context: schemathesis.HookContext, case: schemathesis.Case[Any]
) -> schemathesis.Case[Any]:
    """Names a model that there is in calls that fit the schema, which else end at the model's name."""
    model = MODELS.get(case.operation.path)
    fits = case.meta is not None and case.meta.generation.mode.is_positive
    if model and fits and isinstance(case.body, dict):
        case.body = {**case.body, "model": model}
    return case


@schemathesis.check
def refused_by_the_provider_alone(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """A model call that fits the schema is refused by a provider alone, but for images at addresses.

    Whether an image may be fetched depends on the provider, which is one at a loopback address here.
    """
    asks_a_model = case.operation.path.startswith("/v1/llm/") and case.method == "POST"
    if asks_a_model and case.meta and case.meta.generation.mode.is_positive:
        assert response.status_code in (200, 400, 404), response.status_code
        problem: dict[str, Any] = response.json() if response.status_code == 400 else {}
        if problem and {fault["code"] for fault in problem.get("errors", ())} != {"data_only"}:
            assert problem["code"] == "provider_rejected", problem
