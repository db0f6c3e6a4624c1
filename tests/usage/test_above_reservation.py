"""The command that finds calls that were charged more output than was reserved for them."""

from datetime import UTC, date, datetime
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from accounts.audit import Actor
from accounts.models import Client, User
from tests.usage.ledger import ask, settle
from usage.costs import Prices, Spent
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.spending.above_reservation import Above, charged_above
from usage.spending.corrections import lower_charge

pytestmark = pytest.mark.django_db
PLAN = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
OCTOBER, NOVEMBER = (datetime(2026, month, 14, 12, tzinfo=UTC) for month in (10, 11))
PRICES = Prices(input=1_000_000, output=20_000_000)


def call(user: User, *, output: int, now: datetime = NOVEMBER, prices: Prices = PRICES) -> UUID:
    """A call for which 100 tokens of output were reserved."""
    reservation = ask(
        user_id=user.pk, client_id=user.client_id, session_id=None, model="m", request_id="r", streamed=False,
        input_estimate=50, output_wanted=100, prices=prices, plan=PLAN, now=now,
    )  # fmt: skip
    settle(
        record_id=reservation.record_id,
        user_id=user.pk,
        spent=Spent(input=50, output=output),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )
    return reservation.record_id


def run(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("charges_above_reservation", *arguments, stdout=out)
    return out.getvalue().splitlines()


def found(**inputs: Any) -> list[Above]:
    asked = {"since": None, "client_id": None, "now": NOVEMBER, **inputs}
    return list(charged_above(**asked))


@pytest.fixture
def other(organisation: Client) -> User:
    client = Client.objects.create(name="Umbra")
    return User.objects.create_user("eve@umbra.test", client=client)


def test_charges_above_reservations_are_summed_by_month_and_client(user: User, other: User) -> None:
    for output in (100, 5, 2_100, 1_100):
        call(user, output=output)
    call(user, output=600, now=OCTOBER)
    call(other, output=200, prices=Prices())
    ours, theirs = user.client_id, other.client_id
    assert found(client_id=ours) == [
        Above(date(2026, 10, 1), ours, 1, 500, 10_000, 0),
        Above(date(2026, 11, 1), ours, 2, 3_000, 60_000, 0),
    ]
    assert found(since=date(2026, 11, 1), client_id=theirs) == [
        Above(date(2026, 11, 1), theirs, 1, 100, 0, 1)
    ]
    assert sorted(found()) == sorted([*found(client_id=ours), *found(client_id=theirs)])


def test_a_month_is_asked_once_and_by_itself(user: User, django_assert_num_queries: Any) -> None:
    call(user, output=600, now=OCTOBER)
    with django_assert_num_queries(3):
        found()
    with django_assert_num_queries(1):
        found(since=date(2026, 11, 1))


def test_the_command_names_the_calls_and_says_what_it_cannot_find(user: User) -> None:
    dear, cheap = call(user, output=2_100), call(user, output=300)
    line, *calls, last = run("--since", "2026-11", "--client", str(user.client_id), "--calls")
    assert line.startswith("2026-11  ")
    assert line.endswith(": 2 calls, 2,200 tokens above their reservations, $0.04 of output")
    assert [each.split()[0] for each in calls] == [str(dear), str(cheap)]
    assert calls[0].endswith("m at p: 2,100 of 100 reserved")
    assert last.startswith("charges_above_reservation: 2 found. ")
    assert "cannot be told apart" in last
    assert run("--since", "2026-11")[1:] == [last]


def test_a_charge_that_was_lowered_is_found_no_more(user: User, by: Actor) -> None:
    record_id = call(user, output=2_100)
    lower_charge(
        record_id=record_id,
        input_tokens=50,
        output_tokens=5,
        reason="Cached input was read as output.",
        by=by,
        now=NOVEMBER,
    )
    assert found() == []


def test_an_empty_ledger_and_a_wrong_argument_are_told() -> None:
    (line,) = run()
    assert line.startswith("charges_above_reservation: 0 found. ")
    for arguments in (("--since", "November"), ("--client", "nobody")):
        with pytest.raises(CommandError):
            run(*arguments)
