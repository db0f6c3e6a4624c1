"""Notes of a client, and the devices of people."""

from collections.abc import Callable

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts.audit import Actor
from accounts.device_names import shell_of
from accounts.models import AuditEvent, Client, Session, User
from accounts.people.clients import set_notes
from accounts.people.erasure import erase_user
from accounts.sessions.revocation import revoke_all
from accounts.sessions.sign_in import Device, TokenPair
from config.platform.problems.edit_conflicts import ChangedMeanwhile
from config.platform.problems.problem import InvalidRequest
from tests.conftest import PASSWORD, Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db
SECRET_TEXT = "Renewal at half the price"


def page(client: Client, act: str = "change") -> str:
    return reverse(f"admin:accounts_client_{act}", args=[client.pk])


def note(client: Client, by: Actor, **inputs: str) -> Client:
    return set_notes(client_id=client.pk, by=by, now=timezone.now(), **inputs)  # type: ignore[arg-type]


class TestNotes:
    def test_notes_are_saved_shown_and_found(self, console: Browser, organisation: Client) -> None:
        form = {
            "contract": "CRM-2041",
            "manager": "pia@ops.test",
            "notes": f"{SECRET_TEXT}.\r\nTwice.",
        }
        done = console.post(page(organisation, "notes"), form, follow=True)
        text = done.content.decode()
        assert f"The notes of {organisation} have been saved." in text
        assert ("CRM-2041" in text, SECRET_TEXT in text) == (True, True)
        organisation.refresh_from_db()
        assert organisation.notes == f"{SECRET_TEXT}.\nTwice."
        for part in ("CRM-20", "pia@ops", "half the pri"):
            found = console.get(reverse("admin:search"), {"q": part}, follow=True)
            assert organisation.name in found.content.decode(), part
        rows = console.get(reverse("admin:accounts_client_changelist"), {"q": "crm-2041"})
        assert [each.pk for each in rows.context["cl"].result_list] == [organisation.pk]

    def test_an_event_names_the_fields_and_never_what_they_say(
        self, console: Browser, organisation: Client, by: Actor
    ) -> None:
        note(organisation, by, contract="CRM-2041", notes=SECRET_TEXT)
        event = AuditEvent.objects.get(action="client:notes_set")
        assert (event.before, event.after) == (None, {"fields": ["contract", "notes"]})
        assert (event.target, event.actor) == (organisation.name, by.name)
        shown = console.get(reverse("admin:accounts_auditevent_changelist")).content.decode()
        assert "Changed: contract, notes." in shown
        assert SECRET_TEXT not in shown

    def test_notes_that_stay_as_they_are_leave_no_event(
        self, organisation: Client, by: Actor
    ) -> None:
        note(organisation, by, contract=" CRM-2041 ")
        note(organisation, by, contract="CRM-2041", notes="")
        assert AuditEvent.objects.filter(action="client:notes_set").count() == 1

    @pytest.mark.parametrize(
        "given",
        [
            {"contract": "x" * 201},
            {"manager": "x" * 201},
            {"notes": "x" * 4001},
            {"contract": "two\nlines"},
            {"notes": "a\u202eb"},
            {"notes": "a\x00b"},
        ],
    )
    def test_a_note_is_bounded_plain_text(
        self, organisation: Client, by: Actor, given: dict[str, str]
    ) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            note(organisation, by, **given)
        assert refusal.value.errors[0].pointer == f"/{next(iter(given))}"
        assert not AuditEvent.objects.filter(action="client:notes_set").exists()

    def test_markup_is_text(self, console: Browser, organisation: Client, by: Actor) -> None:
        note(organisation, by, notes="<script>alert(1)</script>")
        assert "<script>alert" not in console.get(page(organisation)).content.decode()

    def test_two_who_edit_at_once_lose_nothing(self, organisation: Client, by: Actor) -> None:
        note(organisation, by, notes="First.")
        with pytest.raises(ChangedMeanwhile):
            set_notes(
                client_id=organisation.pk,
                shown={"contract": "", "manager": "", "notes": ""},
                notes="Second.",
                by=by,
                now=timezone.now(),
            )
        organisation.refresh_from_db()
        assert organisation.notes == "First."

    @pytest.mark.parametrize(
        ("role", "status"), [("licensing", 200), ("owner", 200), ("support", 403), ("auditor", 403)]
    )
    def test_notes_are_changed_by_those_who_may(
        self, organisation: Client, role: str, status: int
    ) -> None:
        browser = Browser()
        browser.force_login(operator_with(role))
        assert browser.get(page(organisation, "notes")).status_code == status

    def test_a_client_of_the_release_before_has_empty_notes(self, organisation: Client) -> None:
        organisation.refresh_from_db()
        assert (organisation.contract, organisation.manager, organisation.notes) == ("", "", "")

    def test_an_erased_person_manages_no_client(
        self, organisation: Client, user: User, by: Actor
    ) -> None:
        note(organisation, by, manager="Ada@ACME.test", contract="CRM-2041")
        erase_user(
            user_id=user.pk, email=user.email, reason="They asked.", by=by, now=timezone.now()
        )
        organisation.refresh_from_db()
        assert (organisation.manager, organisation.contract) == ("", "CRM-2041")


class TestDevices:
    @pytest.fixture
    def laptop(
        self, user: User, signing_key: None, sign_in_at_once: Callable[..., TokenPair]
    ) -> Session:
        device = Device(
            fingerprint="install-7f3a", address="198.51.100.9", agent="Shell/1.2.2 (Windows 11)"
        )
        now = timezone.now()
        sign_in_at_once(email=user.email, password=PASSWORD, device=device, now=now)
        sign_in_at_once(email=user.email, password=PASSWORD, device=device, now=now)
        return Session.objects.filter(user=user)[0]

    def test_a_device_is_listed_once_with_version_and_platform(
        self, console: Browser, user: User, organisation: Client, laptop: Session
    ) -> None:
        for address in (
            reverse("admin:accounts_user_change", args=[user.pk]),
            page(organisation),
        ):
            table = console.get(address).context["devices"]
            (row,) = table.rows
            cells = [str(each) for each in row.cells]
            assert cells[0] == "Shell 1.2.2 on Windows 11"
            assert {"Windows 11", "1.2.2", "install-7f3a"} <= set(cells)
            assert any("Signed in" in each for each in cells)

    def test_a_device_stays_known_after_its_sessions_have_ended(
        self, console: Browser, user: User, laptop: Session, by: Actor
    ) -> None:
        revoke_all(user_id=user.pk, reason="Lost.", by=by, now=timezone.now())
        table = console.get(reverse("admin:accounts_user_change", args=[user.pk])).context[
            "devices"
        ]
        assert any("Signed out" in str(each) for each in table.rows[0].cells)

    def test_a_device_knows_what_its_channel_offers(self, console: Browser, world: World) -> None:
        # The world's channel has 1.2.3.
        theirs = Session.objects.filter(user=world.person)
        for version, offered in (("1.2.2", "1.2.3"), ("1.2.3", "nothing newer"), ("x", "")):
            theirs.update(agent=f"Shell/{version} (Windows 11)")
            address = reverse("admin:accounts_user_change", args=[world.person.pk])
            table = console.get(address).context["devices"]
            assert table.columns[-1].label == "Stable offers"
            assert table.rows[0].cells[-1] == offered

    def test_an_install_finds_the_person_of_the_device(
        self, console: Browser, user: User, laptop: Session
    ) -> None:
        text = console.get(reverse("admin:search"), {"q": "install-7f"}).content.decode()
        assert user.email in text
        assert "install-7f3a" in text

    @pytest.mark.parametrize(
        ("agent", "known"),
        [
            ("Shell/4.8.2 (Windows 11)", ("4.8.2", "Windows 11")),
            ("Shell/4.8.2 (Macintosh; x)", ("4.8.2", "Mac")),
            ("Mozilla/5.0 (X11; Linux x86_64) Firefox/133.0", ("", "Linux")),
            ("", ("", "")),
        ],
    )
    def test_a_shell_says_its_version_and_platform(
        self, agent: str, known: tuple[str, str]
    ) -> None:
        assert shell_of(agent) == known
