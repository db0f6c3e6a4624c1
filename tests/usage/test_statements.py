"""A client's month: the lines by person and by model are the sums of the ledger, whatever the format."""

import csv
import json
from datetime import date, timedelta
from io import StringIO
from random import Random
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people.erasure import erase_user
from licensing.licences import create_client
from licensing.models import Plan
from tests.usage.of_before import leave_attempt
from tests.usage.test_budgets import DECEMBER, NOON, PRICES, ask, end
from usage.costs import UNKNOWN, Abandoned, Prices, Spent, as_json
from usage.models import UsageRecord
from usage.settlement import settle_abandoned
from usage.spending.statements import Line, Statement

pytestmark = pytest.mark.django_db
NOVEMBER = date(2026, 11, 1)
MODELS = ("large", "small", "house-model")


@pytest.fixture
def month(user: User, organisation: Client, plan: Plan, by: Actor) -> list[UsageRecord]:
    """Sixty calls of three people on three models, one without prices; and others that do not belong to it."""
    chance = Random(7)
    people = [
        user,
        *(User.objects.create(email=f"p{n}@acme.test", client=organisation) for n in range(2)),
    ]
    for _ in range(60):
        model, person = chance.choice(MODELS), chance.choice(people)
        call = ask(person, prices=UNKNOWN if model == "house-model" else PRICES)
        fresh = chance.randrange(5_000)
        end(person, call, input=fresh, cached_input=fresh // 3, output=chance.randrange(900))
        UsageRecord.objects.filter(pk=call.record_id).update(
            model=model, end=chance.choice(("done", "done", "client_gone"))
        )
    ask(user)
    settle_abandoned(now=NOON + timedelta(days=1))
    UsageRecord.objects.filter(model="m").update(model="small")
    ask(user)
    end(user, ask(user, now=DECEMBER), DECEMBER, output=900)
    other = create_client(name="Borealis", plan=plan, by=by, now=NOON)
    stranger = User.objects.create(email="bea@borealis.test", client=other)
    end(stranger, ask(stranger), output=900)
    return list(
        UsageRecord.objects.filter(client_id=organisation.pk, period=NOVEMBER, state="settled")
    )


def summed(name: str, records: list[UsageRecord]) -> Line:
    return Line(
        name,
        len(records),
        sum(each.input_tokens for each in records),
        sum(each.cached_input_tokens for each in records),
        sum(each.output_tokens for each in records),
        sum(each.cost or 0 for each in records),
        sum(each.end == "client_gone" for each in records),
        sum(each.cost is None for each in records),
    )


def run(kind: str = "text") -> str:
    out = StringIO()
    arguments = ("--client", "acme", "--month", "2026-11", "--format", kind)
    call_command("usage_statement", *arguments, stdout=out)
    return out.getvalue()


def test_its_lines_are_the_sums_of_the_ledger(
    month: list[UsageRecord], organisation: Client
) -> None:
    statement = Statement(client_id=organisation.pk, month=NOVEMBER)
    emails = sorted({each.user.email for each in month})
    assert list(statement.people()) == [
        summed(email, [each for each in month if each.user.email == email]) for email in emails
    ]
    assert list(statement.models()) == [
        summed(model, [each for each in month if each.model == model]) for model in sorted(MODELS)
    ]
    assert statement.total() == summed("total", month)
    assert len(month) == 61
    assert statement.running() == 1


def test_a_month_without_calls_is_zeros(organisation: Client) -> None:
    statement = Statement(client_id=organisation.pk, month=date(2020, 1, 1))
    assert list(statement.people()) == list(statement.models()) == []
    assert statement.total() == Line("total", 0, 0, 0, 0, 0, 0, 0)


def test_csv_and_json_say_the_same(month: list[UsageRecord]) -> None:
    rows = list(csv.DictReader(StringIO(run("csv"))))
    found = json.loads(run("json"))
    for of, lines in (("person", found["people"]), ("model", found["models"])):
        assert [
            {name: str(value) for name, value in {"of": of, **line}.items()} for line in lines
        ] == [row for row in rows if row["of"] == of]
    total = rows[-1]
    assert (total["of"], total["cost_usd"]) == ("total", found["total"]["cost_usd"])
    cost = sum(each.cost or 0 for each in month)
    assert total["cost_usd"] == f"{cost // 10**6}.{cost % 10**6:06}"
    assert (found["month"], found["client"]["name"], found["running"]) == ("2026-11", "Acme", 1)


def test_the_text_names_what_has_no_price(month: list[UsageRecord]) -> None:
    text = run()
    unpriced = sum(each.model == "house-model" for each in month)
    assert f"Without prices, and not in the cost: house-model ({unpriced} calls)" in text
    assert "Still running, and in no line: 1 call\n" in f"{text}\n"
    assert len([line for line in text.splitlines() if "@acme.test" in line]) == 3


def test_abandoned_attempts_are_lines_of_their_own_and_in_the_total_cost_alone(
    month: list[UsageRecord], organisation: Client
) -> None:
    before = Statement(client_id=organisation.pk, month=NOVEMBER).total()
    other = UsageRecord.objects.exclude(client_id=organisation.pk).get()
    for record, provider, cost in (
        (month[0], "first", 50),
        (month[1], "first", None),
        (month[1], "second", 7),
        (other, "first", 9),
    ):
        leave_attempt(record.pk, provider, cost=cost, asked_at=NOON, left_at=NOON)
    prices = Prices(1_000_000, None, 2_000_000)
    left = Abandoned("second", prices, Spent(input=3, output=1), True, NOON, NOON)
    [written] = json.loads(as_json([left]) or "")
    month[0].refresh_from_db()
    UsageRecord.objects.filter(pk=month[0].pk).update(abandoned=[written, *month[0].abandoned])
    statement = Statement(client_id=organisation.pk, month=NOVEMBER)
    assert list(statement.abandoned()) == [
        Line("first", 2, 20, 0, 40, 50, 0, 1),
        Line("second", 2, 13, 0, 21, 12, 0, 0),
    ]
    assert statement.total() == before._replace(cost=before.cost + 62)
    rows = [row for row in csv.DictReader(StringIO(run("csv"))) if row["of"] == "left"]
    assert [(row["name"], row["cost_usd"]) for row in rows] == [
        ("first", "0.000050"),
        ("second", "0.000012"),
    ]
    assert [each["calls"] for each in json.loads(run("json"))["left"]] == [2, 2]
    text = "Abandoned at second, in the total cost alone: 2 attempts, up to $0.000012"
    assert text in run()


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((50, None, None), "3 attempts, up to $0.000050, and 2 of an unknown cost"),
        ((None, None), "2 attempts, of an unknown cost"),
        ((0, 0), "2 attempts, up to $0.000000"),
        ((0, None), "2 attempts, up to $0.000000, and 1 of an unknown cost"),
    ],
)
def test_the_text_says_how_many_abandoned_attempts_are_of_an_unknown_cost(
    user: User, costs: tuple[int | None, ...], said: str
) -> None:
    call = ask(user)
    for cost in costs:
        leave_attempt(call.record_id, "first", cost=cost, asked_at=NOON, left_at=NOON)
    record = UsageRecord.objects.filter(pk=call.record_id)
    record.update(state="settled", settled_at=NOON, source="provider", end="done")
    assert f"in the total cost alone: {said}" in run()


def test_calls_from_before_prices_are_counted_and_named(
    month: list[UsageRecord], organisation: Client
) -> None:
    UsageRecord.objects.update(
        cost=None, input_price=None, cached_input_price=None, output_price=None
    )
    total = Statement(client_id=organisation.pk, month=NOVEMBER).total()
    assert (total.cost, total.unpriced, total.calls) == (0, 61, 61)


def test_an_erased_person_has_a_line_and_no_email(
    month: list[UsageRecord], user: User, by: Actor
) -> None:
    erase_user(user_id=user.pk, email=user.email, reason="They asked.", by=by, now=NOON)
    text = run("csv")
    assert "ada@acme.test" not in text
    assert len([row for row in csv.DictReader(StringIO(text)) if row["of"] == "person"]) == 3


def test_no_name_in_it_is_a_formula(month: list[UsageRecord]) -> None:
    UsageRecord.objects.update(model="\t=cmd()")
    names = {row["name"] for row in csv.DictReader(StringIO(run("csv"), newline=""))}
    assert "'\t'=cmd()" in names


def test_a_statement_takes_the_same_queries_for_any_number_of_people(
    month: list[UsageRecord], django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(6):
        run("csv")


@pytest.mark.parametrize(
    "arguments",
    [["--client", "nobody", "--month", "2026-11"], ["--client", "acme", "--month", "x"]],
)
def test_an_unknown_client_or_month_is_an_error(organisation: Client, arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("usage_statement", *arguments)
