"""The provider of the settings as a target of calls."""

from collections.abc import Mapping
from decimal import Decimal

from django.conf import settings

from config.platform.problems.problem import Problem
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import Target
from llmproxy.dialects.refusals import problem_of
from llmproxy.prompts.estimates import Measure
from usage.costs import UNKNOWN


def target(dialect: str = "openai", *, model: str = "theirs") -> Target:
    return Target(
        provider="default",
        dialect=DIALECTS[dialect],
        base_url=settings.LLM_BASE_URL,
        key=settings.LLM_API_KEY,
        model=model,
        measure=Measure("factor", Decimal("1.35")),
        prices=UNKNOWN,
    )


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    return problem_of(status, headers, body, key=settings.LLM_API_KEY())
