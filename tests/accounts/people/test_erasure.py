"""Erasing a person: nothing of them stays where anybody would look, and what was owed an account of does."""

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session as PageSession
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, models, transaction

from accounts.audit import Actor
from accounts.columns import SIGNED_BY_EMAIL
from accounts.models import AuditEvent, Client, PasswordLink, RefreshToken, Session, User
from accounts.people.access import enable
from accounts.people.clients import set_alert_email
from accounts.people.erasure import _belongings, erase_user, preview
from accounts.people.password_links import request_link, request_reset, send_link
from accounts.people.roles import make_operator
from accounts.people.users import Erased, add_user, change_email, move_user, set_password
from accounts.rights import NotYourself
from accounts.sessions.rotation import rotate
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from config.platform.periods import Period
from config.platform.problems.problem import InvalidRequest
from config.platform.session_store import row_key
from licensing.models import HeldSuspension
from tests.conftest import PASSWORD, Browser
from tests.races import race
from tests.triggers import without_triggers
from usage.models import MonthlyUsage, Override, UsageRecord
from usage.overrides import Allowance, grant_override

EMAIL = "ada@acme.test"


def erase(user: User, by: Actor, now: datetime, **inputs: Any) -> Any:
    return erase_user(
        **{
            "user_id": user.pk,
            "email": EMAIL,
            "reason": "She asked.",
            "by": by,
            "now": now,
            **inputs,
        }
    )


def use(user: User, now: datetime) -> UsageRecord:
    period = Period.of(now)
    MonthlyUsage.objects.create(
        user=user, period=period.month, day=period.day, input_used=7, output_used=5
    )
    return UsageRecord.objects.create(
        user=user,
        client_id=user.client_id,
        period=period.month,
        day=period.day,
        model="small",
        provider="openai",
        streamed=False,
        reserved_input=7,
        reserved_output=5,
        input_tokens=7,
        output_tokens=5,
        state="settled",
        settled_at=now,
        source="provider",
        end="done",
        opened_at=now,
        expires_at=now + timedelta(minutes=11),
        labels={"user": EMAIL, "metadata": {"seat": "adas-mac"}},
        failures={
            "attempts": [],
            "left_out": 0,
            "problem": {"code": "provider_rejected", "status": 400, "detail": f"Bad name: {EMAIL}"},
        },
    )


def everywhere(text: str) -> list[str]:
    """The tables and columns in which a text occurs, in the whole database."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(
                f'SELECT count(*) FROM "{table}" AS row WHERE row::text ILIKE %s', [f"%{text}%"]
            )
            if cursor.fetchone()[0]:
                found.append(table)
    return found


@pytest.mark.django_db
def test_nothing_personal_stays_but_in_the_log(
    user: User, pair: TokenPair, by: Actor, now: datetime, mailoutbox: Any
) -> None:
    record = use(user, now)
    rotate(
        presented=pair.refresh,
        device=Device(fingerprint="adas-mac", address="198.51.100.7"),
        now=now,
    )
    send_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, now=now)
    request_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, by=by, now=now)
    request_reset(email=EMAIL, address=None, request_id="")
    set_password(user_id=user.pk, password="another good horse battery", by=by, now=now)
    in_a_week = now + timedelta(days=7)
    allowance = Allowance(daily_tokens=5)
    grant_override(
        user_id=user.pk, allowance=allowance, ends_at=in_a_week, reason="Ada asked", by=by, now=now
    )
    assert {"procrastinate_jobs", "accounts_user", "accounts_auditevent"} <= set(everywhere(EMAIL))

    expected = preview(user_id=user.pk)
    assert erase(user, by, now) == expected
    assert expected["sessions"] == 1
    assert expected["refresh tokens"] == 2
    assert expected["overrides"] == 1
    assert expected["queued mails"] == 3
    assert expected["labels of calls"] == expected["errors of calls"] == 1

    assert everywhere(EMAIL) == ["accounts_auditevent"]
    assert everywhere("adas-mac") == everywhere("198.51.100.7") == []
    user.refresh_from_db()
    assert user.email == f"erased-{user.pk}@erased.invalid"
    assert (user.is_active, user.last_login, user.has_usable_password()) == (False, None, False)
    record.refresh_from_db()
    assert (record.user_id, record.client_id, record.input_tokens) == (user.pk, user.client_id, 7)
    assert MonthlyUsage.objects.get(user=user).input_used == 7
    assert not Override.objects.exists()


@pytest.mark.django_db
def test_an_operators_name_on_what_they_did_follows_their_email_and_goes_with_it(
    user: User, by: Actor, now: datetime
) -> None:
    mine, other = (
        HeldSuspension.objects.create(
            job=job,
            licence_ids=[1],
            clients=1,
            noticed_at=now,
            confirmed_at=now,
            confirmed_by=email,
        )
        for job, email in (("sync_subscriptions", EMAIL), ("expire_grace", "eve@acme.test"))
    )
    change_email(user_id=user.pk, email="ada@new.test", reason="x", by=by, now=now)
    mine.refresh_from_db()
    assert mine.confirmed_by == "ada@new.test"
    erase(user, by, now, email="ada@new.test")
    mine.refresh_from_db()
    other.refresh_from_db()
    assert mine.confirmed_by == f"erased-{user.pk}@erased.invalid"
    assert other.confirmed_by == "eve@acme.test"
    assert everywhere("ada@new.test") == ["accounts_auditevent"]


@pytest.mark.django_db
def test_an_erased_persons_address_receives_no_more_alerts(
    user: User, by: Actor, now: datetime
) -> None:
    assert user.client is not None
    set_alert_email(client_id=user.client.pk, email=EMAIL, by=by, now=now)
    erase(user, by, now)
    user.client.refresh_from_db()
    assert user.client.alert_email == ""
    assert everywhere(EMAIL) == ["accounts_auditevent"]


def test_every_column_for_who_did_something_is_known_to_erasing() -> None:
    """By email, or by words in which no person is named: a pipeline, a command, a reason."""
    found = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField | models.TextField) and field.name.endswith("_by")
    }
    impersonal = {
        ("accounts.Session", "ended_by"),
        ("releases.AppVersion", "published_by"),
        ("releases.Publication", "published_by"),
        ("releases.ShellRelease", "published_by"),
    }
    signed = {(each.model._meta.label, each.column) for each in SIGNED_BY_EMAIL}
    assert sorted(found - signed - impersonal) == []
    assert impersonal | signed <= found


@pytest.mark.django_db
def test_the_event_names_nobody(user: User, by: Actor, now: datetime) -> None:
    before = set(AuditEvent.objects.values_list("pk", flat=True))
    erase(user, by, now)
    events = AuditEvent.objects.exclude(pk__in=before)
    assert {event.action for event in events} == {"user:erased", "user:tokens_revoked"}
    for event in events:
        assert EMAIL not in str(vars(event))
    event = events.get(action="user:erased")
    assert (event.target_id, event.reason, event.actor) == (str(user.pk), "She asked.", by.name)


@pytest.mark.django_db
def test_a_new_person_may_have_the_email(user: User, by: Actor, now: datetime) -> None:
    erase(user, by, now)
    again = add_user(email=EMAIL, client=user.client, by=by, now=now)
    assert again.pk != user.pk
    erase(again, by, now)
    assert User.objects.filter(email__endswith="@erased.invalid").count() == 2


@pytest.mark.django_db
def test_an_erasure_cannot_be_undone(
    user: User, organisation: Client, by: Actor, now: datetime, signing_key: None
) -> None:
    erase(user, by, now)
    user.refresh_from_db()
    why = {"user_id": user.pk, "by": by, "now": now}
    for attempt in (
        lambda: enable(reason="x", **why),
        lambda: make_operator(roles={"support"}, reason="x", **why),
        lambda: set_password(password="another good horse battery", **why),
        lambda: change_email(email=EMAIL, reason="x", **why),
        lambda: move_user(client=None, reason="x", **why),
        lambda: erase_user(email=user.email, reason="x", **why),
    ):
        with pytest.raises(Erased):
            attempt()
    with pytest.raises(InvalidRequest):
        request_link(kind=PasswordLink.Kind.RESET, **why)
    for email in (EMAIL, user.email):
        with pytest.raises(InvalidCredentials):
            sign_in(email=email, password=PASSWORD, device=Device(), now=now)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        {"is_active": True},
        {"is_staff": True},
        {"is_superuser": True},
        {"email": EMAIL},
        {"password": "argon2$x"},
        {"invited_at": datetime.fromisoformat("2026-01-01T00:00:00Z")},
        {"last_login": datetime.fromisoformat("2026-01-01T00:00:00Z")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_database_keeps_the_erased_erased(
    user: User, by: Actor, now: datetime, change: dict[str, Any]
) -> None:
    erase(user, by, now)
    with pytest.raises(IntegrityError, match="user_erased_is_nobody"), transaction.atomic():
        User.objects.filter(pk=user.pk).update(**change)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"email": "bert@acme.test"}, "/email"),
        ({"email": ""}, "/email"),
        ({"reason": " "}, "/reason"),
        ({"reason": "ADA@acme.test asked."}, "/reason"),
    ],
)
def test_a_slip_erases_nobody(
    user: User, by: Actor, now: datetime, given: dict[str, str], pointer: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        erase(user, by, now, **given)
    assert [fault.pointer for fault in refused.value.errors] == [pointer]
    user.refresh_from_db()
    assert (user.email, user.erased_at) == (EMAIL, None)


@pytest.mark.django_db
def test_the_email_may_be_typed_in_any_case(user: User, by: Actor, now: datetime) -> None:
    erase(user, by, now, email=" Ada@ACME.test ")
    user.refresh_from_db()
    assert user.erased_at == now


@pytest.mark.django_db
def test_nobody_erases_himself(user: User, now: datetime) -> None:
    with pytest.raises(NotYourself):
        erase(user, Actor(name=EMAIL, id=user.pk), now)


@pytest.mark.django_db
def test_an_operator_loses_every_right(operator: User, by: Actor, now: datetime) -> None:
    User.objects.create_superuser("second@shell.test")
    operator.user_permissions.add(Permission.objects.all()[0])
    erase(operator, by, now, email=operator.email)
    operator.refresh_from_db()
    assert not operator.is_staff
    assert not operator.is_superuser
    assert not operator.user_permissions.exists()
    assert not operator.groups.exists()


@pytest.mark.django_db
def test_their_session_of_the_console_has_ended_and_names_nobody(
    operator: User, console: Browser, by: Actor, now: datetime
) -> None:
    assert console.get("/admin/").status_code == 200
    User.objects.create_superuser("second@shell.test")
    erase(operator, by, now, email=operator.email)
    assert operator.email not in str(PageSession.objects.get().get_decoded())
    # The row of the person may get any values, except for the password.
    with without_triggers():
        User.objects.filter(pk=operator.pk).update(
            erased_at=None, is_active=True, is_staff=True, is_superuser=True
        )
    assert console.get("/admin/").status_code == 302
    key = row_key(console.cookies["__Host-sessionid"].value)
    assert not PageSession.objects.filter(pk=key).exists()


@pytest.mark.django_db
def test_mail_to_others_is_sent_all_the_same(user: User, by: Actor, now: datetime) -> None:
    other = add_user(email="bert@acme.test", client=user.client, by=by, now=now)
    request_link(user_id=other.pk, kind=PasswordLink.Kind.INVITATION, by=by, now=now)
    request_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, by=by, now=now)
    erase(user, by, now)
    with connection.cursor() as cursor:
        cursor.execute("SELECT args->>'user_id' FROM procrastinate_jobs WHERE status = 'todo'")
        assert cursor.fetchall() == [(str(other.pk),)]


def test_every_row_that_would_go_with_a_person_goes_when_they_are_erased() -> None:
    """Whatever else comes to refer to people: it is named here, or it would stay behind the erased."""
    removed = {rows.model for rows in _belongings(User().pk).values()}
    for model in apps.get_models():
        if model is LogEntry:
            # Django's own log of edits, which nothing writes (tests/console/test_every_act.py).
            continue
        for field in model._meta.get_fields():
            refers = isinstance(field, models.ForeignKey) and field.related_model is User
            if not refers or field.remote_field.on_delete is not models.CASCADE:
                continue
            by_another = any(
                isinstance(each, models.ForeignKey)
                and each.remote_field.on_delete is models.CASCADE
                and each.related_model in removed
                for each in model._meta.get_fields()
            )
            many_to_many = model._meta.auto_created
            assert model in removed or by_another or many_to_many, model.__name__


@pytest.mark.django_db
def test_the_command_lists_the_rows_and_asks_for_the_email(
    user: User, pair: TokenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*args: str) -> str:
        out = StringIO()
        call_command("erase_user", EMAIL, *args, stdout=out)
        return out.getvalue()

    assert "would be removed: email and password, refresh tokens 1, sessions 1" in run("--dry-run")
    assert Session.objects.exists()
    with pytest.raises(CommandError, match="say why"):
        run()
    monkeypatch.setattr("builtins.input", lambda question: "somebody@else.test")
    with pytest.raises(CommandError, match="not the email"):
        run("--reason", "She asked.")
    assert Session.objects.exists()
    assert "removed: email and password, refresh tokens 1" in run(
        "--reason", "She asked.", "--confirm", EMAIL
    )
    assert not RefreshToken.objects.exists()
    assert AuditEvent.objects.get(action="user:erased").actor == "manage.py erase_user"
    with pytest.raises(CommandError, match="no user"):
        run("--dry-run")


@pytest.mark.django_db(transaction=True)
def test_a_sign_in_that_races_leaves_nothing_alive(
    organisation: Client, signing_key: None, by: Actor, now: datetime
) -> None:
    for _ in range(3):
        user = User.objects.create_user(EMAIL, PASSWORD, client=organisation)

        def enter() -> object:
            return sign_in(email=EMAIL, password=PASSWORD, device=Device(), now=now)

        def leave(user: User = user) -> object:
            return erase(user, by, now)

        results = race(enter, leave, enter)
        assert not isinstance(results[1], Exception)
        assert not Session.objects.exists()
        assert not RefreshToken.objects.exists()
