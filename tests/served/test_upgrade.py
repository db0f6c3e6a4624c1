"""A database, secrets and tokens made by the releases before go on working after an upgrade.

``upgrade/1f2697d.sql.gz`` is a dump of a demo database of that release, in which a person has signed in and called the
model, and a call has an attempt that was left; ``1f2697d.json`` has the tokens and secrets of that demo.
"""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unicodedata import normalize

import psycopg
import pytest
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from accounts.models import User
from accounts.people.email_forms import fill_email_forms, one_mailbox_is_one_person
from accounts.sessions.devices import devices_held
from licensing.models import Licence, Plan
from llmproxy.models import Provider as ProviderRow
from tests.served.browser import Browser
from tests.served.corpus import Provider
from tests.served.database import Database, new_database
from tests.served.service import Service, manage, running_service
from tests.served.shell import Shell
from tests.tools.owners import as_superuser, hand_over
from tests.usage.test_daily import counted, ledger
from usage.models import UsageRecord
from usage.spending.daily import count_days
from usage.spending.statements import attempts_of

pytestmark = pytest.mark.full

BEFORE = Path(__file__).parent / "upgrade"
# Times that end a token or a session; everything else may be long ago.
ENDING = {
    "accounts_session": ("started_at", "last_used_at", "expires_at", "ended_at"),
    "accounts_refreshtoken": ("issued_at", "expires_at", "revoked_at", "replaced_at"),
    "accounts_signingkey": ("published_at", "signs_from", "superseded_at", "revoked_at"),
    "accounts_connection": ("connected_at", "refreshed_at", "expires_at"),
    "django_session": ("expire_date",),
    "accounts_consolesession": ("started_at", "last_used_at", "ended_at"),
    "accounts_passwordlink": ("made_at", "expires_at", "used_at"),
    "llmproxy_personalkey": ("created_at", "expires_at", "last_used_at", "ended_at"),
}

# Hashed by 213cb5a1 as it was typed there, with each accent after its letter.
TYPED = normalize("NFD", "Crème-Brûlée über Äpfel 47")
HASHED = (
    "argon2$argon2id$v=19$m=19456,t=2,p=1$YXNJdFdhc1R5cGVkQmVmb3JlMjAyNg"
    "$w1phjuwhKY4bils+/2zmVFyi5pDaf2shFvkSQcgpau8"
)


@dataclass
class Upgraded:
    service: Service
    folder: Path
    given: dict[str, str]
    database: Database
    before: dict[str, Any]

    def signed_in(self) -> Shell:
        shell = Shell(self.service.url)
        demo = self.before["demo"]
        assert shell.login(demo["email"], demo["password"]).status_code == 200
        return shell


@pytest.fixture(scope="module")
def upgraded(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgraded]:
    with upgraded_from("1f2697d", django_db_blocker, tmp_path_factory) as found:
        yield found


@contextmanager
def upgraded_from(
    release: str,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
    **more: str,
) -> Iterator[Upgraded]:
    folder = tmp_path_factory.mktemp("upgraded")
    before = json.loads((BEFORE / f"{release}.json").read_text())
    with new_database(django_db_blocker.unblock) as database, Provider.running() as provider:
        restore(database.url, release, datetime.fromisoformat(before["recorded_at"]))
        if release == "1f2697d":
            add_providers(database.url)
            add_people(database.url)
        paths = {"authorization": "authorization", "token": "token", "revocation": "revoke"}
        endpoints = {f"{name}_endpoint": f"{provider}/{path}" for name, path in paths.items()}
        third_party = {"client_id": "upgrade", "client_secret": "secret", **endpoints}
        environ = {
            **before["environ"],
            "DATABASE_URL": database.service_url,
            "DATABASE_OWNER_URL": database.url,
            "EMAIL_URL": (folder / "mail").as_uri(),
            "LLM_BASE_URL": provider,
            "OAUTH_PROVIDERS": json.dumps({"local": third_party}),
            **more,
        }
        manage({**os.environ, **environ}, "migrate", "--no-input")
        manage({**os.environ, **environ}, "split_database_roles")
        with running_service(folder, environ) as service:
            yield Upgraded(service, folder, environ, database, before)


def restore(url: str, release: str, recorded_at: datetime) -> None:
    """Fills an empty database from the dump, as if it had been made just now, and gives it to its owner.

    Those releases could be installed by a superuser alone, and only a superuser can restore them.
    """
    since = datetime.now(UTC) - recorded_at
    with psycopg.connect(as_superuser(url), autocommit=True) as connection:
        connection.execute(gzip.decompress((BEFORE / f"{release}.sql.gz").read_bytes()))
        hand_over(connection)
        connection.execute("SET search_path TO public")
        for table, columns in ENDING.items():
            there = connection.execute("SELECT to_regclass(%s)", [table]).fetchone()
            if there == (None,):
                continue
            later = ", ".join(f"{column} = {column} + %(since)s" for column in columns)
            connection.execute(f"UPDATE {table} SET {later}", {"since": since})


def add_providers(url: str) -> None:
    """Adds providers as an owner of that release could, at a public address and at a private one."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, address in (("public", "https://llm.example/v1"), ("own", "https://10.0.0.7/v1")):
            connection.execute(
                "INSERT INTO llmproxy_provider (name, base_url, is_on, created_at)"
                " VALUES (%s, %s, true, now())",
                [name, address],
            )


def add_people(url: str) -> None:
    """Adds people as 213cb5a1 could: two of them with one mailbox, and one whose email has no other writing."""
    with psycopg.connect(url, autocommit=True) as connection:
        for day, email in enumerate(
            ("lea@bücher.example", "lea@xn--bcher-kva.example", "bob@acme.test"), start=1
        ):
            connection.execute(
                "INSERT INTO accounts_user"
                " (id, email, password, client_id, is_active, is_staff, is_superuser, epoch, created_at)"
                " SELECT gen_random_uuid(), %s, %s, id, true, false, false, 0, %s"
                " FROM accounts_client WHERE name = 'Demo Company'",
                [email, HASHED, datetime(2026, 1, day, tzinfo=UTC)],
            )


def test_people_of_that_release_sign_in_before_and_after_their_emails_have_a_form(
    upgraded: Upgraded,
) -> None:
    def enters(email: str, form: str) -> bool:
        password = normalize(form, TYPED)  # type: ignore[arg-type]
        return Shell(upgraded.service.url).login(email, password).status_code == 200

    emails = {"lea@bücher.example", "lea@xn--bcher-kva.example", "bob@acme.test"}
    for email in emails:
        assert enters(email, "NFC")
        assert enters(email.upper(), "NFD")
    decomposed = normalize("NFD", "lea@bücher.example")
    assert not enters(decomposed, "NFC")
    with upgraded.database.rows():
        assert set(User.objects.filter(email_form=None).values_list("email", flat=True)) >= emails
        assert fill_email_forms() > 0
        assert fill_email_forms() == 0
        unfilled = User.objects.filter(email_form=None).values_list("email", flat=True)
        assert list(unfilled) == ["lea@xn--bcher-kva.example"]
    assert enters(decomposed, "NFC")
    assert all(enters(email, "NFC") for email in emails)
    with upgraded.database.rows():
        (warning,) = one_mailbox_is_one_person(None, ["default"])
        assert warning.msg.startswith("Two people have one mailbox: lea@bücher.example")
        assert set(User.objects.filter(email__in=emails).values_list("password")) == {(HASHED,)}


def test_tokens_of_that_release_go_on(upgraded: Upgraded) -> None:
    shell, keyed = Shell(upgraded.service.url), upgraded.before["keyed"]
    unused = {"refresh": upgraded.before["unused"]["refresh"], "device_fp": "upgrade"}
    assert shell.post("/v1/auth/refresh", unused).status_code == 200
    answer = shell.refresh(keyed["refresh"], key=keyed["key"])
    assert (answer.status_code, answer.json()["refresh"]) == (200, keyed["successor"])


def test_sessions_of_that_release_go_on_under_a_limit_of_devices(upgraded: Upgraded) -> None:
    """They have no fingerprint that a shell of before would send again: none is locked out, and no number grows."""
    first, second = upgraded.signed_in(), upgraded.signed_in()
    with upgraded.database.rows():
        user = User.objects.get(email=upgraded.before["demo"]["email"])
        before = len(devices_held(user, at=timezone.now()))
        Licence.objects.filter(client=user.client_id).update(devices=1)
    try:
        for shell in (first, second):
            assert shell.refresh().status_code == 200
        status = upgraded.signed_in().get("/v1/license/status").json()
        assert (status["status"], status["devices"]) == ("active", 1)
        with upgraded.database.rows():
            assert len(devices_held(user, at=timezone.now())) == before > 1
    finally:
        with upgraded.database.rows():
            Licence.objects.update(devices=None)


def test_the_ledger_of_that_release_is_kept_with_its_left_attempt(upgraded: Upgraded) -> None:
    recorded = upgraded.before["usage"]
    with upgraded.database.rows():
        settled = UsageRecord.objects.filter(session_id__isnull=False).order_by("opened_at")
        records = list(settled[: recorded["calls"]])
        assert sum(each.input_tokens for each in records) == recorded["input"]
        assert sum(each.output_tokens for each in records) == recorded["output"]
        attempts = [attempt for each in attempts_of(records).values() for attempt in each]
    assert [(each.provider, each.cost, each.is_reported) for each in attempts] == [
        ("first", 50, False)
    ]
    shell = upgraded.signed_in()
    assert shell.get("/v1/license/status").json()["status"] == "active"
    assert shell.complete("hello").status_code == 200
    with upgraded.database.rows():
        newest = UsageRecord.objects.order_by("-opened_at")[0]
        assert (newest.state, newest.abandoned, newest.is_implausible) == ("settled", None, False)


def test_daily_usage_is_the_ledger_of_the_release_before(upgraded: Upgraded) -> None:
    with upgraded.database.rows():
        count_days(now=timezone.now())
        assert ledger()
        assert counted() == ledger()


def test_a_provider_of_that_release_fetches_on_where_it_is_public(upgraded: Upgraded) -> None:
    with upgraded.database.rows():
        said = dict(ProviderRow.objects.values_list("name", "fetches"))
    assert (said["public"], said["own"], said["default"]) == ("before", "address", "address")


def test_new_clients_get_the_plan_of_the_first_release(upgraded: Upgraded) -> None:
    with upgraded.database.rows():
        assert Plan.objects.get(is_default=True).name == "Starter"


def test_operators_from_before_enter_with_a_password_until_a_second_factor_is_required(
    upgraded: Upgraded,
) -> None:
    demo = upgraded.before["demo"]
    given = {"username": demo["operator_email"], "password": demo["operator_password"]}

    def entered(url: str, page: str) -> str:
        browser = Browser(url)
        browser.submit(f"/admin/login/?next={page}", **given)
        return browser.get("/admin/").url.removeprefix(url)

    assert upgraded.service.environ["OPERATOR_SECOND_FACTOR"] == "off"
    assert entered(upgraded.service.url, "/admin/") == "/admin/"
    required = {**upgraded.given, "OPERATOR_SECOND_FACTOR": "required"}
    with running_service(upgraded.folder, required) as service:
        page = "/admin/second-factor/set-up/"
        assert entered(service.url, page).startswith(page)
        assert len(service.manage("operator_setup_code", demo["operator_email"]).strip()) == 28


def test_the_audit_log_is_pruned_by_a_function_that_a_superuser_made(upgraded: Upgraded) -> None:
    """It had a setting that only a superuser may give it, and belongs to the tables' owner, who is none."""
    with psycopg.connect(upgraded.database.service_url) as connection:
        found = connection.execute(
            "SELECT proconfig, rolname, rolsuper FROM pg_proc JOIN pg_roles AS owner ON owner.oid = proowner"
            " WHERE proname = 'accounts_prune_audit'"
        ).fetchall()
        assert found == [(["search_path=pg_catalog, public, pg_temp"], "shell", False)]
        connection.execute("SELECT * FROM accounts_prune_audit('-infinity', 'infinity', 1)")
        assert connection.execute(
            "SELECT current_setting('accounts.pruning_audit', true)"
        ).fetchone() == ("",)
