"""Billing: taken over once a night, never moved by a later run, and never many suspensions at once."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, example, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.console.template_tags import instant as shown_instant
from config.platform.problems.problem import InvalidRequest, instant
from licensing.billing import SyncIncomplete, end_operator_graces, expire_grace, sync
from licensing.billing_decisions import best
from licensing.customer_queries import (
    IN_A_ROW,
    BillingUnavailable,
    CustomerQueries,
    CustomerRefused,
)
from licensing.licences import (
    create_client,
    end_operator_grace,
    expire_operator_decisions,
    set_customer,
    set_operator_status,
)
from licensing.models import Licence, Plan, Standing
from tests.standins.stripe_server import Stripe

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
Paying = Callable[..., list[Licence]]


@pytest.fixture
def paying_once(paying: Paying) -> Licence:
    return paying()[0]


def seen(licence: Licence) -> tuple[str, datetime | None]:
    licence.refresh_from_db()
    return licence.status, licence.grace_until


def states() -> list[str]:
    """Returns people's standings, in the order of clients' names."""
    return list(Licence.objects.order_by("client__name").values_list("status", flat=True))


def says(status: str, *, by: Actor, now: datetime, customer: str = "cus_0") -> None:
    sync(subscriptions={customer: [status]}, by=by, now=now)


class TestWhatAStatusMeans:
    @pytest.mark.parametrize("status", ["active", "trialing"])
    def test_a_client_that_pays_works(
        self, paying: Paying, by: Actor, now: datetime, status: str
    ) -> None:
        (licence,) = paying()
        says("unpaid", by=by, now=now)
        says(status, by=by, now=now)
        assert seen(licence) == ("active", None)

    @pytest.mark.parametrize(
        "status", ["unpaid", "incomplete", "incomplete_expired", "canceled", "paused"]
    )
    def test_a_client_that_does_not_pay_is_suspended(
        self, paying: Paying, by: Actor, now: datetime, status: str
    ) -> None:
        (licence,) = paying()
        says(status, by=by, now=now)
        assert seen(licence) == ("suspended", None)
        event = AuditEvent.objects.get(action="licence:billing_set")
        assert event.reason == f"Stripe says {status}."
        assert (event.before["status"], event.after["status"]) == ("active", "suspended")

    @pytest.mark.parametrize("statuses", [["brand_new"], [], ["canceled", "brand_new"]])
    def test_a_client_that_is_not_understood_stays_as_it_is_and_is_named(
        self, paying: Paying, by: Actor, now: datetime, statuses: list[str]
    ) -> None:
        (licence,) = paying()
        report = sync(subscriptions={"cus_0": statuses}, by=by, now=now)
        assert seen(licence) == ("active", None)
        assert "1 (Client 000)" in str(report)

    def test_a_client_without_a_customer_is_counted_and_left(
        self, plan: Plan, by: Actor, now: datetime
    ) -> None:
        client = create_client(name="On paper", plan=plan, by=by, now=now)
        report = sync(subscriptions={"cus_9": ["canceled"]}, by=by, now=now)
        assert seen(client.licence) == ("active", None)
        assert str(report) == "nothing changed; without a customer: 1"

    @pytest.mark.parametrize(
        ("statuses", "chosen"),
        [
            (["canceled", "active"], "active"),
            (["canceled", "past_due", "unpaid"], "past_due"),
            (["brand_new", "trialing"], "trialing"),
            (["brand_new", "past_due"], None),
            (["canceled", "canceled"], "canceled"),
            (["canceled", "brand_new"], None),
        ],
    )
    def test_the_best_of_several_subscriptions_counts(
        self, statuses: list[str], chosen: str | None
    ) -> None:
        assert best(statuses) == chosen


class TestGrace:
    def test_the_grace_period_starts_with_the_first_run_and_later_runs_do_not_move_it(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        for days in range(3):
            says("past_due", by=by, now=now + days * DAY)
        assert seen(licence) == ("grace", now + 14 * DAY)
        assert AuditEvent.objects.filter(action="licence:billing_set").count() == 1

    def test_run_out_it_is_a_suspension_by_the_night_and_not_by_itself(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        says("past_due", by=by, now=now)
        over = now + 14 * DAY
        says("past_due", by=by, now=over + DAY)
        assert seen(licence) == ("grace", over)
        expire_grace(by=by, now=over - timedelta(seconds=1))
        assert seen(licence) == ("grace", over)
        assert str(expire_grace(by=by, now=over)) == "changed: 1 suspended"
        assert seen(licence) == ("suspended", None)

    def test_a_suspension_after_it_is_not_undone_by_the_debt_that_led_to_it(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        says("past_due", by=by, now=now)
        expire_grace(by=by, now=now + 14 * DAY)
        for days in (15, 40):
            says("past_due", by=by, now=now + days * DAY)
            assert seen(licence) == ("suspended", None)
        says("active", by=by, now=now + 41 * DAY)
        assert seen(licence) == ("active", None)
        says("past_due", by=by, now=now + 60 * DAY)
        assert seen(licence) == ("grace", now + 74 * DAY)

    def test_an_operators_grace_runs_out_too_and_stays_the_operators(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        set_operator_status(
            licence_id=licence.pk,
            status=Standing.GRACE,
            grace_until=now + DAY,
            reason="A promise.",
            by=by,
            now=now,
        )
        assert end_operator_graces(by=by, now=now + DAY - timedelta(seconds=1)) == 0
        assert end_operator_graces(by=by, now=now + DAY) == 1
        assert seen(licence) == ("suspended", None)
        # No night undoes it.
        says("active", by=by, now=now + DAY)
        expire_grace(by=by, now=now + 2 * DAY)
        assert seen(licence) == ("suspended", None)
        licence.refresh_from_db()
        assert (licence.operator_status, licence.billing_status) == ("suspended", "active")

    def test_an_operators_decision_takes_precedence_and_is_kept(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        set_operator_status(
            licence_id=licence.pk, status=Standing.ACTIVE, reason="A friend.", by=by, now=now
        )
        says("canceled", by=by, now=now)
        assert seen(licence) == ("active", None)
        assert licence.billing_status == "suspended"


class TestAskedAgainBeforeASuspension:
    """The list was read minutes ago; whoever has paid since must not be locked out."""

    def test_a_client_that_has_paid_since_the_list_was_read_is_not_suspended(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        listed = {"cus_0": ["canceled"]}
        report = sync(
            subscriptions=listed,
            queries=CustomerQueries(lambda _: ["canceled", "active"]),
            by=by,
            now=now,
        )
        assert seen(licence) == ("active", None)
        assert str(report) == "nothing changed"

    def test_only_clients_about_to_be_suspended_are_queried_again(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(4)
        asked = []

        def again(customer: str) -> list[str]:
            asked.append(customer)
            return ["unpaid"]

        listed = {"cus_0": ["active"], "cus_1": ["past_due"], "cus_2": ["unpaid"], "cus_3": ["odd"]}
        for days in range(2):
            sync(subscriptions=listed, queries=CustomerQueries(again), by=by, now=now + days * DAY)
        assert asked == ["cus_2"]

    def test_nobody_is_suspended_where_it_cannot_be_asked_and_others_go_first(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        doubtful, returned = paying(2)
        says("unpaid", by=by, now=now, customer="cus_1")

        def again(customer: str) -> list[str]:
            raise BillingUnavailable("Stripe could not be reached.")

        listed = {"cus_0": ["unpaid"], "cus_1": ["active"]}
        with pytest.raises(SyncIncomplete, match=r"1 \(Client 000\). Stripe could not be reached."):
            sync(subscriptions=listed, queries=CustomerQueries(again), by=by, now=now + DAY)
        assert seen(doubtful) == ("active", None)
        assert seen(returned) == ("active", None)

    @pytest.mark.parametrize("answer", [[], ["brand_new"], ["past_due", "brand_new"]])
    def test_status_is_kept_where_the_second_answer_says_nothing(
        self, paying: Paying, by: Actor, now: datetime, answer: list[str]
    ) -> None:
        (licence,) = paying()
        listed = {"cus_0": ["canceled"]}
        report = sync(
            subscriptions=listed, queries=CustomerQueries(lambda _: answer), by=by, now=now
        )
        assert seen(licence) == ("active", None)
        assert "1 (Client 000)" in str(report)

    def test_a_customer_changed_during_the_run_is_not_confused_with_the_first(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()

        def again(customer: str) -> list[str]:
            set_customer(
                licence_id=licence.pk, customer_id="cus_new", reason="They moved.", by=by, now=now
            )
            return ["canceled"]

        report = sync(
            subscriptions={"cus_0": ["canceled"]}, queries=CustomerQueries(again), by=by, now=now
        )
        assert seen(licence) == ("active", None)
        assert str(report) == "nothing changed"

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (["active"], "active"),
            (["past_due"], "suspended"),
            (["canceled"], "suspended"),
            (["brand_new"], "grace"),
            ([], "grace"),
        ],
    )
    def test_a_grace_that_has_run_out_ends_as_what_stripe_says_then(
        self, paying: Paying, by: Actor, now: datetime, answer: list[str], status: str
    ) -> None:
        (licence,) = paying()
        says("past_due", by=by, now=now)
        expire_grace(queries=CustomerQueries(lambda _: answer), by=by, now=now + 14 * DAY)
        assert seen(licence)[0] == status

    def test_a_grace_goes_on_while_stripe_cannot_be_asked(
        self, stripe: Stripe, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        says("past_due", by=by, now=now - 15 * DAY)
        stripe.script = ["429"] * 9
        with pytest.raises(CommandError, match="Stripe could not be reached"):
            call_command("expire_grace")
        assert seen(licence)[0] == "grace"
        stripe.script, stripe.subscriptions = [], [("cus_0", "active")]
        call_command("expire_grace", stdout=StringIO())
        assert seen(licence) == ("active", None)

    def test_a_subscription_hidden_by_an_operators_decision_is_asked_again(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        """Else the end of the word would lock out who has paid."""
        (licence,) = paying()
        says("past_due", by=by, now=now)
        set_operator_status(
            licence_id=licence.pk,
            status=Standing.ACTIVE,
            reason="A week more.",
            ends_at=now + 15 * DAY,
            by=by,
            now=now,
        )

        def again(customer: str) -> list[str]:
            raise BillingUnavailable("Stripe could not be reached.")

        with pytest.raises(SyncIncomplete):
            expire_grace(queries=CustomerQueries(again), by=by, now=now + 14 * DAY)
        licence.refresh_from_db()
        assert licence.billing_status == "grace"
        expire_grace(queries=CustomerQueries(lambda _: ["active"]), by=by, now=now + 14 * DAY)
        expire_operator_decisions(by=by, now=now + 15 * DAY)
        assert seen(licence) == ("active", None)

    def test_a_grace_that_nobody_pays_for_runs_out_by_the_clock(
        self, stripe: Stripe, plan: Plan, by: Actor, now: datetime
    ) -> None:
        client = create_client(name="On paper", plan=plan, by=by, now=now)
        Licence.objects.update(billing_status="grace", billing_grace_until=now - DAY)
        call_command("expire_grace", stdout=StringIO())
        assert seen(client.licence) == ("suspended", None)
        assert stripe.asked == []


class TestThoseOfWhomNothingIsLearnt:
    """One customer without an answer keeps nobody else waiting; a Stripe that is away suspends nobody."""

    @pytest.mark.parametrize("fault", ["400", "402", "404", "garbage", "no list", "500"])
    def test_one_is_left_and_named_and_asked_about_again_the_next_night(
        self, stripe: Stripe, paying: Paying, fault: str
    ) -> None:
        paying(4)
        stripe.subscriptions = [(f"cus_{number}", "unpaid") for number in range(4)]
        stripe.always = {"cus_1": fault}
        with pytest.raises(CommandError, match=r"3 suspended; left .*: 1 \(Client 001\)\. Stripe "):
            call_command("sync_subscriptions")
        assert states() == ["suspended", "active", "suspended", "suspended"]
        failed = AuditEvent.objects.get(action="nightly:failed")
        assert "1 (Client 001)" in failed.after["says"]
        stripe.always = {}
        out = StringIO()
        call_command("sync_subscriptions", stdout=out)
        assert out.getvalue() == "sync_subscriptions: changed: 1 suspended\n"

    def test_the_rest_is_queried_however_many_are_refused(
        self, stripe: Stripe, paying: Paying
    ) -> None:
        paying(6)
        stripe.subscriptions = [(f"cus_{number}", "canceled") for number in range(6)]
        stripe.always = dict.fromkeys([f"cus_{number}" for number in range(5)], "400")
        with pytest.raises(CommandError, match=r"1 suspended; left .*: 5 \("):
            call_command("sync_subscriptions")
        assert states() == ["active"] * 5 + ["suspended"]

    def test_a_grace_that_has_run_out_goes_on_for_them_alone(
        self, stripe: Stripe, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(3)
        stripe.subscriptions = [(f"cus_{number}", "past_due") for number in range(3)]
        Licence.objects.update(billing_status="grace", billing_grace_until=now - DAY)
        stripe.always = {"cus_0": "400"}
        with pytest.raises(CommandError, match=r"2 suspended; left .*: 1 \(Client 000\)"):
            call_command("expire_grace")
        assert states() == ["grace", "suspended", "suspended"]
        stripe.always, stripe.subscriptions[0] = {}, ("cus_0", "active")
        call_command("expire_grace", stdout=StringIO())
        assert states() == ["active", "suspended", "suspended"]

    @pytest.mark.parametrize("fault", ["401", "403", "429", "503", "cut", "garbage"])
    def test_a_stripe_that_is_away_suspends_nobody_and_is_soon_left_alone(
        self, stripe: Stripe, paying: Paying, fault: str
    ) -> None:
        paying(9)
        customers = [f"cus_{number}" for number in range(9)]
        stripe.subscriptions = [(customer, "unpaid") for customer in customers]
        stripe.script = ["well", *[fault] * 99]
        said = (
            r"nothing changed; left for the next night, without an answer: 3 \(.*\); "
            r"left for the next night, not asked about: 6 \(.*, …\)\. Stripe "
        )
        with pytest.raises(CommandError, match=said):
            call_command("sync_subscriptions")
        assert states() == ["active"] * 9
        assert len({path for path in stripe.asked if "customer=" in path}) == IN_A_ROW
        stripe.script = []
        call_command("sync_subscriptions", stdout=StringIO())
        assert states() == ["suspended"] * 9

    @pytest.mark.parametrize("fault", ["500", "401", "429", "garbage"])
    def test_several_in_a_row_keep_nobody_else_waiting_while_others_are_answered(
        self, stripe: Stripe, paying: Paying, fault: str
    ) -> None:
        paying(9)
        stripe.subscriptions = [(f"cus_{number}", "unpaid") for number in range(9)]
        stripe.always = {f"cus_{number}": fault for number in (0, 1, 2, 3, 4, 5, 8)}
        said = r"2 suspended; left for the next night, without an answer: 7 \(.*, …\)\. Stripe "
        with pytest.raises(CommandError, match=said):
            call_command("sync_subscriptions")
        assert states() == ["active"] * 6 + ["suspended"] * 2 + ["active"]
        assert len([path for path in stripe.asked if "limit=1&" in f"{path}&"]) == 2

    def test_status_is_grace_where_stripe_does_not_answer_at_its_end(
        self, stripe: Stripe, paying: Paying, now: datetime
    ) -> None:
        paying(4)
        stripe.subscriptions = [(f"cus_{number}", "past_due") for number in range(4)]
        Licence.objects.update(billing_status="grace", billing_grace_until=now - DAY)
        stripe.always = dict.fromkeys(["cus_0", "cus_1", "cus_2"], "500")
        with pytest.raises(CommandError, match=r"1 suspended; left .*, without an answer: 3 \("):
            call_command("expire_grace")
        assert states() == ["grace"] * 3 + ["suspended"]

    def test_going_away_half_way_it_has_suspended_those_it_answered_for(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(8)
        asked = []

        def again(customer: str) -> list[str]:
            asked.append(customer)
            if len(asked) == 2:
                raise CustomerRefused("Stripe refused.")
            if len(asked) > 3:
                raise BillingUnavailable("Stripe could not be reached.")
            return ["unpaid"]

        listed = {f"cus_{number}": ["unpaid"] for number in range(8)}
        with pytest.raises(SyncIncomplete, match=r"2 suspended; .* answer: 4 \(.* about: 2 \("):
            sync(subscriptions=listed, queries=CustomerQueries(again), by=by, now=now)
        assert Licence.objects.filter(status="suspended").count() == 2
        assert len(asked) == 3 + IN_A_ROW

    def test_a_dry_run_says_whom_it_would_leave(self, stripe: Stripe, paying: Paying) -> None:
        paying(2)
        stripe.subscriptions = [("cus_0", "unpaid"), ("cus_1", "unpaid")]
        stripe.always = {"cus_0": "400"}
        with pytest.raises(CommandError, match=r"would change: 1 suspended; left .*: 1 \("):
            call_command("sync_subscriptions", "--dry-run")
        assert states() == ["active", "active"]


class TestInstants:
    """An end is a number of days of 24 hours from an instant, wherever somebody's clock stands."""

    @given(zone=st.timezones(), at=st.integers(min_value=946_684_800, max_value=4_102_444_800))
    @settings_of_hypothesis(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    # In the fortnights in which clocks are changed: by an hour, by half an hour, by a whole day.
    @example(zone=ZoneInfo("Europe/Berlin"), at=1_773_970_200)
    @example(zone=ZoneInfo("Europe/Berlin"), at=1_792_888_200)
    @example(zone=ZoneInfo("Australia/Lord_Howe"), at=1_790_698_500)
    @example(zone=ZoneInfo("Pacific/Apia"), at=1_325_116_800)
    def test_a_grace_is_as_long_in_every_zone_and_said_in_utc(
        self, paying_once: Licence, by: Actor, zone: ZoneInfo, at: int
    ) -> None:
        now = datetime.fromtimestamp(at, zone)
        with timezone.override(zone), transaction.atomic():
            says("past_due", by=by, now=now)
            _, until = seen(paying_once)
            transaction.set_rollback(True)
        assert until is not None
        assert until - now.astimezone(UTC) == 14 * DAY
        said = instant(until)
        assert said.endswith("Z")
        assert datetime.fromisoformat(said) == until
        # The console's words and what its script reads are that instant too.
        shown = re.fullmatch(r'<time datetime="([^"]+)" title="(.+) UTC".*', shown_instant(until))
        assert shown is not None
        assert datetime.fromisoformat(shown[1]) == until
        assert datetime.fromisoformat(f"{shown[2]}Z") == until


class TestOperatorsGrace:
    @pytest.fixture
    def promised(self, paying: Paying, by: Actor, now: datetime) -> Licence:
        (licence,) = paying()
        return set_operator_status(
            licence_id=licence.pk,
            status=Standing.GRACE,
            grace_until=now + DAY,
            ends_at=now + 3 * DAY,
            reason="A promise.",
            by=by,
            now=now,
        )

    def test_run_out_it_keeps_its_reason_and_its_end(
        self, promised: Licence, by: Actor, now: datetime
    ) -> None:
        end_operator_graces(by=by, now=now + DAY)
        promised.refresh_from_db()
        assert (promised.status, promised.operator_reason) == ("suspended", "A promise.")
        assert promised.operator_until == now + 3 * DAY
        event = AuditEvent.objects.filter(action="licence:operator_set")[0]
        assert event.reason == "The grace period is over."

    def test_an_expired_decision_is_not_ended_as_a_grace(
        self, promised: Licence, by: Actor, now: datetime
    ) -> None:
        assert end_operator_graces(by=by, now=now + 4 * DAY) == 0
        assert expire_operator_decisions(by=by, now=now + 4 * DAY) == 1
        assert seen(promised) == ("active", None)

    def test_a_later_decision_is_kept(self, promised: Licence, by: Actor, now: datetime) -> None:
        set_operator_status(
            licence_id=promised.pk, status=Standing.ACTIVE, reason="Paid.", by=by, now=now
        )
        assert not end_operator_grace(licence_id=promised.pk, reason="Late.", by=by, now=now + DAY)
        assert seen(promised) == ("active", None)


@pytest.mark.django_db(transaction=True)
class TestCommand:
    def test_the_command_applies_stripes_status_and_a_second_run_changes_nothing(
        self, stripe: Stripe, paying: Paying
    ) -> None:
        paying(4)
        stripe.subscriptions = [
            ("cus_0", "active"),
            ("cus_1", "past_due"),
            ("cus_2", "unpaid"),
            ("cus_3", "brand_new"),
        ]
        lines = []
        for _ in range(2):
            out = StringIO()
            call_command("sync_subscriptions", stdout=out)
            lines.append(out.getvalue())
        assert lines[0] == (
            "sync_subscriptions: changed: 1 grace, 1 suspended; "
            "with a status that is not known here: 1 (Client 003)\n"
        )
        assert lines[1].startswith("sync_subscriptions: nothing changed; ")
        assert states() == ["active", "grace", "suspended", "active"]

    def test_a_dry_run_says_what_it_would_do(self, stripe: Stripe, paying: Paying) -> None:
        (licence,) = paying()
        stripe.subscriptions = [("cus_0", "unpaid")]
        out = StringIO()
        call_command("sync_subscriptions", "--dry-run", stdout=out)
        assert "1 suspended" in out.getvalue()
        assert seen(licence) == ("active", None)
        assert not AuditEvent.objects.filter(action__startswith="nightly:").exists()


def test_a_customer_pays_for_one_licence(paying: Paying, by: Actor, now: datetime) -> None:
    _, second = paying(2)
    with pytest.raises(InvalidRequest) as refusal:
        set_customer(licence_id=second.pk, customer_id="cus_0", reason="Oops.", by=by, now=now)
    assert [fault.pointer for fault in refusal.value.errors] == ["/stripe_customer_id"]
    assert AuditEvent.objects.filter(action="licence:customer_set").count() == 2
