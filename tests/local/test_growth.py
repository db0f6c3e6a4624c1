"""A database that is filled by the million keeps what must always hold."""

from datetime import datetime

import pytest
from django.db import IntegrityError, connection
from django.db.models import F, Sum

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from config.composition.operation.demo import OPERATOR, PERSON
from config.composition.operation.nightly import run_all
from telemetry.models import Event
from tests.tools import Unready
from tests.tools.bulk import rebuilt
from tests.tools.grow import main
from usage.models import MonthlyUsage, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 230


def grow(**options: int) -> None:
    given = {"rows": ROWS, "people": 7, "clients": 2, **options}
    main([f"--{name}={value}" for name, value in given.items()])


def shape() -> set[tuple[str, str]]:
    """Every index and constraint there is, and whether it counts."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL"
            " SELECT conrelid::regclass || ' ' || conname, pg_get_constraintdef(oid) || convalidated"
            " FROM pg_constraint WHERE conrelid <> 0 UNION ALL"
            " SELECT indexrelid::regclass::text, 'invalid' FROM pg_index WHERE NOT indisvalid"
        )
        return set(cursor.fetchall())


def test_growing_adds_the_requested_rows_and_keeps_every_index_and_constraint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = shape()
    grow(events=40)
    assert shape() == before
    told = capsys.readouterr().out
    assert f"usage_usagerecord: {ROWS} rows in" in told
    assert told.splitlines()[-1].startswith("grow: ")
    assert (Client.objects.count(), User.objects.count()) == (2, 7)
    assert UsageRecord.objects.count() == RefreshToken.objects.count() == ROWS
    # Triggers and nights write events of their own.
    own = AuditEvent.objects.exclude(action__startswith="nightly:")
    assert own.exclude(action="plan:changed_by_hand").count() == ROWS
    assert Event.objects.count() == 40
    assert UsageRecord.objects.filter(user__client_id=F("client_id")).count() == ROWS


def test_totals_are_the_sums_of_the_ledger_and_within_the_caps() -> None:
    grow()
    sums = UsageRecord.objects.order_by().values("user", "period").annotate(
        input=Sum("input_tokens"), output=Sum("output_tokens")
    )  # fmt: skip
    ledger = {(each["user"], each["period"]): (each["input"], each["output"]) for each in sums}
    months = list(MonthlyUsage.objects.all())
    assert {(m.user_id, m.period): (m.input_used, m.output_used) for m in months} == ledger
    for month in months:
        days = UsageRecord.objects.filter(user_id=month.user_id, period=month.period).order_by(
            "day"
        )
        last = [each for each in days if each.day == days.reverse()[0].day]
        assert month.day == last[0].day
        assert month.day_used == sum(each.input_tokens + each.output_tokens for each in last)
        plan = month.user.client.licence.plan  # type: ignore[union-attr]
        assert month.input_used * 2 <= plan.monthly_input_tokens


def test_tokens_form_chains_that_nobody_can_go_on_with(now: datetime) -> None:
    grow()
    assert Session.objects.count() == 3
    assert all(len(each.token_hash) == 96 for each in RefreshToken.objects.all())
    for session in Session.objects.all():
        chain = RefreshToken.objects.filter(session=session).order_by("issued_at")
        assert [each.replaced_by_id for each in chain][:-1] == [each.pk for each in chain][1:]
        assert chain.reverse()[0].replaced_by is None
    assert not any(user.has_usable_password() for user in User.objects.all())


def test_the_first_night_finds_nothing_to_remove_and_nothing_missing() -> None:
    grow()
    removable = (UsageRecord, RefreshToken, Event)
    before = [model._default_manager.count() for model in removable]
    for job, outcome in run_all(by=Actor.command("test"), dry_run=True):
        assert "failed" not in outcome.says, job
    list(run_all(by=Actor.command("test")))
    assert [model._default_manager.count() for model in removable] == before
    assert not AuditEvent.objects.filter(action="audit:pruned").exists()


def test_a_database_with_people_in_it_is_left_alone(user: User) -> None:
    with pytest.raises(Unready, match="There are people in this database"):
        grow()
    assert not UsageRecord.objects.exists()
    main(["--yes", f"--rows={ROWS}", "--people=7", "--clients=2"])
    assert UsageRecord.objects.count() == ROWS
    assert not UsageRecord.objects.filter(user=user).exists()


def test_the_demo_is_nobody() -> None:
    for email in (PERSON, OPERATOR):
        User.objects.create_user(email)
    grow()
    assert User.objects.count() == 9


def test_rows_that_break_a_constraint_leave_nothing_behind(user: User) -> None:
    before = shape()
    with (
        pytest.raises(IntegrityError),
        rebuilt("usage_monthlyusage"),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO usage_monthlyusage (user_id, period, input_used, input_reserved, output_used,"
            " output_reserved, day, day_used, day_reserved, granted)"
            " SELECT %s, '2026-11-01', 0, 0, 0, 0, '2026-11-01', 0, 0, 0 FROM generate_series(1, 2)",
            [user.pk],
        )
    assert shape() == before
    assert not MonthlyUsage.objects.exists()
