"""Acts on people: confirmed first, done by the rule, and audited with actor and origin."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from accounts.models import AuditEvent, Client, RefreshToken, Role, Session, User
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from config.composition.roles import rights_of
from tests.conftest import PASSWORD, Browser
from tests.console.conftest import World, password_hash
from usage.models import Alert, UsageRecord

pytestmark = pytest.mark.django_db


def page(user: User, act: str) -> str:
    return reverse(f"admin:accounts_user_{act}", args=[user.pk])


def last_event(action: str) -> AuditEvent:
    return AuditEvent.objects.filter(action=action)[:1].get()


def said(response: Any) -> str:
    """Returns the message of the page after a redirect."""
    return " ".join(str(message) for message in response.context["messages"])


def test_revoking_ends_every_session_and_says_how_many(
    console: Browser, operator: User, user: User, pair: TokenPair, api: APIClient
) -> None:
    asked = console.get(page(user, "revoke"))
    assert "within 15 seconds" in asked.content.decode()
    assert "sign in again" in asked.content.decode()
    assert Session.objects.get().ended_at is None

    done = console.post(page(user, "revoke"), {"reason": "Laptop lost."}, follow=True)
    assert "Signed out everywhere (1 device)." in said(done)
    assert Session.objects.get().ended_by == Session.Ended.REVOKED
    assert not RefreshToken.objects.unrevoked().exists()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    assert api.get("/v1/auth/me").json()["code"] == "access_revoked"

    event = last_event("user:tokens_revoked")
    assert (event.actor, event.actor_id) == (operator.email, operator.pk)
    assert (event.target, event.target_id) == (user.email, str(user.pk))
    assert (event.address, event.request_id) == (Browser.address, Browser.request_id)
    assert event.reason == "Laptop lost."


def test_nothing_is_revoked_without_a_reason(console: Browser, user: User, pair: TokenPair) -> None:
    response = console.post(page(user, "revoke"), {"reason": "  "})
    assert response.status_code == 200
    assert "This field is required." in response.content.decode()
    assert Session.objects.get().ended_at is None


def test_several_are_revoked_after_one_question(console: Browser, world: World) -> None:
    chosen = [str(each.pk) for each in world.people[:2]]
    people = reverse("admin:accounts_user_changelist")
    asked = console.post(people, {"action": "revoke", "_selected_action": chosen})
    text = asked.content.decode()
    assert all(each.email in text for each in world.people[:2])
    assert world.people[2].email not in text
    assert Session.objects.filter(ended_at=None).count() == 3

    address = reverse("admin:accounts_user_revoke_several")
    refused = console.post(address, {"target": chosen, "reason": ""})
    assert "This field is required." in refused.content.decode()
    assert Session.objects.filter(ended_at=None).count() == 3

    done = console.post(address, {"target": chosen, "reason": "Office broken into."}, follow=True)
    assert "Signed out everywhere (2 devices)." in said(done)
    assert Session.objects.filter(ended_at=None).count() == 1
    assert AuditEvent.objects.filter(action="user:tokens_revoked").count() == 2


def test_the_page_for_several_does_nothing_when_merely_asked_for(
    console: Browser, world: World
) -> None:
    address = reverse("admin:accounts_user_revoke_several")
    assert console.get(f"{address}?target={world.person.pk}").status_code == 302
    for target in ([], ["not-an-id"], ["00000000-0000-0000-0000-000000000000"]):
        assert console.post(address, {"target": target, "reason": "x"}).status_code == 302
    people = reverse("admin:accounts_user_changelist")
    chosen = {"action": "revoke", "_selected_action": ["not-an-id"]}
    assert console.post(people, chosen).status_code in {200, 302}
    assert not AuditEvent.objects.filter(action="user:tokens_revoked").exists()


def test_one_session_can_be_ended_and_the_others_stay(
    console: Browser, operator: User, user: User, pair: TokenPair, now: datetime
) -> None:
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    ended, stays = Session.objects.order_by("started_at", "pk")
    address = reverse("admin:accounts_session_end", args=[ended.pk])
    assert "other sessions continue" in console.get(address).content.decode()

    done = console.post(address, {"reason": "Not hers."}, follow=True)
    assert "1 session ended." in said(done)
    ended.refresh_from_db()
    stays.refresh_from_db()
    assert (ended.ended_by, stays.ended_at) == (Session.Ended.REVOKED, None)
    event = last_event("session:ended")
    assert (event.target_id, event.reason) == (str(ended.pk), "Not hers.")
    assert (event.actor, event.address) == (operator.email, Browser.address)

    again = console.post(address, {"reason": "Twice."}, follow=True)
    assert "This action is not available" in said(again)
    assert AuditEvent.objects.filter(action="session:ended").count() == 1


def test_a_disabled_person_is_out_until_enabled(
    console: Browser, user: User, pair: TokenPair, api: APIClient
) -> None:
    login = {"email": user.email, "password": PASSWORD}
    console.post(page(user, "disable"), {"reason": "Has left."})
    assert Session.objects.get().ended_at is not None
    assert api.post("/v1/auth/login", login, format="json").status_code == 401
    assert last_event("user:disabled").after == {"enabled": False}

    console.post(page(user, "enable"), {"reason": "Is back."})
    assert api.post("/v1/auth/login", login, format="json").status_code == 200
    assert last_event("user:enabled").reason == "Is back."


def test_a_person_is_added_without_a_password(
    console: Browser, organisation: Client, operator: User
) -> None:
    address = reverse("admin:accounts_user_add")
    done = console.post(
        address, {"email": "Bert@ACME.test", "client": organisation.pk}, follow=True
    )
    assert "no password yet" in said(done)
    user = User.objects.get(email="bert@acme.test")
    assert (user.client, user.is_staff, user.has_usable_password()) == (organisation, False, False)
    event = last_event("user:created")
    assert (event.target, event.after) == ("bert@acme.test", {"client": "Acme"})
    assert (event.actor, event.address) == (operator.email, Browser.address)


def test_an_email_that_is_taken_is_an_error_of_the_form(
    console: Browser, user: User, organisation: Client
) -> None:
    address = reverse("admin:accounts_user_add")
    response = console.post(address, {"email": "ADA@acme.test", "client": organisation.pk})
    assert response.status_code == 200
    assert "This email is taken." in response.content.decode()
    assert response.context["form"].errors["email"]
    assert User.objects.filter(client=organisation).count() == 1


def test_a_person_can_have_another_email(console: Browser, user: User, pair: TokenPair) -> None:
    console.post(page(user, "email"), {"email": "Ada.L@acme.test", "reason": "Married."})
    user.refresh_from_db()
    assert user.email == "ada.l@acme.test"
    event = last_event("user:email_changed")
    assert (event.before, event.after) == ({"email": "ada@acme.test"}, {"email": "ada.l@acme.test"})
    assert event.reason == "Married."
    assert Session.objects.get().ended_at is None


def test_a_person_moves_to_another_client_by_its_name_and_signs_in_again(
    console: Browser, user: User, pair: TokenPair, api: APIClient
) -> None:
    other = Client.objects.create(name="Borealis")
    form = {"client": "borealis", "reason": "Changed jobs."}
    done = console.post(page(user, "move"), form, follow=True)
    assert "now belongs to Borealis.</strong> Signed out everywhere (1 device)." in said(done)
    user.refresh_from_db()
    assert user.client == other
    event = last_event("user:moved")
    assert event.before is not None
    assert event.before["client"] == "Acme"
    assert (event.reason, event.after) == (
        "Changed jobs.",
        {"client": "Borealis", "client_id": str(other.pk)},
    )
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    assert api.get("/v1/auth/me").json()["code"] == "access_revoked"


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ("Nowhere", "There is no client with this name."),
        ("00000000-0000-0000-0000-000000000000", "There is no client with this name."),
        ("twins", "Several clients have this name"),
        ("Acme", "The person already belongs to this client."),
    ],
)
def test_a_move_that_leads_nowhere_is_refused_beside_the_field(
    console: Browser, user: User, client: str, sentence: str
) -> None:
    for _ in range(2):
        Client.objects.create(name="Twins")
    response = console.post(page(user, "move"), {"client": client, "reason": "x"})
    assert sentence in " ".join(response.context["form"].errors["client"])
    assert not AuditEvent.objects.filter(action="user:moved").exists()


def test_a_person_with_usage_is_erased_and_not_deleted(console: Browser, world: World) -> None:
    text = console.get(page(world.person, "change")).content.decode()
    assert page(world.person, "erase") in text
    assert page(world.person, "remove") not in text
    response = console.post(page(world.person, "remove"), {"reason": "Has left."}, follow=True)
    assert "This action is not available" in said(response)
    assert User.objects.filter(pk=world.person.pk).exists()
    assert not AuditEvent.objects.filter(action="user:deleted").exists()


def test_a_person_without_usage_goes_with_sessions_and_tokens(
    console: Browser, user: User, pair: TokenPair
) -> None:
    done = console.post(page(user, "remove"), {"reason": "Added by mistake."}, follow=True)
    assert "has been deleted" in said(done)
    assert not User.objects.filter(pk=user.pk).exists()
    assert not Session.objects.exists()
    assert not RefreshToken.objects.exists()
    event = last_event("user:deleted")
    assert (event.target, event.reason) == ("ada@acme.test", "Added by mistake.")


@pytest.mark.parametrize("act", ["disable", "dismiss", "remove"])
def test_operators_do_not_lock_themselves_out(console: Browser, operator: User, act: str) -> None:
    assert page(operator, act) not in console.get(page(operator, "change")).content.decode()
    response = console.post(page(operator, act), {"reason": "Tired."}, follow=True)
    assert "This action is not available" in said(response)
    operator.refresh_from_db()
    assert operator.is_active
    assert operator.is_staff


def test_operators_make_operators_and_unmake_them(console: Browser, stranger: Browser) -> None:
    user = User.objects.create(email="bea@shell.test", password=password_hash())
    stranger.force_login(user)
    assert stranger.get("/admin/").status_code == 302
    given = {"roles": ["support", "release"], "reason": "Joins support."}
    console.post(page(user, "operator"), given)
    assert stranger.get("/admin/").status_code == 200
    after = {"operator": True, "roles": ["release", "support"]}
    assert last_event("user:operator_set").after == after
    console.post(page(user, "dismiss"), {"reason": "Leaves support."})
    assert stranger.get("/admin/").status_code == 302


def test_revoking_an_operator_ends_his_session_in_the_console(
    console: Browser, stranger: Browser
) -> None:
    other = User.objects.create_superuser("second@shell.test", PASSWORD)
    stranger.force_login(other)
    assert stranger.get("/admin/").status_code == 200
    console.post(page(other, "revoke"), {"reason": "Laptop lost."})
    assert stranger.get("/admin/").status_code == 302
    assert console.get("/admin/").status_code == 200


def test_an_operator_who_may_change_people_may_not_touch_operators(
    stranger: Browser, operator: User, user: User, operator_of: Callable[[Iterable[str]], User]
) -> None:
    stranger.force_login(operator_of(rights_of(Role.OWNER)))
    for act in (
        "revoke",
        "reset",
        "one_time",
        "email",
        "move",
        "erase",
        "disable",
        "remove",
        "dismiss",
        "operator",
    ):
        assert stranger.post(page(operator, act), {"reason": "x"}).status_code == 302, act
    operator.refresh_from_db()
    assert operator.is_superuser
    assert not AuditEvent.objects.exclude(action="client:created").exists()
    several = reverse("admin:accounts_user_revoke_several")
    stranger.post(several, {"target": [operator.pk, user.pk], "reason": "x"})
    assert [event.target for event in AuditEvent.objects.filter(action="user:tokens_revoked")] == [
        user.email
    ]


def test_the_page_shows_usage_sessions_overrides_and_events(console: Browser, world: World) -> None:
    text = " ".join(console.get(page(world.person, "change")).content.decode().split())
    for shown in ("450 k", "900 k", "50 %", "1 device", "an override", "mac"):
        assert shown in text, shown


def test_the_page_shows_abandoned_calls_and_alerts(console: Browser, world: World) -> None:
    address = page(world.person, "change")
    assert "abandoned" not in console.get(address).content.decode()
    now = timezone.now()
    UsageRecord.objects.filter(user=world.person, state="settled").update(
        end="client_gone", period=now.date().replace(day=1), opened_at=now
    )
    left = UsageRecord.objects.filter(user=world.person, end="client_gone").count()
    assert left
    Alert.objects.create(
        user=world.person, kind="abandoned", period=now.date(), used=25, cap=20, noticed_at=now
    )
    text = " ".join(console.get(address).content.decode().split())
    assert f">{left} disconnected</a>" in text
    assert f"many abandoned calls on {now:%-d %B}: 25</a>" in text
    alerts = console.get(reverse("admin:usage_alert_changelist"), {"kind__exact": "abandoned"})
    assert [alert.used for alert in alerts.context["cl"].result_list] == [25]


def test_the_page_of_a_person_shows_a_theft_that_has_ended_its_session(
    console: Browser, user: User, pair: TokenPair, now: datetime
) -> None:
    rotate(presented=pair.refresh, device=Device(), now=now)
    with pytest.raises(InvalidRefreshToken):
        rotate(presented=pair.refresh, device=Device(), now=now + timedelta(hours=2))
    assert Session.objects.get().ended_by == Session.Ended.REUSE
    shown = console.get(page(user, "change"))
    assert "presented a replaced token of" in shown.content.decode()
    # The list that the page leads to has it too, beside what was done to the person.
    console.post(page(user, "disable"), {"reason": "Until it is clear."})
    assert f"person={user.pk}" in shown.context["events"]
    listed = {
        event.action for event in console.get(shown.context["events"]).context["cl"].result_list
    }
    assert {"session:token_reused", "user:disabled"} <= listed


def test_the_list_of_what_happened_to_a_person_has_nothing_of_others(
    console: Browser, world: World
) -> None:
    person, other = world.people[:2]
    for each in (person, other):
        console.post(page(each, "revoke"), {"reason": "Laptop lost."})
    log = reverse("admin:accounts_auditevent_changelist")
    listed = console.get(f"{log}?person={person.pk}").context["cl"].result_list
    mine = {
        str(person.pk),
        *map(str, Session.objects.filter(user=person).values_list("pk", flat=True)),
    }
    assert {event.target_id for event in listed} <= mine
    assert "user:tokens_revoked" in {event.action for event in listed}
    assert not console.get(f"{log}?person=nonsense").context["cl"].result_list
