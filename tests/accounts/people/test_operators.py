"""Operators made and helped from a shell."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from accounts.models import AuditEvent, RefreshToken, User
from accounts.sessions.sign_in import TokenPair
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db
NEW = "another good horse battery"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs ``createsuperuser`` as a deployment does: by its environment, asking nothing."""

    def run(email: str, password: str | None = PASSWORD, **options: Any) -> str:
        monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", email)
        if password is None:
            monkeypatch.delenv("DJANGO_SUPERUSER_PASSWORD", raising=False)
        else:
            monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", password)
        out = StringIO()
        call_command("createsuperuser", "--noinput", stdout=out, **options)
        return out.getvalue()

    return run


def test_the_first_operator_is_made_without_a_question_and_written_down(
    made: Any, stranger: Browser, api: APIClient, signing_key: None
) -> None:
    assert "first@shell.test is an operator\n" in made("First@SHELL.test")
    operator = User.objects.get()
    assert (operator.email, operator.is_staff, operator.is_superuser) == (
        "first@shell.test",
        True,
        True,
    )
    event = AuditEvent.objects.get(action="operator:added")
    assert (event.actor, event.target_id) == ("manage.py createsuperuser", str(operator.pk))
    signed_in = stranger.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    assert signed_in.status_code == 302
    login = {"email": operator.email, "password": PASSWORD}
    refused = api.post("/v1/auth/login", login, format="json")
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_credentials")


@pytest.mark.parametrize(
    ("email", "password", "sentence"),
    [
        ("first@shell.test", "short", "too short"),
        ("first@shell.test", "password12345", "too common|too short"),
        ("first@shell.test", "123456789012345", "too common"),
        ("first-person@shell.test", "first-person@shell.test", "easy to guess"),
        ("not an email", PASSWORD, "not an email"),
        ("", PASSWORD, "not an email"),
    ],
)
def test_a_poor_password_or_email_makes_nobody(
    made: Any, email: str, password: str, sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        made(email, password)
    assert not User.objects.exists()


def test_an_email_is_one_operator(made: Any) -> None:
    made("first@shell.test")
    with pytest.raises(CommandError, match="taken"):
        made("FIRST@shell.test")


def test_an_owner_without_a_password_gets_instructions_to_set_one(made: Any) -> None:
    assert "use changepassword" in made("first@shell.test", None)
    assert not User.objects.get().has_usable_password()


def test_a_person_at_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = [NEW, NEW, NEW, NEW + "x"]
    monkeypatch.setattr("builtins.input", lambda question: "Second@shell.test")
    monkeypatch.setattr("accounts.management.terminal.getpass", lambda question: typed.pop(0))
    call_command("createsuperuser", stdout=StringIO())
    assert User.objects.get(email="second@shell.test").check_password(NEW)
    with pytest.raises(CommandError, match="do not match"):
        call_command("createsuperuser", stdout=StringIO())


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["createsuperuser"], "--noinput"),
        (["createsuperuser", "--email", "second@shell.test"], "--noinput"),
        (["changepassword", "ada@acme.test"], "send_password_link"),
        (["erase_user", "ada@acme.test", "--reason", "Asked."], "--confirm"),
    ],
)
def test_a_command_without_a_terminal_suggests_the_next_step(
    user: User, monkeypatch: pytest.MonkeyPatch, command: list[str], instead: str
) -> None:
    def nobody(question: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    monkeypatch.setattr("accounts.management.terminal.getpass", nobody)
    with pytest.raises(CommandError, match=instead):
        call_command(*command, stdout=StringIO())
    user.refresh_from_db()
    assert user.erased_at is None
    assert user.check_password(PASSWORD)


def test_a_password_set_from_a_shell_ends_sessions_and_is_written_down(
    user: User, pair: TokenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = [NEW, NEW, "short", "short"]
    monkeypatch.setattr("accounts.management.terminal.getpass", lambda question: typed.pop(0))
    out = StringIO()
    call_command("changepassword", "ADA@acme.test", stdout=out)
    assert "1 sessions ended" in out.getvalue()
    assert not RefreshToken.objects.unrevoked().exists()
    event = AuditEvent.objects.get(action="user:password_set")
    assert (event.actor, event.target) == ("manage.py changepassword", user.email)
    with pytest.raises(CommandError, match="too short"):
        call_command("changepassword", user.email, stdout=out)
    with pytest.raises(CommandError, match="no user"):
        call_command("changepassword", "nobody@acme.test", stdout=out)
