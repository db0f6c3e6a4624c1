"""A world with something in every table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.hashers import make_password
from django.db import connection

from accounts.audit import Actor
from accounts.models import (
    Client,
    Connection,
    ConnectionRevocation,
    RefreshToken,
    Role,
    SigningKey,
    User,
)
from accounts.sessions.sign_in import Device, TokenPair
from config.composition import roles
from config.platform.encryption import encrypt
from config.platform.periods import Period
from licensing.licences import create_client, set_operator_status
from licensing.models import Plan, Standing
from llmproxy.keys.key_text import KeyText
from llmproxy.models import LanguageModel, PersonalKey
from releases.models import Publication, ShellArtifact, ShellChannel, ShellRelease
from telemetry.models import Event
from tests.conftest import PASSWORD
from tests.triggers import without_triggers
from usage.models import Alert, MonthlyUsage, SpendLimit, UsageRecord
from usage.overrides import Allowance, grant_override

KEY = KeyText(bytes(range(200, 232)))
CONNECTION_SECRET = "ya29.a-token-of-a-third-party"
JOB_SECRET = "https://shell.test/account/password/a-link-that-lets-people-in"


@dataclass(frozen=True)
class World:
    """Two clients with people, and everything else once or more."""

    client: Client
    person: User
    people: list[User]
    job_id: int
    secrets: list[str]


@pytest.fixture
def world(
    plan: Plan,
    signing_key: None,
    by: Actor,
    now: datetime,
    sign_in_at_once: Callable[..., TokenPair],
) -> World:
    client = create_client(name="Acme", plan=plan, by=by, now=now)
    create_client(name="Borealis <script>", plan=plan, by=by, now=now)
    people = [
        User.objects.create(
            email=f"person-{number}@acme.test", client=client, password=password_hash()
        )
        for number in range(8)
    ]
    device = Device(fingerprint="mac", address="198.51.100.9")
    pairs = [
        sign_in_at_once(email=each.email, password=PASSWORD, device=device, now=now)
        for each in people[:3]
    ]
    for each in people:
        _use(each, client, now=now)
    in_a_week = now + timedelta(days=7)
    set_operator_status(
        licence_id=client.licence.pk,
        status=Standing.GRACE,
        grace_until=in_a_week,
        reason="The invoice is late.",
        by=by,
        now=now,
    )
    allowance = Allowance(monthly_input_tokens=900_000)
    for each in people[:3]:
        grant_override(
            user_id=each.pk, allowance=allowance, ends_at=in_a_week, reason="More", by=by, now=now
        )
    LanguageModel.objects.create(name="small", provider_name="provider-small").plans.add(plan)
    Alert.objects.create(
        user=people[0],
        kind=Alert.Kind.INPUT,
        period=Period.of(now).month,
        used=450_000,
        cap=500_000,
        noticed_at=now,
        told_at=now,
    )
    today = now.astimezone(UTC).date()
    SpendLimit.objects.create(
        provider="elsewhere", daily=9, day=today, month=today.replace(day=1), counted_at=now
    )
    _connect(people[0], now)
    _make_key(people[0], now)
    _release(now)
    Event.objects.create(
        event_id=uuid4(),
        client_id=client.pk,
        user_id=people[0].pk,
        name="document.opened",
        app="sheets",
        shell_version="1.2.3",
        occurred_at=now,
        received_at=now,
        properties={"ms": 12, "title": "<script>"},
    )
    return World(client, people[0], people, _failed_job(), _secrets(people, pairs))


def make_operator_of_a_client(user: User) -> None:
    """Makes an operator as releases before roles could, without the trigger that refuses this now."""
    with without_triggers():
        User.objects.filter(pk=user.pk).update(is_staff=True)


@pytest.fixture
def operator_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[str]], User]:
    """Makes an operator of every role but owner, all of which have the given rights alone."""

    def operator_of(rights: Iterable[str]) -> User:
        given = frozenset(rights)
        monkeypatch.setattr(roles, "rights_of", lambda role: given)
        user, _ = User.objects.get_or_create(email="helper@shell.test", is_staff=True)
        user.put_roles({*Role.values} - {Role.OWNER})
        return user

    return operator_of


@cache
def password_hash() -> str:
    """Made once, because it takes as long as it should."""
    return make_password(PASSWORD)


def _use(user: User, client: Client, *, now: datetime) -> None:
    period = Period.of(now)
    MonthlyUsage.objects.create(
        user=user,
        period=period.month,
        day=period.day,
        input_used=450_000,
        input_reserved=10,
        output_used=9_000,
        day_used=600,
        output_reserved=10,
    )
    for ended in (True, False):
        UsageRecord.objects.create(
            user=user,
            client_id=client.pk,
            period=period.month,
            day=period.day,
            model="small",
            provider="openai",
            streamed=True,
            reserved_input=10,
            reserved_output=10,
            opened_at=now,
            expires_at=now + timedelta(minutes=11),
            **(
                {
                    "state": "settled",
                    "settled_at": now,
                    "source": "provider",
                    "end": "done",
                    "input_tokens": 400,
                    "output_tokens": 200,
                }
                if ended
                else {}
            ),
        )


def _connect(user: User, now: datetime) -> None:
    """A connection with every secret it can hold, and a revocation that was given up."""
    secret = CONNECTION_SECRET.encode()
    connection = Connection(
        user=user,
        provider="google",
        scopes=["sheets"],
        connected_at=now,
        refreshed_at=now,
        failed_at=now,
        failure="unreachable",
    )
    for column in ("access_token", "refresh_token"):
        setattr(connection, column, encrypt(secret, place=connection.place(column)))
    connection.save()
    revocation = ConnectionRevocation(
        provider="google", user_id=user.pk, asked_at=now, due_at=now, gave_up_at=now
    )
    revocation.tokens = encrypt(secret, place=revocation.place("tokens"))
    revocation.save()


def _make_key(user: User, now: datetime) -> None:
    PersonalKey.objects.create(
        user=user,
        name="Editor <script>",
        hash=KEY.hashed,
        epoch=user.epoch,
        monthly_output_tokens=5_000,
        created_at=now,
        expires_at=now + timedelta(days=30),
    )


def _release(now: datetime) -> None:
    channel, _ = ShellChannel.objects.get_or_create(name="stable")
    release = ShellRelease.objects.create(
        channel=channel,
        version="1.2.3",
        manifest=b'{"version": "1.2.3"}',
        manifest_sha256="0" * 64,
        platforms=["darwin-aarch64"],
        published_at=now,
        published_by="pipeline",
    )
    ShellArtifact.objects.create(
        release=release, platform="darwin-aarch64", url="https://c/a", sha256="0" * 64, size=1
    )
    Publication.objects.create(
        release=release,
        signature=b"untrusted comment",
        signed_at=now,
        published_at=now,
        published_by="pipeline",
        stored_at=now,
    )


def _failed_job() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)"
            " VALUES ('mail', 'mail.send', jsonb_build_object('text', %s::text), 'failed', 8) RETURNING id",
            [JOB_SECRET],
        )
        return int(cursor.fetchone()[0])


def _secrets(people: list[User], pairs: list[Any]) -> list[str]:
    """Returns the secrets that no page may show."""
    found = [
        JOB_SECRET,
        CONNECTION_SECRET,
        PASSWORD,
        KEY.text,
        KEY.hashed.hex(),
        *(text for pair in pairs for text in (pair.access, pair.refresh)),
    ]
    for token in RefreshToken.objects.all():
        found += [token.token_hash, str(token.pk), token.pk.hex]
    for user in people:
        user.refresh_from_db()
        found.append(user.password.rpartition("$")[2])
    sealed = [row.access_token for row in Connection.objects.all()]
    sealed += [revocation.tokens for revocation in ConnectionRevocation.objects.all()]
    sealed += [key.private_key for key in SigningKey.objects.all()]
    for value in sealed:
        found += [bytes(value).decode("latin-1"), bytes(value).hex()]
    return found
