"""What billing says: taken over once a night, never moved by a later run, and never many suspensions at once."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.problems import InvalidRequest
from licensing import brake
from licensing.billing import best, expire_grace, sync
from licensing.brake import BrakeHeld
from licensing.licences import create_client, set_customer, set_operator_status
from licensing.models import Brake, Licence, Plan, Standing
from licensing.subscriptions import BillingUnavailable, statuses_by_customer
from tests.stripe_server import KEY, Stripe, stripe_server

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
Paying = Callable[..., list[Licence]]


@pytest.fixture
def stripe(settings) -> Iterator[Stripe]:
    with stripe_server() as server:
        settings.STRIPE_API_KEY = lambda: KEY
        settings.STRIPE_API_BASE = server.url
        yield server


@pytest.fixture
def paying(plan: Plan, by: Actor, now: datetime) -> Paying:
    """Makes clients with a customer each: ``cus_0``, ``cus_1`` …"""

    def make(number: int = 1) -> list[Licence]:
        licences = []
        for each in range(number):
            client = create_client(name=f"Client {each:03}", plan=plan, by=by, now=now)
            licences.append(
                set_customer(
                    licence_id=client.licence.pk,
                    customer_id=f"cus_{each}",
                    reason="They signed.",
                    by=by,
                    now=now,
                )
            )
        return licences

    return make


def seen(licence: Licence) -> tuple[str, datetime | None]:
    licence.refresh_from_db()
    return licence.status, licence.grace_until


def says(status: str, *, by: Actor, now: datetime, customer: str = "cus_0") -> None:
    sync(subscriptions={customer: [status]}, by=by, now=now)


class TestWhatAStatusMeans:
    @pytest.mark.parametrize("status", ["active", "trialing"])
    def test_who_pays_works(self, paying: Paying, by: Actor, now: datetime, status: str) -> None:
        (licence,) = paying()
        says("unpaid", by=by, now=now)
        says(status, by=by, now=now)
        assert seen(licence) == ("active", None)

    @pytest.mark.parametrize(
        "status", ["unpaid", "incomplete", "incomplete_expired", "canceled", "paused"]
    )
    def test_who_does_not_is_suspended(
        self, paying: Paying, by: Actor, now: datetime, status: str
    ) -> None:
        (licence,) = paying()
        says(status, by=by, now=now)
        assert seen(licence) == ("suspended", None)
        event = AuditEvent.objects.get(action="licence:billing_set")
        assert event.reason == f"Stripe says {status}."
        assert (event.before["status"], event.after["status"]) == ("active", "suspended")

    @pytest.mark.parametrize("statuses", [["brand_new"], [], ["canceled", "brand_new"]])
    def test_who_is_not_understood_stays_as_they_are_and_is_named(
        self, paying: Paying, by: Actor, now: datetime, statuses: list[str]
    ) -> None:
        (licence,) = paying()
        report = sync(subscriptions={"cus_0": statuses}, by=by, now=now)
        assert seen(licence) == ("active", None)
        assert "1 (Client 000)" in str(report)

    def test_who_has_no_customer_is_counted_and_left(
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
            (["brand_new", "past_due"], "past_due"),
            (["canceled", "canceled"], "canceled"),
            (["canceled", "brand_new"], None),
        ],
    )
    def test_the_best_of_several_subscriptions_counts(
        self, statuses: list[str], chosen: str | None
    ) -> None:
        assert best(statuses) == chosen


class TestGrace:
    def test_it_runs_from_the_first_time_and_later_runs_do_not_move_it(
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
        expire_grace(by=by, now=now + DAY)
        assert seen(licence) == ("suspended", None)
        assert (licence.operator_status, licence.billing_status) == ("suspended", "active")

    def test_an_operators_word_hides_what_billing_says_and_is_not_touched(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        (licence,) = paying()
        set_operator_status(
            licence_id=licence.pk, status=Standing.ACTIVE, reason="A friend.", by=by, now=now
        )
        says("canceled", by=by, now=now)
        assert seen(licence) == ("active", None)
        assert licence.billing_status == "suspended"


class TestBrake:
    def everybody(self, number: int, status: str) -> dict[str, list[str]]:
        return {f"cus_{each}": [status] for each in range(number)}

    def test_ten_are_suspended_without_asking(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(10)
        sync(subscriptions=self.everybody(10, "canceled"), by=by, now=now)
        assert Licence.objects.filter(status="suspended").count() == 10
        assert not Brake.objects.exists()

    @pytest.mark.parametrize(("clients", "allowed"), [(1, 10), (200, 10), (220, 11), (1000, 50)])
    def test_of_many_one_in_twenty(self, clients: int, allowed: int) -> None:
        assert brake.limit(clients) == allowed

    def test_more_change_nothing_and_operators_are_told_once(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        licences = paying(12)
        wrong = self.everybody(11, "canceled") | {"cus_11": ["past_due"]}
        for days in range(2):
            with pytest.raises(BrakeHeld, match="11 of 12 clients would be suspended"):
                sync(subscriptions=wrong, by=by, now=now + days * DAY)
        assert Licence.objects.filter(status="active").count() == len(licences)
        mail = ProcrastinateJob.objects.get(task_name="mail.send")
        held = Brake.objects.get()
        assert held.is_held
        assert mail.args["text"].rstrip().endswith(f"/admin/licensing/brake/{held.pk}/change/")

    def test_confirmed_the_next_run_goes_through(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        wrong = self.everybody(11, "canceled")
        with pytest.raises(BrakeHeld):
            sync(subscriptions=wrong, by=by, now=now)
        brake.confirm(brake_id=Brake.objects.get().pk, reason="They all left.", by=by, now=now)
        sync(subscriptions=wrong, by=by, now=now + DAY)
        assert Licence.objects.filter(status="suspended").count() == 11
        assert Brake.objects.get().ended_at == now + DAY
        assert AuditEvent.objects.get(action="brake:confirmed").reason == "They all left."

    def test_a_confirmation_is_for_those_it_was_about_and_not_for_long(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(30)
        with pytest.raises(BrakeHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        brake.confirm(brake_id=Brake.objects.get().pk, reason="Yes.", by=by, now=now)
        with pytest.raises(BrakeHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + DAY)
        brake.confirm(brake_id=Brake.objects.get().pk, reason="Yes.", by=by, now=now + DAY)
        with pytest.raises(BrakeHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + 5 * DAY)

    def test_it_lets_go_by_itself_once_the_fault_is_gone(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        with pytest.raises(BrakeHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        sync(subscriptions=self.everybody(11, "active"), by=by, now=now + DAY)
        assert not Brake.objects.filter(ended_at=None).exists()

    def test_graces_that_run_out_together_are_held_as_well(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        sync(subscriptions=self.everybody(11, "past_due"), by=by, now=now)
        with pytest.raises(BrakeHeld):
            expire_grace(by=by, now=now + 14 * DAY)
        assert Licence.objects.filter(status="grace").count() == 11


class TestAskingStripe:
    def test_every_page_of_every_status_is_read(self, stripe: Stripe) -> None:
        stripe.subscriptions = [(f"cus_{n}", "canceled" if n % 2 else "active") for n in range(250)]
        found = statuses_by_customer()
        assert len(found) == 250
        assert found["cus_1"] == ["canceled"]
        assert len(stripe.asked) == 3

    @pytest.mark.parametrize("fault", ["500", "cut"])
    def test_a_passing_failure_is_tried_again(self, stripe: Stripe, fault: str) -> None:
        stripe.subscriptions = [("cus_0", "active")]
        stripe.script = [fault]
        assert statuses_by_customer() == {"cus_0": ["active"]}

    @pytest.mark.parametrize("fault", ["500", "429", "402", "garbage", "no list"])
    def test_what_stays_broken_is_a_refusal_in_words_of_ours(
        self, stripe: Stripe, fault: str
    ) -> None:
        stripe.script = [fault] * 9
        with pytest.raises(BillingUnavailable) as refusal:
            statuses_by_customer()
        assert "went wrong" not in str(refusal.value)

    def test_a_wrong_key_appears_nowhere(self, stripe: Stripe, settings) -> None:
        settings.STRIPE_API_KEY = lambda: "sk_live_of_somebody"
        with pytest.raises(BillingUnavailable) as refusal:
            statuses_by_customer()
        assert "AuthenticationError, status 401" in str(refusal.value)
        assert "sk_" not in str(refusal.value)

    def test_half_a_list_is_none(
        self, stripe: Stripe, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(3)
        stripe.subscriptions = [("cus_0", "canceled")] * 150
        stripe.script = ["well", *["500"] * 9]
        with pytest.raises(CommandError, match="Stripe could not be asked"):
            call_command("sync_subscriptions")
        assert not Licence.objects.exclude(status="active").exists()

    def test_without_a_key_nobody_is_asked(self, settings) -> None:
        settings.STRIPE_API_KEY = lambda: ""
        out = StringIO()
        call_command("sync_subscriptions", stdout=out)
        assert "STRIPE_API_KEY has not been set" in out.getvalue()


@pytest.mark.django_db(transaction=True)
class TestCommand:
    def test_it_takes_over_what_stripe_says_and_a_second_run_finds_nothing(
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
        found = Licence.objects.order_by("client__name").values_list("status", flat=True)
        assert list(found) == ["active", "grace", "suspended", "active"]

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
