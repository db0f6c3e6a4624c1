"""A client's page, and what may be done to a client and its licence from there."""

from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, Role, User
from licensing.billing import sync
from licensing.licences import set_customer, set_operator_status
from licensing.models import Licence, Plan, Standing
from releases.models import MicroApp
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with
from tests.console.test_usage_and_money import use
from tests.usage.test_budgets import allow
from usage.models import Refusal
from usage.spending.daily import count_days

pytestmark = pytest.mark.django_db


def page(client: Client, act: str = "change") -> str:
    return reverse(f"admin:accounts_client_{act}", args=[client.pk])


def words(browser: Browser, address: str) -> str:
    return " ".join(browser.get(address).content.decode().split())


def licence_page(client: Client, act: str) -> str:
    return reverse(f"admin:licensing_licence_{act}", args=[Licence.objects.get(client=client).pk])


def test_a_client_is_made_with_its_licence(console: Browser, operator: User, plan: Plan) -> None:
    address = reverse("admin:accounts_client_add")
    assert console.get(address).status_code == 200
    assert not Client.objects.exists()
    response = console.post(address, {"name": "Cobalt & Sons", "plan": plan.pk})
    client = Client.objects.get()
    assert response["Location"] == page(client)
    licence = Licence.objects.get(client=client)
    assert (licence.plan, licence.status) == (plan, Standing.ACTIVE)
    event = AuditEvent.objects.get(action="client:created")
    assert (event.target_id, event.actor, event.address) == (
        str(client.pk),
        operator.email,
        Browser.address,
    )


def test_people_of_a_client_have_the_shape_of_their_state(
    console: Browser, user: User, organisation: Client
) -> None:
    User.objects.create(email="off@acme.test", client=organisation, is_active=False)
    User.objects.create_user("new@acme.test", client=organisation)
    shown = words(console, page(organisation))
    for kind, word in (("well", "Active"), ("stopped", "Disabled"), ("over", "Not invited")):
        assert f'<span class="chip chip-{kind}">{word}</span>' in shown, word


def test_a_new_client_is_offered_the_plan_of_new_clients_and_else_none(
    console: Browser, plan: Plan
) -> None:
    first = Plan.objects.create(name="A load test")
    address = reverse("admin:accounts_client_add")
    assert console.get(address).context["form"].initial["plan"] == plan
    Plan.objects.update(is_default=False)
    form = console.get(address).context["form"]
    assert form.initial["plan"] is None
    assert [label for _, label in form.fields["plan"].choices] == [
        "---------",
        str(first),
        str(plan),
    ]


def test_a_client_needs_a_name_and_a_plan(console: Browser, plan: Plan) -> None:
    response = console.post(reverse("admin:accounts_client_add"), {"name": " "})
    assert set(response.context["form"].errors) == {"name", "plan"}
    assert not Client.objects.exists()


def test_the_page_tells_of_licence_people_sessions_usage_and_events(
    console: Browser, world: World
) -> None:
    text = words(console, page(world.client))
    for shown in (
        '<span class="chip chip-under">Grace</span>',
        "Grace by an operator until",
        "Reason: The invoice is late.",
        "Billing says active (not in effect)",
        "<b>8</b> people",
        "person-7@acme.test",
        "90 %",
        "Invite people",
        "Change licence terms",
        "added the client Acme",
        "set the licence status of Acme",
        "granted person-",
    ):
        assert shown in text, shown


def test_the_page_counts_the_month_and_names_who_spent_the_most(
    console: Browser, organisation: Client, user: User, by: Actor
) -> None:
    for number in range(12):
        person = User.objects.create(email=f"p{number:02}@acme.test", client=organisation)
        use(person, output=1_000 + number)
    use(user, output=9_000, unpriced=True)
    allow(organisation, 5, by)
    count_days(now=timezone.now())
    text = words(console, page(organisation))
    people = console.get(page(organisation)).context["people"]
    assert [row.cells[0] for row in people.rows] == [f"p{n:02}@acme.test" for n in range(11, 1, -1)]
    assert "$12.10 of $5.00" in text
    assert "241 %" in text
    assert "$5 budget" in text
    assert "1 without a price" in text
    assert "10 of 13" in text


def test_the_page_shows_refusals_by_day(
    console: Browser, organisation: Client, user: User, now: datetime
) -> None:
    Refusal.objects.create(
        client_id=organisation.pk,
        user=user,
        minute=now.replace(second=0, microsecond=0),
        last_at=now,
        code="budget_exceeded",
        status=403,
        model="m",
        number=7,
    )
    chart = console.get(page(organisation)).context["refusals_by_day"]
    assert [bar.value for bar in chart.strips[0].bars] == [0] * 13 + [7]


def test_instants_are_utc_and_marked_for_the_operators_own_time(
    console: Browser, world: World
) -> None:
    until = Licence.objects.get(client=world.client).grace_until
    assert until is not None
    shown = f'title="{until:%Y-%m-%d %H:%M:%S} UTC"'
    assert shown in console.get(page(world.client)).content.decode()


def test_the_page_says_why_billing_has_suspended(
    console: Browser, organisation: Client, by: Actor, now: datetime
) -> None:
    licence = set_customer(
        licence_id=Licence.objects.get(client=organisation).pk,
        customer_id="cus_0",
        reason="They signed.",
        by=by,
        now=now,
    )
    for status, said in (("paused", "suspended: Stripe says paused."), ("active", "active </dd>")):
        sync(subscriptions={licence.stripe_customer_id: [status]}, by=by, now=now)
        assert f"<dt>Billing says</dt> <dd> {said}" in words(console, page(organisation))


def test_a_decision_of_an_operator_that_has_ended_is_shown(
    console: Browser, organisation: Client, by: Actor, now: datetime
) -> None:
    licence = Licence.objects.get(client=organisation)
    set_operator_status(
        licence_id=licence.pk,
        status=Standing.SUSPENDED,
        reason="Contract ended.",
        ends_at=now + timedelta(days=1),
        by=by,
        now=now,
    )
    text = words(console, page(organisation))
    assert "Suspended by an operator until" in text
    assert "billing decides again" not in text
    Licence.objects.update(operator_until=now - timedelta(minutes=1))
    assert "billing decides again within a minute" in words(console, page(organisation))


def test_suspending_counts_at_once_and_is_written_down(
    console: Browser,
    operator: User,
    organisation: Client,
    signed_in: APIClient,
) -> None:
    assert signed_in.get("/v1/license/status").json()["status"] == "active"
    form = {"status": "suspended", "reason": "Not paid for months."}
    response = console.post(licence_page(organisation, "status"), form, follow=True)
    assert "Acme is suspended." in response.content.decode()
    assert response.redirect_chain[-1][0] == page(organisation)
    assert signed_in.get("/v1/license/status").json()["status"] == "suspended"
    event = AuditEvent.objects.get(action="licence:operator_set")
    assert (event.actor, event.address) == (operator.email, Browser.address)
    assert (event.target_id, event.reason) == (str(organisation.pk), "Not paid for months.")
    assert event.before == {"status": "active", "operator_status": None}
    assert event.after == {"status": "suspended", "operator_status": "suspended"}


def test_a_grace_is_given_in_utc(console: Browser, organisation: Client, now: datetime) -> None:
    until = (now + timedelta(days=9)).replace(second=0, microsecond=0)
    form = {"status": "grace", "grace_until": f"{until:%Y-%m-%dT%H:%M}", "reason": "Agreed."}
    console.post(licence_page(organisation, "status"), form)
    licence = Licence.objects.get()
    assert (licence.status, licence.grace_until) == (Standing.GRACE, until)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"status": "suspended"}, "reason"),
        ({"status": "suspended", "reason": "  "}, "reason"),
        ({"status": "grace", "reason": "Agreed."}, "grace_until"),
        ({"status": "grace", "grace_until": "2020-01-01T00:00", "reason": "x"}, "grace_until"),
        ({"status": "active", "ends_at": "2020-01-01T00:00", "reason": "x"}, "ends_at"),
        ({"status": "active", "ends_at": "soon", "reason": "x"}, "ends_at"),
        ({"status": "frozen", "reason": "x"}, "status"),
        ({"status": "billing", "reason": "x"}, "status"),
    ],
)
def test_a_refusal_of_the_rule_stands_beside_the_field(
    console: Browser, organisation: Client, form: dict[str, str], field: str
) -> None:
    response = console.post(licence_page(organisation, "status"), form)
    assert response.status_code == 200
    assert list(response.context["form"].errors) == [field]
    assert Licence.objects.get().operator_status is None
    assert not AuditEvent.objects.filter(action__startswith="licence:").exists()


def test_clearing_the_operators_decision_lets_billing_apply_again(
    console: Browser, world: World
) -> None:
    form = {"status": "billing", "reason": "Paid."}
    console.post(licence_page(world.client, "status"), form)
    licence = Licence.objects.get(client=world.client)
    assert (licence.status, licence.operator_status) == (Standing.ACTIVE, None)
    assert AuditEvent.objects.get(action="licence:operator_cleared").reason == "Paid."


def apps(*slugs: str) -> None:
    MicroApp.objects.bulk_create(MicroApp(slug=each, created_at=timezone.now()) for each in slugs)


def test_plan_and_entitlements_change_by_the_rule(console: Browser, organisation: Client) -> None:
    apps("reports", "archive")
    larger = Plan.objects.create(name="Larger", entitlements=["forms"])
    form = {"plan": larger.pk, "entitlements": "reports, archive,reports", "reason": "Ordered."}
    console.post(licence_page(organisation, "terms"), form)
    licence = Licence.objects.get()
    assert licence.plan == larger
    assert licence.all_entitlements == ["archive", "forms", "reports"]
    event = AuditEvent.objects.get(action="licence:terms_set")
    assert event.after["plan"] == "Larger"
    assert event.after["entitlements"] == ["archive", "reports"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"entitlements": "not a slug!"}, "entitlements"),
        ({"entitlements": "Notes"}, "entitlements"),
        ({"plan": 0}, "plan"),
    ],
)
def test_terms_that_cannot_be_are_refused(
    console: Browser, organisation: Client, plan: Plan, change: dict[str, object], field: str
) -> None:
    form = {"plan": plan.pk, "entitlements": "", "reason": "x", **change}
    response = console.post(licence_page(organisation, "terms"), form)
    assert list(response.context["form"].errors) == [field]
    assert not AuditEvent.objects.filter(action="licence:terms_set").exists()


def test_terms_that_a_colleague_has_changed_meanwhile_are_kept_or_shown(
    console: Browser, organisation: Client, plan: Plan
) -> None:
    apps("forms", "mail")
    address = licence_page(organisation, "terms")
    larger = Plan.objects.create(name="Larger")
    shown = {"initial-plan": plan.pk, "initial-entitlements": "", "reason": "Ordered."}
    for name in shown.keys() - {"reason"}:
        assert f'name="{name}"' in words(console, address)
    console.post(address, {**shown, "plan": larger.pk, "entitlements": ""})
    console.post(address, {**shown, "plan": plan.pk, "entitlements": "forms"})
    licence = Licence.objects.get()
    assert (licence.plan, licence.entitlements) == (larger, ["forms"])

    refused = console.post(address, {**shown, "plan": plan.pk, "entitlements": "mail"})
    assert list(refused.context["form"].errors) == ["entitlements"]
    assert "it is now forms" in refused.context["form"].errors["entitlements"][0]
    assert Licence.objects.get().entitlements == ["forms"]


def test_a_client_without_a_licence_is_shown_and_needs_attention(console: Browser) -> None:
    bare = Client.objects.create(name="Entered by hand")
    assert "This client has no licence" in words(console, page(bare))
    assert "Entered by hand" in words(console, reverse("admin:accounts_client_changelist"))
    assert "without a licence,</b> whose people cannot sign in." in words(console, "/admin/")


def test_a_client_can_be_renamed(console: Browser, organisation: Client) -> None:
    console.post(page(organisation, "name"), {"name": " Acme International "})
    organisation.refresh_from_db()
    assert organisation.name == "Acme International"
    event = AuditEvent.objects.get(action="client:renamed")
    assert (event.before, event.after) == ({"name": "Acme"}, {"name": "Acme International"})


def test_a_client_may_name_an_address_for_used_up_caps(
    console: Browser, organisation: Client
) -> None:
    console.post(page(organisation, "alert_email"), {"email": " IT@Acme.test "})
    organisation.refresh_from_db()
    assert organisation.alert_email == "it@acme.test"
    assert "it@acme.test" in words(console, page(organisation))
    event = AuditEvent.objects.get(action="client:alert_email_set")
    assert (event.before, event.after) == ({"alert_email": ""}, {"alert_email": "it@acme.test"})
    console.post(page(organisation, "alert_email"), {"email": "not an address"})
    organisation.refresh_from_db()
    assert organisation.alert_email == "it@acme.test"
    console.post(page(organisation, "alert_email"), {"email": ""})
    organisation.refresh_from_db()
    assert organisation.alert_email == ""


def test_a_client_with_people_cannot_be_deleted(
    console: Browser, organisation: Client, user: User
) -> None:
    assert (
        "Delete" not in words(console, page(organisation)).partition("<h2")[0].rpartition("<h1")[2]
    )
    response = console.post(page(organisation, "remove"), {"reason": "x"}, follow=True)
    assert "This action is not available" in response.content.decode()
    assert Client.objects.exists()


def test_a_client_without_people_goes_with_its_licence(
    console: Browser, organisation: Client
) -> None:
    console.post(page(organisation, "remove"), {"reason": "Entered twice."})
    assert not Client.objects.exists()
    assert not Licence.objects.exists()
    assert AuditEvent.objects.get(action="client:deleted").reason == "Entered twice."


def test_an_operator_who_may_only_look_is_offered_nothing_and_can_do_nothing(
    stranger: Browser, organisation: Client
) -> None:
    stranger.force_login(operator_with(Role.AUDITOR))
    text = words(stranger, page(organisation))
    assert "Change licence status" not in text
    assert "Rename" not in text
    for act in ("status", "terms"):
        assert stranger.get(licence_page(organisation, act)).status_code == 403
        assert stranger.post(licence_page(organisation, act), {"reason": "x"}).status_code == 403
    assert stranger.post(page(organisation, "name"), {"name": "Mine"}).status_code == 403
    assert stranger.get(reverse("admin:accounts_client_add")).status_code == 403
