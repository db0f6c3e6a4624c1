"""Validates entitlements, which are slugs of micro apps."""

import re
from collections.abc import Collection

from config.platform.problems.problem import Fault, InvalidRequest
from licensing.models import APP_SLUG

SLUG = re.compile(APP_SLUG)


def entitlements_of(given: Collection[str], *, before: Collection[str]) -> list[str]:
    """The sorted entitlements without duplicates. Raises ``InvalidRequest`` for an invalid new slug."""
    wrong = sorted(each for each in {*given} - {*before} if not SLUG.fullmatch(each))
    if wrong:
        sentence = (
            f"No micro app can be called {', '.join(wrong)}: "
            "lower-case letters and digits, with single hyphens between them."
        )
        raise InvalidRequest(errors=[Fault("/entitlements", "invalid", sentence)])
    return sorted({*given})
