"""Inviting and importing people on a client's page, and erasing one on theirs."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.admin.joining import InvitationForm
from accounts.audit import Actor
from accounts.models import AuditEvent, Client, Role, User
from accounts.people.invitations import MOST_PEOPLE, emails_in, invite
from tests.accounts.people.test_invitations import queued
from tests.conftest import Browser
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db


def page(row: Client | User, act: str = "change") -> str:
    return reverse(f"admin:accounts_{row._meta.model_name}_{act}", args=[row.pk])


def words(response: Any) -> str:
    text = re.sub(r"<[^>]+>", " ", response.content.decode())
    return " ".join(text.split())


def upload(browser: Browser, client: Client, content: bytes | str, **inputs: str) -> Any:
    content = content.encode() if isinstance(content, str) else content
    file = SimpleUploadedFile("people.csv", content)
    return browser.post(page(client, "import"), {"file": file, "invited": "on", **inputs})


def test_several_are_invited_at_once_and_the_page_says_who_has_not_accepted(
    console: Browser, organisation: Client, user: User
) -> None:
    form = {"emails": "bert@acme.test, Cleo@acme.test\r\nada@acme.test; CLEO@acme.test"}
    done = console.post(page(organisation, "invite"), form, follow=True)
    text = words(done)
    assert "2 people invited. 1 repeated line ignored. 1 person was here already." in text
    assert "2 have not accepted" in text
    assert ("bert@acme.test Invited" in text, "cleo@acme.test Invited" in text) == (True, True)
    assert sorted(queued()) == ["bert@acme.test", "cleo@acme.test"]


def test_a_person_who_cannot_be_invited_is_named_and_nothing_typed_is_lost(
    console: Browser, organisation: Client
) -> None:
    response = console.post(page(organisation, "invite"), {"emails": "bert@acme.test\r\nnobody"})
    assert "Line 2: nobody is not an email address." in words(response)
    assert "bert@acme.test\r\nnobody" in response.content.decode()
    assert not User.objects.filter(client=organisation).exists()


def test_nobody_is_looked_for_among_more_than_can_be_invited_at_once(organisation: Client) -> None:
    text = "\n".join(f"person-{each}@acme.test" for each in range(MOST_PEOPLE + 1))
    by: Any = None
    form = InvitationForm({"emails": text}, client=organisation, by=by)
    with CaptureQueriesContext(connection) as asked:
        assert form.is_valid()
    assert len(asked) == 0


def test_people_are_listed_by_how_far_they_have_come(
    console: Browser, organisation: Client, user: User, by: Actor, now: datetime
) -> None:
    def listed(state: str) -> set[str]:
        address = f"{reverse('admin:accounts_user_changelist')}?joined={state}"
        return {each.email for each in console.get(address).context["cl"].result_list}

    four_days_ago = now - timedelta(days=4)
    invite(named=emails_in("late@acme.test"), client=organisation, by=by, now=four_days_ago)
    invite(named=emails_in("waits@acme.test"), client=organisation, by=by, now=now)
    User.objects.create_user("never@acme.test", client=organisation)
    User.objects.create_user("gone@acme.test", client=organisation, is_active=False)
    assert {
        state: listed(state) for state in ("waiting", "over", "never", "disabled", "erased")
    } == {
        "waiting": {"waits@acme.test"},
        "over": {"late@acme.test"},
        "never": {"never@acme.test"},
        "disabled": {"gone@acme.test"},
        "erased": set(),
    }
    assert "ada@acme.test" in listed("unseen")


def test_an_invitation_is_sent_again_to_those_who_have_no_password(
    console: Browser, organisation: Client, user: User
) -> None:
    bert = User.objects.create_user("bert@acme.test", client=organisation)
    several = reverse("admin:accounts_user_invite_several")
    done = console.post(several, {"target": [bert.pk, user.pk]}, follow=True)
    assert "1 person invited." in words(done)
    assert queued() == ["bert@acme.test"]
    assert page(user, "invite") not in console.get(page(user)).content.decode()
    assert page(bert, "invite") in console.get(page(bert)).content.decode()


def test_a_file_is_looked_at_first_and_taken_then(console: Browser, organisation: Client) -> None:
    seen = upload(console, organisation, "name;email\nBert;bert@acme.test\nCleo;cleo@acme.test\n")
    text = words(seen)
    assert "2 would be added and sent an invitation." in text
    assert "Ignored columns: name." in text
    assert "2 bert@acme.test will be added" in text
    assert not User.objects.filter(client=organisation).exists()
    form = seen.context["form"].initial
    assert ">Add 2 people and invite them</button>" in seen.content.decode()
    done = console.post(page(organisation, "import"), {**form, "invited": "True"}, follow=True)
    assert "2 people added. 2 people invited." in words(done)
    again = console.post(page(organisation, "import"), {**form, "invited": "True"}, follow=True)
    assert "0 people added. 0 people invited. 2 people were here already." in words(again)
    assert len(queued()) == 2


def test_people_can_be_imported_without_a_mail(console: Browser, organisation: Client) -> None:
    file = SimpleUploadedFile("people.csv", b"email\nbert@acme.test\n")
    seen = console.post(page(organisation, "import"), {"file": file})
    assert "1 would be added." in words(seen)
    form = {name: value for name, value in seen.context["form"].initial.items() if value}
    said = words(console.post(page(organisation, "import"), form, follow=True))
    assert "1 person added." in said
    assert "invited." not in said
    assert queued() == []


def test_a_file_with_faults_shows_them_first_and_offers_nothing_but_another_file(
    console: Browser, organisation: Client
) -> None:
    seen = upload(console, organisation, "email\nfine@acme.test\n<b>nobody</b>\n")
    text = seen.content.decode()
    assert "1 line with errors." in words(seen)
    assert text.index("&lt;b&gt;nobody") < text.index("fine@acme.test")
    assert 'type="file"' in text
    assert ">Preview</button>" in text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"name\nAda\n", "No column is named"),
        (b"email\n" + b"x" * 300_000, "the limit is 256 KiB"),
        (b"email\n", "It contains no email."),
        (b"", "empty"),
    ],
)
def test_another_kind_of_file_is_refused_beside_the_field(
    console: Browser, organisation: Client, content: bytes, sentence: str
) -> None:
    response = upload(console, organisation, content)
    assert sentence in " ".join(response.context["form"].errors["file"])


def test_an_operator_who_may_not_add_people_can_neither_invite_nor_import(
    stranger: Browser, organisation: Client
) -> None:
    stranger.force_login(operator_with(Role.AUDITOR))
    for act in ("invite", "import"):
        assert page(organisation, act) not in stranger.get(page(organisation)).content.decode()
        stranger.post(page(organisation, act), {"emails": "x@acme.test", "text": "email\nx@a.test"})
    assert User.objects.count() == 1


def test_a_person_is_erased_by_typing_their_email(
    console: Browser, user: User, organisation: Client
) -> None:
    asked = words(console.get(page(user, "erase")))
    assert "This cannot be undone." in asked
    wrong = console.post(page(user, "erase"), {"email": "ada@acme.tset", "reason": "Asked."})
    assert "not the email of the person" in words(wrong)
    done = console.post(
        page(user, "erase"), {"email": "ada@acme.test", "reason": "Asked."}, follow=True
    )
    assert "The person has been erased." in words(done)
    assert "ada@acme.test" not in words(done)
    assert "People 0 of 0" in words(console.get(page(organisation)))
    erased = console.get(page(user)).content.decode()
    assert f"Erased person {str(user.pk)[:8]}" in erased
    for act in ("email", "move", "enable", "erase", "operator", "stop_calls"):
        assert page(user, act) not in erased
    assert AuditEvent.objects.get(action="user:erased").actor == "operator@shell.test"
