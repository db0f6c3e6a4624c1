"""An owner ends the sessions of everybody, as the command does."""

import pytest
from django.urls import reverse

from accounts.models import AuditEvent, Role, Session
from config.composition.roles import wants_proof
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db
PAGE = "/admin/accounts/session/add/"


def words(content: bytes) -> str:
    return " ".join(content.decode().split())


def test_the_page_says_how_many_it_ends_and_asks_why(console: Browser, world: World) -> None:
    shown = words(console.get(PAGE).content)
    assert "<h1>Revoke all sessions?</h1>" in shown
    assert "3 sessions of 3 people end at once" in shown
    assert list(console.post(PAGE, {}).context["form"].errors) == ["reason"]
    assert Session.objects.filter(ended_at=None).count() == 3


def test_revoking_everybody_ends_sessions_once_and_is_audited_with_its_reason(
    console: Browser, world: World
) -> None:
    done = console.post(PAGE, {"reason": "The keys leaked."}, follow=True)
    assert "<strong>Everybody has been signed out: 3 sessions ended.</strong>" in words(
        done.content
    )
    assert not Session.objects.filter(ended_at=None).exists()
    begun, ended = AuditEvent.objects.filter(action__startswith="everybody:").order_by("pk")
    assert {begun.reason, ended.reason} == {"The keys leaked."}
    assert (ended.target, ended.after["sessions_ended"]) == ("everybody", 3)
    # The operator signs in again too, and reads there what was done.
    assert done.redirect_chain[-1][0].startswith("/admin/login/")


def test_revoking_everybody_requires_a_recent_proof() -> None:
    assert wants_proof("accounts.session_add", people=())


@pytest.mark.parametrize("role", [role for role in Role.values if role != Role.OWNER])
def test_revoking_everybody_requires_an_owner(role: str, world: World) -> None:
    browser = Browser()
    browser.force_login(operator_with(Role(role)))
    assert browser.get(PAGE).status_code == 403
    listed = browser.get(reverse("admin:accounts_session_changelist"))
    assert PAGE not in listed.content.decode()
