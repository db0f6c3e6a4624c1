"""Amounts of money as people read them; ``of`` is the public report of a row (owner/repository#number)."""

import pytest

from config.console.charts import written
from config.console.template_tags import dollars
from config.platform.money import decimal, in_dollars, readable_dollars
from tests.pairing import each_once

CENT = 10_000


@pytest.mark.parametrize(
    ("amount", "shown", "of"),
    [
        (0, "$0.00", "prepo-io/prepo-monorepo#1100"),
        (1, "$0.000001", "BerriAI/litellm#17623"),
        (70, "$0.00007", "getsentry/sentry#94682"),
        (99, "$0.000099", "getagentseal/codeburn#205"),
        (3_200, "$0.0032", "dativo-io/talon#311"),
        (3_500, "$0.0035", "dativo-io/talon#311"),
        (4_000, "$0.004", "makenotion/lore#828"),
        (14_900, "$0.015", "AgentBudget/agentbudget#1"),
        (CENT, "$0.01", "kubecost/kubecost#1607"),
        (21_800, "$0.022", ""),
        (20_000, "$0.02", ""),
        (99_999, "$0.10", ""),
        (330_000, "$0.33", ""),
        (1_460_000, "$1.46", "project-koku/koku-ui#216"),
        (12_345_678_900, "$12,345.68", ""),
        (-70, "$-0.00007", ""),
    ],
)
def test_an_amount_has_the_decimals_that_it_needs(amount: int, shown: str, of: str) -> None:
    assert readable_dollars(amount) == dollars(amount) == shown


@pytest.mark.parametrize(
    ("amount", "least"),
    each_once([1, 9, 10, 49, 50, 99, 100, 999, 4_999, 9_999, CENT, 10**6 - 1], [2, 4, 6]),
)
def test_no_amount_looks_like_zero_or_like_one_twice_as_large(amount: int, least: int) -> None:
    shown = readable_dollars(amount, least)
    assert set(shown) - {*"$0."}
    assert shown != readable_dollars(2 * amount, least)
    assert written(amount, "money") == readable_dollars(amount)


def test_a_list_of_calls_has_four_decimals_and_more_for_less() -> None:
    assert [readable_dollars(each, 4) for each in (0, 12, 1_234, 330_000)] == [
        "$0.0000",
        "$0.000012",
        "$0.0012",
        "$0.3300",
    ]


def test_files_and_problems_keep_their_decimals() -> None:
    assert (str(decimal(70)), in_dollars(70), in_dollars(70, 4)) == ("0.000070", "$0.00", "$0.0001")
