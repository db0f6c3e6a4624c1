"""Shared fixtures: people of a client, their tokens, and a clock of the test's own."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from threading import current_thread
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core.cache import cache as shared_cache
from django.core.management.commands import flush as flushing
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations
from django.test import Client as DjangoClient
from django.test import override_settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from playwright.sync_api import expect
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.factors import console_sessions
from accounts.factors.gate import SESSION
from accounts.hashers import GatedArgon2Hasher
from accounts.keys import key_ring, signing_keys
from accounts.keys.key_ring import ring
from accounts.models import Client, User
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from config.composition.attention import items
from config.platform.edge import health
from config.platform.edge.ratelimits import servers
from licensing.licences import create_client
from licensing.models import Plan
from llmproxy.calls import outbox, watch
from llmproxy.catalogue import choosing
from tests.browsers import LONGEST
from tests.served.database import new_database
from tests.tools.owners import as_superuser
from tests.tools.postgres import MIGRATED
from tests.triggers import SKIP, let_triggers_be_skipped

FROM_MIGRATIONS = {"django_content_type", "auth_permission"}
PASSWORD = "correct horse battery staple"
expect.set_options(timeout=LONGEST)
# The same examples each time, however slow the machine: the library's own deadline is 200 ms for each.
hypothesis_settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("same")


class SecureClient(APIClient):
    """Asks over https, because the BASE_URL of the tests is an https one."""

    def generic(self, *args: Any, **kwargs: Any) -> Any:
        return super().generic(*args, **{**kwargs, "secure": True})


# As sessions of the console name it; the library would choose the first backend, which only decides rights.
SIGNS_IN = "django.contrib.auth.backends.ModelBackend"


class Browser(DjangoClient):
    """A browser on our pages, over https, at an address and in a request that the audit log can be asked for."""

    address = "192.0.2.77"
    request_id = "browser-request-1"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            REMOTE_ADDR=self.address,
            HTTP_ACCEPT="text/html",
            HTTP_X_REQUEST_ID=self.request_id,
            **kwargs,
        )

    def generic(self, *args: Any, **kwargs: Any) -> Any:
        return super().generic(*args, **{**kwargs, "secure": True})

    def force_login(self, user: Any, backend: str | None = SIGNS_IN) -> None:
        super().force_login(user, backend)


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A copy of the database that was migrated already (`tests.tools.kept`), in place of the library's empty one."""
    with new_database(django_db_blocker.unblock, like=MIGRATED) as copy:
        let_triggers_be_skipped(as_superuser(copy.url))
        settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = copy.name
        yield
        watch._calls.clear()
        outbox._outbox = outbox.Outbox()


@pytest.fixture(autouse=True)
def _nothing_left_over(request: pytest.FixtureRequest) -> Iterator[None]:
    """Counters and keys live in the process and the cache; each test starts without those of another."""
    ring.forget()
    choosing._kept.clear()
    items.had_rows.clear()
    yield
    if {"db", "transactional_db"} & set(request.fixturenames):
        shared_cache.clear()


@pytest.fixture(autouse=True, scope="session")
def _tables_are_emptied_by_delete() -> Iterator[None]:
    """Replaces Django's TRUNCATE between tests, which takes thirty times as long on tables of a few rows.

    It skips triggers: those of foreign keys, and the one that keeps the audit log. The rows that name models and
    rights stay, because no test changes them; Django asks for each of them again, which takes longer than a short test.
    """

    def flush(
        self: DatabaseOperations, style: Any, tables: Sequence[str], **kwargs: Any
    ) -> list[str]:
        emptied = sorted({*tables} - FROM_MIGRATIONS)
        deletes = "".join(f"DELETE FROM {self.quote_name(table)};" for table in emptied)
        return [SKIP, f"DO $$BEGIN {deletes} END$$"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", flush)
        patch.setattr(flushing, "emit_post_migrate_signal", lambda *args, **kwargs: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _a_busy_machine_is_no_lost_server() -> Iterator[None]:
    """Gives servers in this process time to answer; tests of servers that hang give them less."""
    with pytest.MonkeyPatch.context() as patch:
        for name in servers.TIMEOUTS:
            patch.setitem(servers.TIMEOUTS, name, 60.0)
        patch.setattr(health, "_database", health.Probe(health._query_database, seconds=60.0))
        yield


class _Unwatched(dict[UUID, Any]):
    """Running calls, of which the watch's own thread sees none."""

    def values(self) -> Any:
        return () if current_thread() is watch._watch else super().values()


@pytest.fixture(autouse=True, scope="session")
def _nobody_watches_calls() -> Iterator[None]:
    """The watch lives on after the test that began it, and cuts calls whose rows another has not committed.

    Tests of the watch do themselves what its thread does every three seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "_calls", _Unwatched())
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_second_factor() -> Iterator[None]:
    """Most tests sign in with the password alone; those of the second factor turn it on."""
    with override_settings(OPERATOR_SECOND_FACTOR=False):
        yield


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def by() -> Actor:
    return Actor(name="operator@shell.test", address="192.0.2.1", request_id="test-request")


@pytest.fixture
def plan(db: None) -> Plan:
    plan, _ = Plan.objects.get_or_create(
        name="Starter",
        defaults={
            "monthly_input_tokens": 500_000,
            "monthly_output_tokens": 100_000,
            "daily_tokens": 100_000,
            "is_default": True,
        },
    )
    return plan


@pytest.fixture
def organisation(plan: Plan, by: Actor, now: datetime) -> Client:
    return create_client(name="Acme", plan=plan, by=by, now=now)


@pytest.fixture
def user(organisation: Client) -> User:
    user = User.objects.create_user("ada@acme.test", client=organisation)
    return _with_password(user)


@pytest.fixture
def operator(db: None) -> User:
    return _with_password(User.objects.create_superuser("operator@shell.test"))


@pytest.fixture
def signing_key(db: None, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that signs, the same in all tests: to make one takes a fifth of a second, and to read it too."""
    monkeypatch.setattr(key_ring, "load_pem_private_key", _same_key_read)
    with monkeypatch.context() as patch:
        patch.setattr(signing_keys, "generate_private_key", _same_private_key)
        signing_keys.rotate_signing_key(publish_ahead=timedelta(0), by=by, now=now)


_same_private_key = cache(signing_keys.generate_private_key)
_same_key_read = cache(key_ring.load_pem_private_key)
_same_hash = cache(make_password)


def _with_password(user: User) -> User:
    """The user with PASSWORD, whose hash is made once: it is slow on purpose."""
    user.password = _same_hash(PASSWORD)
    user.save(update_fields=["password"])
    return user


_same_verdict = cache(GatedArgon2Hasher.verify)


@pytest.fixture
def sign_in_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TokenPair]:
    """Signs in with a hash that is verified once in all tests: that takes 20 ms, most of a short test."""

    def signed_in(**who: Any) -> TokenPair:
        with monkeypatch.context() as patch:
            patch.setattr(GatedArgon2Hasher, "verify", _same_verdict)
            return sign_in(**who)

    return signed_in


@pytest.fixture
def pair(
    user: User, signing_key: None, now: datetime, sign_in_at_once: Callable[..., TokenPair]
) -> TokenPair:
    return sign_in_at_once(email=user.email, password=PASSWORD, device=Device(), now=now)


@pytest.fixture
def api() -> APIClient:
    return SecureClient()


@pytest.fixture
def signed_in(api: APIClient, pair: TokenPair) -> APIClient:
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    return api


@pytest.fixture
def stranger(db: None) -> Browser:
    """A browser in which nobody is signed in."""
    return Browser()


@pytest.fixture
def console(operator: User) -> Browser:
    """A browser in which the operator is signed in to the console."""
    browser = Browser()
    browser.force_login(operator)
    now = datetime.now(UTC)
    begun = console_sessions.start(user=operator, address=browser.address, browser="", now=now)
    session = browser.session
    session[SESSION] = str(begun.pk)
    session.save()
    return browser
