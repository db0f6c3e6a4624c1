"""A database, secrets and tokens made by the releases before go on working after an upgrade.

``upgrade/704cb02.sql.gz`` is a dump of a demo database of that release, in which a person has signed in, called the
model, sent telemetry, connected a third party and published; ``704cb02.json`` has the tokens and secrets of that demo.
In that of 1f2697d a person has signed in and called the model, and a call has an attempt that was left.
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
from uuid import UUID

import jwt
import psycopg
import pytest
import requests
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from accounts.models import AuditEvent, Operator, RefreshToken, User
from accounts.people.email_forms import fill_email_forms, one_mailbox_is_one_person
from licensing.models import Plan
from llmproxy.models import Provider as ProviderRow
from releases.models import ShellRelease
from telemetry.models import Event
from tests.served.browser import Browser
from tests.served.corpus import Provider
from tests.served.database import Database, new_database
from tests.served.service import Service, manage, running_service
from tests.served.shell import PATIENCE, Shell
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
    # Releases before 213cb5a1 may lack these.
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
    with upgraded_from("704cb02", django_db_blocker, tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module")
def latest(
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
        if release == "704cb02":
            add_operators(database.url)
        elif release == "1f2697d":
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


def add_operators(url: str) -> None:
    """Adds operators as a shell of that release could make them, and a group with the name of a later role."""
    with psycopg.connect(url, autocommit=True) as connection:
        for email, superuser, client in (
            ("second@demo.test", True, None),
            ("of-a-client@demo.test", True, "Demo Company"),
            ("helper@demo.test", False, None),
            ("reader@demo.test", False, None),
        ):
            connection.execute(
                "INSERT INTO accounts_user"
                " (id, email, password, client_id, is_active, is_staff, is_superuser, epoch, created_at)"
                " SELECT gen_random_uuid(), %s, '!', (SELECT id FROM accounts_client WHERE name = %s),"
                " true, true, %s, 0, now()",
                [email, client, superuser],
            )
        connection.execute("INSERT INTO auth_group (name) VALUES ('support')")
        connection.execute(
            "INSERT INTO accounts_user_groups (user_id, group_id) SELECT u.id, g.id"
            " FROM accounts_user u, auth_group g WHERE u.email = 'helper@demo.test'"
        )
        connection.execute(
            "INSERT INTO accounts_user_user_permissions (user_id, permission_id) SELECT u.id, p.id"
            " FROM accounts_user u, auth_permission p"
            " WHERE (u.email, p.codename) IN"
            " (('helper@demo.test', 'change_user'), ('reader@demo.test', 'view_user'))"
        )


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


def test_people_of_the_latest_release_sign_in_before_and_after_their_emails_have_a_form(
    latest: Upgraded,
) -> None:
    def enters(email: str, form: str) -> bool:
        password = normalize(form, TYPED)  # type: ignore[arg-type]
        return Shell(latest.service.url).login(email, password).status_code == 200

    emails = {"lea@bücher.example", "lea@xn--bcher-kva.example", "bob@acme.test"}
    for email in emails:
        assert enters(email, "NFC")
        assert enters(email.upper(), "NFD")
    decomposed = normalize("NFD", "lea@bücher.example")
    assert not enters(decomposed, "NFC")
    with latest.database.rows():
        assert set(User.objects.filter(email_form=None).values_list("email", flat=True)) >= emails
        assert fill_email_forms() > 0
        assert fill_email_forms() == 0
        unfilled = User.objects.filter(email_form=None).values_list("email", flat=True)
        assert list(unfilled) == ["lea@xn--bcher-kva.example"]
    assert enters(decomposed, "NFC")
    assert all(enters(email, "NFC") for email in emails)
    with latest.database.rows():
        (warning,) = one_mailbox_is_one_person(None, ["default"])
        assert warning.msg.startswith("Two people have one mailbox: lea@bücher.example")
        assert set(User.objects.filter(email__in=emails).values_list("password")) == {(HASHED,)}


def test_superusers_become_owners_and_other_operators_get_the_role_that_fits(
    upgraded: Upgraded,
) -> None:
    with upgraded.database.rows():
        owners = {"operator@demo.test", "second@demo.test", "of-a-client@demo.test"}
        assert set(User.objects.owners().values_list("email", flat=True)) == owners
        for email in owners:
            owner = User.objects.get(email=email)
            assert (owner.roles, owner.is_superuser) == ({"owner"}, True)
            assert owner.groups.get().name == "owner"
        helper = User.objects.get(email="helper@demo.test")
        assert (helper.roles, helper.groups.get().name) == (set(), "support (before roles)")
        assert helper.user_permissions.get().codename == "change_user"
        assert not helper.has_perm("accounts.change_user")
        assert User.objects.get(email="reader@demo.test").roles == {"auditor"}
        events = AuditEvent.objects.filter(actor="manage.py migrate", action="user:operator_set")
        assert {each.target for each in events} == {"helper@demo.test", "reader@demo.test"}
        # The row of an operator who belongs to a client, which nobody new can be, stays changeable.
        of_a_client = User.objects.get(email="of-a-client@demo.test")
        of_a_client.save()
        assert of_a_client.is_owner
        assert Operator.objects.count() == len(owners) + 2


def test_tokens_of_the_latest_release_go_on(latest: Upgraded) -> None:
    shell, keyed = Shell(latest.service.url), latest.before["keyed"]
    unused = {"refresh": latest.before["unused"]["refresh"], "device_fp": "upgrade"}
    assert shell.post("/v1/auth/refresh", unused).status_code == 200
    answer = shell.refresh(keyed["refresh"], key=keyed["key"])
    assert (answer.status_code, answer.json()["refresh"]) == (200, keyed["successor"])


def test_the_ledger_of_the_latest_release_is_kept_with_its_left_attempt(latest: Upgraded) -> None:
    recorded = latest.before["usage"]
    with latest.database.rows():
        settled = UsageRecord.objects.filter(session_id__isnull=False).order_by("opened_at")
        records = list(settled[: recorded["calls"]])
        assert sum(each.input_tokens for each in records) == recorded["input"]
        assert sum(each.output_tokens for each in records) == recorded["output"]
        attempts = [attempt for each in attempts_of(records).values() for attempt in each]
    assert [(each.provider, each.cost, each.is_reported) for each in attempts] == [
        ("first", 50, False)
    ]
    shell = latest.signed_in()
    assert shell.get("/v1/license/status").json()["status"] == "active"
    assert shell.complete("hello").status_code == 200
    with latest.database.rows():
        newest = UsageRecord.objects.order_by("-opened_at")[0]
        assert (newest.state, newest.abandoned, newest.is_implausible) == ("settled", None, False)


@pytest.mark.parametrize("release", ["upgraded", "latest"])
def test_daily_usage_is_the_ledger_of_the_release_before(
    release: str, request: pytest.FixtureRequest
) -> None:
    found: Upgraded = request.getfixturevalue(release)
    with found.database.rows():
        count_days(now=timezone.now())
        assert ledger()
        assert counted() == ledger()


def test_a_provider_of_the_latest_release_fetches_on_where_it_is_public(latest: Upgraded) -> None:
    with latest.database.rows():
        said = dict(ProviderRow.objects.values_list("name", "fetches"))
    assert (said["public"], said["own"], said["default"]) == ("before", "address", "address")


def test_an_unused_refresh_token_is_exchanged(upgraded: Upgraded) -> None:
    shell = Shell(upgraded.service.url)
    answer = shell.post(
        "/v1/auth/refresh",
        {"refresh": upgraded.before["unused"]["refresh"], "device_fp": "upgrade"},
    )
    assert answer.status_code == 200, answer.text


def test_a_keyed_retry_gets_the_successor_that_was_made_before_the_upgrade(
    upgraded: Upgraded,
) -> None:
    keyed = upgraded.before["keyed"]
    answer = Shell(upgraded.service.url).refresh(keyed["refresh"], key=keyed["key"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["refresh"] == keyed["successor"]


def test_a_token_that_was_replaced_before_the_upgrade_is_reuse(upgraded: Upgraded) -> None:
    replaced, shell = upgraded.before["replaced"], Shell(upgraded.service.url)
    assert shell.refresh(replaced["refresh"]).status_code == 401
    assert shell.refresh(replaced["successor"]).status_code == 401
    with upgraded.database.rows():
        assert RefreshToken.objects.filter(revoked_at__isnull=False).exists()


def test_an_access_token_is_verified_by_the_key_that_signed_it(upgraded: Upgraded) -> None:
    access = upgraded.before["unused"]["access"]
    keys = requests.get(f"{upgraded.service.url}/.well-known/jwks.json", timeout=PATIENCE).json()
    [key] = [
        each for each in keys["keys"] if each["kid"] == jwt.get_unverified_header(access)["kid"]
    ]
    # Its hour is over: what matters is that the key is still published.
    options = {"verify_exp": False}
    claims = jwt.decode(access, jwt.PyJWK(key).key, algorithms=["RS256"], options=options)
    assert claims["plan"] == "Starter"


def test_a_password_a_licence_and_a_model_call_work(upgraded: Upgraded) -> None:
    shell = upgraded.signed_in()
    assert shell.get("/v1/license/status").json()["status"] == "active"
    assert shell.complete("hello").status_code == 200


def test_new_clients_get_the_plan_of_the_first_release(upgraded: Upgraded) -> None:
    with upgraded.database.rows():
        assert Plan.objects.get(is_default=True).name == "Starter"


def test_a_plan_of_before_has_personal_keys_once_an_operator_allows_them(
    upgraded: Upgraded,
) -> None:
    shell, editor = upgraded.signed_in(), {"name": "Editor"}
    refused = shell.post("/v1/keys", editor)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_entitled")
    models = [each["id"] for each in shell.get("/v1/llm/models").json()["data"]]
    assert models
    with upgraded.database.rows():
        Plan.objects.update(allows_keys=True)
    key = shell.post("/v1/keys", editor).json()["key"]
    by_key = {"Authorization": f"Bearer {key}"}
    address = f"{upgraded.service.url}/v1/llm/models"
    listed = requests.get(address, headers=by_key, timeout=PATIENCE).json()["data"]
    assert [each["id"] for each in listed] == models


def test_the_ledger_telemetry_and_audit_are_kept(upgraded: Upgraded) -> None:
    recorded = upgraded.before["usage"]
    with upgraded.database.rows():
        settled = UsageRecord.objects.filter(session_id__isnull=False).order_by("opened_at")
        records = settled[: recorded["calls"]]
        assert sum(each.input_tokens for each in records) == recorded["input"]
        assert sum(each.output_tokens for each in records) == recorded["output"]
        assert Event.objects.get().event_id == UUID(upgraded.before["event"])
        assert AuditEvent.objects.filter(actor="manage.py seed_demo").exists()


def test_a_connection_is_decrypted(upgraded: Upgraded) -> None:
    answer = upgraded.signed_in().post("/v1/connections/local/token", {})
    assert answer.status_code == 200, answer.text
    assert answer.json()["access_token"]


def test_a_published_release_is_served_with_its_signature(upgraded: Upgraded) -> None:
    address = f"{upgraded.service.url}/v1/updates/manifest?ch=stable&os=darwin"
    answer = requests.get(address, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["version"]) == (200, "1.0.0")
    with upgraded.database.rows():
        assert ShellRelease.objects.get().version == "1.0.0"


def test_an_operator_has_to_sign_in_to_the_console_again(upgraded: Upgraded) -> None:
    answer = requests.get(
        f"{upgraded.service.url}/admin/",
        cookies={"sessionid": upgraded.before["operator_cookie"]},
        timeout=PATIENCE,
        allow_redirects=False,
    )
    # Its row has the key itself as its name; rows are found by a hash of the key now.
    assert answer.status_code == 302
    assert "/admin/login/" in answer.headers["Location"]


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


def test_the_audit_log_is_pruned_by_a_function_that_a_superuser_made(latest: Upgraded) -> None:
    """It had a setting that only a superuser may give it, and belongs to the tables' owner, who is none."""
    with psycopg.connect(latest.database.service_url) as connection:
        found = connection.execute(
            "SELECT proconfig, rolname, rolsuper FROM pg_proc JOIN pg_roles AS owner ON owner.oid = proowner"
            " WHERE proname = 'accounts_prune_audit'"
        ).fetchall()
        assert found == [(["search_path=pg_catalog, public, pg_temp"], "shell", False)]
        connection.execute("SELECT * FROM accounts_prune_audit('-infinity', 'infinity', 1)")
        assert connection.execute(
            "SELECT current_setting('accounts.pruning_audit', true)"
        ).fetchone() == ("",)
