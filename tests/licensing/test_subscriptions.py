"""Asking Stripe: every page of every status, or nothing."""

from datetime import datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.models import AuditEvent
from licensing.customer_queries import BillingUnavailable, CustomerRefused
from licensing.models import Licence
from licensing.subscriptions import answers, statuses_by_customer, statuses_of
from tests.licensing.conftest import Paying
from tests.standins.stripe_server import Stripe

pytestmark = pytest.mark.django_db


class TestAskingStripe:
    def test_every_page_of_every_status_is_read(self, stripe: Stripe) -> None:
        stripe.subscriptions = [(f"cus_{n}", "canceled" if n % 2 else "active") for n in range(250)]
        found = statuses_by_customer()
        assert len(found) == 250
        assert found["cus_1"] == ["canceled"]
        assert len(stripe.asked) == 3

    @pytest.mark.parametrize("fault", ["500", "cut", "429"])
    def test_a_passing_failure_is_tried_again(self, stripe: Stripe, fault: str) -> None:
        stripe.subscriptions = [("cus_0", "active")]
        stripe.script = [fault]
        assert statuses_by_customer() == {"cus_0": ["active"]}

    def test_one_customer_is_asked_about_alone(self, stripe: Stripe) -> None:
        stripe.subscriptions = [("cus_0", "canceled"), ("cus_1", "active"), ("cus_0", "active")]
        assert statuses_of("cus_0") == ["active", "canceled"]
        assert statuses_of("cus_of_another_account") == []
        assert "customer=cus_0" in stripe.asked[0]

    @pytest.mark.parametrize("fault", ["500", "401", "429", "garbage", "no list", "cut"])
    def test_one_subscription_of_anybody_shows_that_it_answers_at_all(
        self, stripe: Stripe, fault: str
    ) -> None:
        answers()
        stripe.subscriptions = [(f"cus_{number}", "active") for number in range(3)]
        answers()
        assert "limit=1&" in f"{stripe.asked[-1]}&"
        stripe.script = [fault] * 9
        with pytest.raises(BillingUnavailable):
            answers()

    @pytest.mark.parametrize("fault", ["500", "429", "402", "garbage", "no list", "no page"])
    def test_a_failure_that_stays_is_a_refusal_in_words_of_ours(
        self, stripe: Stripe, fault: str
    ) -> None:
        stripe.script = [fault] * 9
        with pytest.raises(BillingUnavailable) as refusal:
            statuses_by_customer()
        assert "went wrong" not in str(refusal.value)

    @pytest.mark.parametrize(
        ("fault", "of_one"),
        [
            *[(each, True) for each in ("400", "402", "404", "410")],
            *[(each, False) for each in ("401", "403", "408", "429", "old 429", "500", "503")],
            *[(each, False) for each in ("cut", "garbage", "no list")],
        ],
    )
    def test_a_refusal_of_one_customer_is_told_from_what_may_be_anybodys(
        self, stripe: Stripe, fault: str, of_one: bool
    ) -> None:
        stripe.always = {"cus_0": fault}
        with pytest.raises(BillingUnavailable) as refusal:
            statuses_of("cus_0")
        assert isinstance(refusal.value, CustomerRefused) == of_one
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
        stripe.script = ["well", *["429"] * 9]
        with pytest.raises(CommandError, match="Stripe could not be reached"):
            call_command("sync_subscriptions")
        assert not Licence.objects.exclude(status="active").exists()

    def test_a_list_that_never_ends_is_none(self, stripe: Stripe) -> None:
        stripe.subscriptions = [("cus_0", "active")] * 150
        stripe.turns = True
        with pytest.raises(BillingUnavailable, match="not a list"):
            statuses_by_customer()

    def test_an_answer_about_other_customers_suspends_nobody_and_is_reported(
        self, stripe: Stripe, paying: Paying
    ) -> None:
        paying(3)
        stripe.subscriptions = [(f"cus_elsewhere_{n}", "canceled") for n in range(5)]
        with pytest.raises(CommandError, match="for any of 3 customers"):
            call_command("sync_subscriptions")
        assert not Licence.objects.exclude(status="active").exists()
        told = AuditEvent.objects.get(action="nightly:failed").after["says"]
        assert "another account" in told

    def test_nobody_is_asked_without_a_key(self, settings) -> None:
        settings.STRIPE_API_KEY = lambda: ""
        out = StringIO()
        call_command("sync_subscriptions", stdout=out)
        assert "STRIPE_API_KEY is not set" in out.getvalue()


BEHAVIOURS = ("void", "keep_as_draft", "mark_uncollectible")


class TestPaused:
    """Stripe goes on saying active (xyflow/pro-platform#48, pay-rails/pay#660)."""

    @pytest.mark.parametrize("behaviour", BEHAVIOURS)
    @pytest.mark.parametrize("status", ["active", "trialing", "past_due"])
    def test_a_subscription_whose_payments_are_not_collected_is_paused(
        self, stripe: Stripe, status: str, behaviour: str
    ) -> None:
        stripe.subscriptions = [("cus_0", status)]
        stripe.members[0] = {"pause_collection": {"behavior": behaviour, "resumes_at": None}}
        assert statuses_by_customer() == {"cus_0": ["paused"]}
        assert statuses_of("cus_0") == ["paused"]

    @pytest.mark.parametrize(
        ("status", "paused"),
        [
            ("active", None),
            ("canceled", {"behavior": "void"}),
            ("unpaid", {"behavior": "void"}),
            ("brand_new", {"behavior": "void"}),
        ],
    )
    def test_any_other_stays_what_it_is(
        self, stripe: Stripe, status: str, paused: dict[str, str] | None
    ) -> None:
        stripe.subscriptions = [("cus_0", status)]
        stripe.members[0] = {"pause_collection": paused}
        assert statuses_of("cus_0") == [status]

    def test_the_run_suspends_and_names_the_client_and_a_payment_heals_it(
        self, stripe: Stripe, paying: Paying
    ) -> None:
        paying(2)
        stripe.subscriptions = [("cus_0", "active"), ("cus_1", "active")]
        stripe.members[0] = {"pause_collection": {"behavior": "void", "resumes_at": 1_900_000_000}}
        assert synced() == "changed: 1 suspended; with payments paused at Stripe: 1 (Client 000)"
        assert synced() == "nothing changed; with payments paused at Stripe: 1 (Client 000)"
        assert statuses() == ["suspended", "active"]
        stripe.members.clear()
        assert synced() == "changed: 1 active"

    def test_another_subscription_that_pays_is_enough(self, stripe: Stripe, paying: Paying) -> None:
        paying()
        stripe.subscriptions = [("cus_0", "active"), ("cus_0", "active")]
        stripe.members[0] = {"pause_collection": {"behavior": "void"}}
        assert synced() == "nothing changed"


class TestProducts:
    """STRIPE_PRODUCTS: the products or prices that are licences."""

    @pytest.fixture(autouse=True)
    def two_products(self, stripe: Stripe, settings: Settings) -> None:
        settings.STRIPE_PRODUCTS = ["prod_licence", "price_old"]
        stripe.subscriptions = [("cus_0", "active"), ("cus_0", "canceled"), ("cus_1", "active")]
        stripe.items = {
            0: [("price_9", "prod_support")],
            1: [("price_1", "prod_licence")],
            2: [("price_9", "prod_support"), ("price_old", "prod_before")],
        }

    def test_only_subscriptions_to_them_count(self, stripe: Stripe) -> None:
        assert statuses_by_customer() == {"cus_0": ["canceled"], "cus_1": ["active"]}
        assert statuses_of("cus_0") == ["canceled"]

    def test_any_counts_without_one(self, settings: Settings) -> None:
        settings.STRIPE_PRODUCTS = []
        assert statuses_of("cus_0") == ["canceled", "active"]

    def test_an_item_that_the_list_does_not_show_counts(self, stripe: Stripe) -> None:
        stripe.items[0] = [*[("price_9", "prod_support")] * 15, ("price_2", "prod_licence")]
        assert statuses_of("cus_0") == ["canceled", "active"]

    def test_a_product_that_comes_as_an_object_is_known(self, stripe: Stripe) -> None:
        price = {
            "id": "p",
            "object": "price",
            "product": {"id": "prod_licence", "object": "product"},
        }
        item = {"id": "si", "object": "subscription_item", "price": price}
        stripe.members[0] = {"items": {"object": "list", "data": [item], "has_more": False}}
        assert statuses_of("cus_0") == ["canceled", "active"]

    def test_a_list_without_items_decides_nothing(self, stripe: Stripe) -> None:
        stripe.members[0] = {"items": None}
        with pytest.raises(BillingUnavailable, match="not a list"):
            statuses_by_customer()

    def test_a_client_that_pays_for_something_else_keeps_its_status_and_is_named(
        self, stripe: Stripe, paying: Paying
    ) -> None:
        paying(2)
        stripe.items[1] = [("price_9", "prod_support")]
        assert synced() == "nothing changed; without a subscription: 1 (Client 000)"

    def test_products_that_nobody_has_bought_change_nothing_and_are_reported(
        self, stripe: Stripe, paying: Paying, settings: Settings
    ) -> None:
        paying(2)
        settings.STRIPE_PRODUCTS = ["prod_mistyped"]
        with pytest.raises(CommandError, match="STRIPE_PRODUCTS"):
            call_command("sync_subscriptions")
        assert statuses() == ["active", "active"]


def synced() -> str:
    out = StringIO()
    call_command("sync_subscriptions", stdout=out)
    return out.getvalue().strip().removeprefix("sync_subscriptions: ").removesuffix(".")


def statuses() -> list[str]:
    return list(Licence.objects.order_by("client__name").values_list("status", flat=True))
