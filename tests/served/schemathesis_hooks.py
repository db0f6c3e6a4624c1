"""What `schemathesis` is told beyond its own checks; see `schemathesis.toml`."""

from typing import Any

import schemathesis


@schemathesis.check
def refused_by_the_provider_alone(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """A model call that fits the schema is never refused by us for what it is, only by a provider."""
    asks_a_model = case.operation.path.startswith("/v1/llm/") and case.method == "POST"
    if asks_a_model and case.meta and case.meta.generation.mode.is_positive:
        problem: dict[str, Any] = response.json() if response.status_code == 400 else {}
        assert problem.get("code", "provider_rejected") == "provider_rejected", problem
