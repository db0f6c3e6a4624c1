"""A run that would suspend too many clients changes nothing until an operator confirms it."""

from datetime import datetime, timedelta

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent, Client
from config.platform.problems.problem import InvalidRequest
from licensing import suspension_guard
from licensing.billing import SyncIncomplete, end_operator_graces, expire_grace, sync
from licensing.customer_queries import (
    IN_A_ROW,
    BillingUnavailable,
    CustomerQueries,
    CustomerRefused,
)
from licensing.models import HeldSuspension, Licence, Plan
from licensing.suspension_guard import SuspensionsHeld
from tests.licensing.conftest import Paying

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


class TestHeldSuspensions:
    def everybody(self, number: int, status: str) -> dict[str, list[str]]:
        return {f"cus_{each}": [status] for each in range(number)}

    def test_ten_are_suspended_without_asking(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(10)
        sync(subscriptions=self.everybody(10, "canceled"), by=by, now=now)
        assert Licence.objects.filter(status="suspended").count() == 10
        assert not HeldSuspension.objects.exists()

    @pytest.mark.parametrize(
        ("clients", "allowed"), [(1, 10), (200, 10), (219, 10), (220, 11), (1000, 50)]
    )
    def test_one_in_twenty_of_many_clients_is_allowed(self, clients: int, allowed: int) -> None:
        assert suspension_guard.limit(clients) == allowed

    def test_exactly_one_in_twenty_go_and_one_more_does_not(
        self, plan: Plan, by: Actor, now: datetime
    ) -> None:
        clients = Client.objects.bulk_create(
            Client(name=f"Client {each:03}", created_at=now) for each in range(240)
        )
        Licence.objects.bulk_create(
            Licence(client=client, plan=plan, stripe_customer_id=f"cus_{each}")
            for each, client in enumerate(clients)
        )
        with pytest.raises(SuspensionsHeld, match="13 of 240"):
            sync(subscriptions=self.everybody(13, "unpaid"), by=by, now=now)
        assert not Licence.objects.exclude(status="active").exists()
        sync(subscriptions=self.everybody(12, "unpaid"), by=by, now=now)
        assert Licence.objects.filter(status="suspended").count() == 12

    def test_a_run_that_fails_half_way_leaves_the_confirmation_to_the_next(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(12)
        wrong = self.everybody(12, "canceled")
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=wrong, by=by, now=now)
        suspension_guard.confirm(
            held_id=HeldSuspension.objects.get().pk, reason="They left.", by=by, now=now
        )
        asked: list[str] = []

        def again(customer: str) -> list[str]:
            asked.append(customer)
            if 6 <= len(asked) < 6 + IN_A_ROW:
                raise BillingUnavailable("Stripe could not be reached.")
            return ["canceled"]

        with pytest.raises(SyncIncomplete, match=r"answer: 3 \(.* about: 4 \("):
            sync(subscriptions=wrong, queries=CustomerQueries(again), by=by, now=now + DAY)
        assert Licence.objects.filter(status="suspended").count() == 5
        sync(subscriptions=wrong, queries=CustomerQueries(again), by=by, now=now + 2 * DAY)
        assert Licence.objects.filter(status="suspended").count() == 12
        assert HeldSuspension.objects.get().ended_at == now + 2 * DAY
        # It was for this once: the next as many are another question.
        sync(subscriptions=self.everybody(12, "active"), by=by, now=now + 2 * DAY)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=wrong, by=by, now=now + 2 * DAY)

    @pytest.mark.parametrize("refused", [40, 1])
    def test_a_run_that_leaves_some_keeps_the_confirmation_for_them(
        self, paying: Paying, by: Actor, now: datetime, refused: int
    ) -> None:
        paying(40)
        wrong = self.everybody(40, "unpaid")
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=wrong, by=by, now=now)
        suspension_guard.confirm(
            held_id=HeldSuspension.objects.get().pk, reason="They left.", by=by, now=now
        )

        def again(customer: str) -> list[str]:
            if int(customer.removeprefix("cus_")) < refused:
                raise CustomerRefused("Stripe refused.")
            return ["unpaid"]

        with pytest.raises(SyncIncomplete):
            sync(subscriptions=wrong, queries=CustomerQueries(again), by=by, now=now + DAY)
        assert Licence.objects.filter(status="suspended").count() == 40 - refused
        assert HeldSuspension.objects.get().ended_at is None
        sync(
            subscriptions=wrong,
            queries=CustomerQueries(lambda _: ["unpaid"]),
            by=by,
            now=now + 2 * DAY,
        )
        assert Licence.objects.filter(status="suspended").count() == 40
        assert HeldSuspension.objects.get().ended_at == now + 2 * DAY

    def test_a_question_that_is_not_asked_any_more_does_not_wait_for_those_that_are_left(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(12)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(12, "canceled"), by=by, now=now)

        def again(customer: str) -> list[str]:
            raise CustomerRefused("Stripe refused.")

        with pytest.raises(SyncIncomplete):
            sync(
                subscriptions=self.everybody(1, "canceled"),
                queries=CustomerQueries(again),
                by=by,
                now=now + DAY,
            )
        assert HeldSuspension.objects.get().ended_at == now + DAY

    def test_a_larger_run_changes_nothing_and_operators_are_mailed_once(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        licences = paying(12)
        wrong = self.everybody(11, "canceled") | {"cus_11": ["past_due"]}
        for days in range(2):
            with pytest.raises(SuspensionsHeld, match="11 of 12 clients would be suspended"):
                sync(subscriptions=wrong, by=by, now=now + days * DAY)
        assert Licence.objects.filter(status="active").count() == len(licences)
        mail = ProcrastinateJob.objects.get(task_name="mail.send")
        held = HeldSuspension.objects.get()
        assert held.is_held
        assert f"/admin/licensing/heldsuspension/{held.pk}/change/\n" in mail.args["text"]

    def test_confirmed_the_next_run_goes_through(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        wrong = self.everybody(11, "canceled")
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=wrong, by=by, now=now)
        suspension_guard.confirm(
            held_id=HeldSuspension.objects.get().pk, reason="They all left.", by=by, now=now
        )
        sync(subscriptions=wrong, by=by, now=now + DAY)
        assert Licence.objects.filter(status="suspended").count() == 11
        assert HeldSuspension.objects.get().ended_at == now + DAY
        assert AuditEvent.objects.get(action="brake:confirmed").reason == "They all left."

    def test_a_confirmation_is_for_those_it_was_about_and_not_for_long(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(30)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        suspension_guard.confirm(
            held_id=HeldSuspension.objects.get().pk, reason="Yes.", by=by, now=now
        )
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + DAY)
        second = HeldSuspension.objects.get(ended_at=None)
        suspension_guard.confirm(held_id=second.pk, reason="Yes.", by=by, now=now + DAY)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + 5 * DAY)

    def test_a_confirmation_of_a_page_that_has_been_replaced_is_refused(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(30)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        shown = HeldSuspension.objects.get()
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + DAY)
        with pytest.raises(InvalidRequest):
            suspension_guard.confirm(held_id=shown.pk, reason="Yes.", by=by, now=now + DAY)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(30, "canceled"), by=by, now=now + 2 * DAY)
        assert not Licence.objects.exclude(status="active").exists()

    def test_a_few_others_go_with_those_that_were_confirmed(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(15)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        suspension_guard.confirm(
            held_id=HeldSuspension.objects.get().pk, reason="Yes.", by=by, now=now
        )
        sync(subscriptions=self.everybody(13, "canceled"), by=by, now=now + DAY)
        assert Licence.objects.filter(status="suspended").count() == 13

    def test_a_dry_run_says_that_it_would_hold_and_asks_nobody(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        report = sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now, dry_run=True)
        assert str(report) == (
            "would change: 11 suspended; but held for confirmation: 11 would be suspended"
        )
        assert not HeldSuspension.objects.exists()
        assert not ProcrastinateJob.objects.exists()

    def test_operators_graces_that_run_out_together_are_held_too(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        Licence.objects.update(
            operator_status="grace", operator_grace_until=now, operator_reason="All."
        )
        for _ in range(2):
            with pytest.raises(SuspensionsHeld):
                end_operator_graces(by=by, now=now)
        # Every minute, and told once.
        held = HeldSuspension.objects.get()
        suspension_guard.confirm(held_id=held.pk, reason="Yes.", by=by, now=now)
        assert Licence.objects.filter(status="grace").count() == 11
        assert end_operator_graces(by=by, now=now) == 11
        assert Licence.objects.filter(status="suspended").count() == 11

    def test_clients_kept_by_an_operator_are_not_counted(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        Licence.objects.update(operator_status="active", operator_reason="An outage of the bank.")
        sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        assert Licence.objects.filter(billing_status="suspended", status="active").count() == 11

    def test_the_hold_ends_by_itself_once_the_fault_is_gone(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        with pytest.raises(SuspensionsHeld):
            sync(subscriptions=self.everybody(11, "canceled"), by=by, now=now)
        sync(subscriptions=self.everybody(11, "active"), by=by, now=now + DAY)
        assert not HeldSuspension.objects.filter(ended_at=None).exists()

    def test_graces_that_run_out_together_are_held_as_well(
        self, paying: Paying, by: Actor, now: datetime
    ) -> None:
        paying(11)
        sync(subscriptions=self.everybody(11, "past_due"), by=by, now=now)
        with pytest.raises(SuspensionsHeld):
            expire_grace(by=by, now=now + 14 * DAY)
        assert Licence.objects.filter(status="grace").count() == 11
