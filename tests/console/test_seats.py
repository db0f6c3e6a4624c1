"""Seats in the console: how many are taken, and that they do not suffice, before anything is done."""

from datetime import datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.access import disable
from accounts.people.erasure import erase_user
from accounts.people.invitations import emails_in, invite
from accounts.people.users import add_user
from accounts.seats import seats_of
from licensing.models import Licence, Plan
from tests.conftest import Browser
from tests.console.test_joining import page, upload, words

pytestmark = pytest.mark.django_db
FILE = "email\ncem@acme.test\ndea@acme.test\neva@acme.test\n"


@pytest.fixture
def acme(organisation: Client, by: Actor, now: datetime) -> Client:
    """A client of two seats, of which one is taken, with a disabled and an erased person."""
    for name in ("ada", "ben", "bob"):
        user = add_user(email=f"{name}@acme.test", client=organisation, by=by, now=now)
        if name == "ben":
            disable(user_id=user.pk, reason="They left.", by=by, now=now)
        if name == "bob":
            why = "They asked for it."
            erase_user(user_id=user.pk, email=user.email, reason=why, by=by, now=now)
    Licence.objects.filter(client=organisation).update(seats=2)
    return organisation


def test_an_import_says_before_it_is_done_how_many_seats_it_lacks(
    console: Browser, acme: Client
) -> None:
    shown = words(upload(console, acme, FILE))
    assert "1 of 2 seats are taken. 2 more seats are needed: raise the number, or disable" in shown
    assert "The file has 3 new people. Nothing has been changed." in shown
    assert "Add 3 people" not in shown
    # A look is no refusal.
    assert not AuditEvent.objects.filter(action="client:seat_refused").exists()
    shown = words(upload(console, acme, "email\nada@acme.test\nben@acme.test\ncem@acme.test\n"))
    assert "1 would be added" in shown
    # An existing person takes no further seat, even beyond the number of seats.
    Licence.objects.filter(client=acme).update(seats=1)
    add = {"text": "email\nada@acme.test\n", "invited": "on"}
    assert console.post(page(acme, "import"), add).status_code == 302


def test_the_command_says_it_as_well(acme: Client, tmp_path: Any) -> None:
    file = tmp_path / "people.csv"
    file.write_text(FILE)
    with pytest.raises(CommandError, match="2 more seats are needed"):
        call_command("import_people", str(file), client=str(acme.pk), dry_run=True)
    with pytest.raises(CommandError, match="2 more seats are needed"):
        call_command("import_people", str(file), client=str(acme.pk))
    event = AuditEvent.objects.get(action="client:seat_refused")
    assert event.actor == "manage.py import_people"


def test_the_pages_of_enabling_and_inviting_say_what_is_taken(
    console: Browser, acme: Client
) -> None:
    ben = User.objects.get(email="ben@acme.test")
    assert "They take a seat: 1 of 2 are taken." in words(console.get(page(ben, "enable")))
    invitation = words(console.get(page(acme, "invite")))
    assert "Each new person takes a seat: 1 of 2 are taken." in invitation
    Licence.objects.filter(client=acme).update(seats=1)
    for shown in (console.get(page(ben, "enable")), console.get(page(acme, "invite"))):
        assert "1 of 1 seats are taken. 1 more seat is needed" in words(shown)
    Licence.objects.filter(client=acme).update(seats=None)
    assert "seat" not in words(console.get(page(ben, "enable"))).replace("seats", "")


def test_moving_to_a_full_client_and_enabling_are_refused_on_their_page(
    console: Browser, acme: Client, by: Actor, now: datetime
) -> None:
    Licence.objects.filter(client=acme).update(seats=1)
    ben, zoe = (
        User.objects.get(email="ben@acme.test"),
        add_user(email="zoe@else.test", client=None, by=by, now=now),
    )
    moved = console.post(page(zoe, "move"), {"client": str(acme.pk), "reason": "Why not."})
    enabled = console.post(page(ben, "enable"), {"reason": "Why not."})
    for answer in (moved, enabled):
        assert "1 of 1 seats are taken. 1 more seat is needed" in words(answer)
    zoe.refresh_from_db()
    assert (zoe.client_id, seats_of(acme)) == (None, (1, 1))
    assert AuditEvent.objects.filter(action="client:seat_refused").count() == 1


def test_every_page_and_the_rule_count_the_same_people(
    console: Browser, acme: Client, by: Actor, now: datetime
) -> None:
    """Invited people count, disabled and erased ones do not (Flagsmith/flagsmith#7862)."""
    invite(named=emails_in("cem@acme.test"), client=acme, by=by, now=now)
    assert seats_of(acme) == (2, 2)
    licence = reverse("admin:licensing_licence_change", args=[acme.licence.pk])
    places = [licence, page(acme), reverse("admin:accounts_client_changelist")]
    assert all("2 of 2" in words(console.get(each)) for each in places)


def test_lowering_below_the_taken_seats_warns_and_disables_nobody(
    console: Browser, acme: Client, plan: Plan
) -> None:
    User.objects.create_user("cem@acme.test", None, client=acme)
    address = reverse("admin:licensing_licence_terms", args=[acme.licence.pk])
    assert "2 seats are taken. Lowering" in words(console.get(address))
    form = {"plan": plan.pk, "entitlements": "", "seats": "1", "reason": "As agreed."}
    done = words(console.post(address, form, follow=True))
    assert "2 of 1 seats are taken: 1 more person than seats. Nobody is disabled." in done
    assert "2 of 1 taken: 1 over" in done
    assert seats_of(acme) == (1, 2)
