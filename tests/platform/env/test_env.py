"""Readers of the environment: what they take, one report of all that they do not, and secrets that are replaced."""

import base64
import datetime as dt
import os
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path

import pytest
from marshmallow import ValidationError

from config.platform.env import secret_files
from config.platform.env.addresses import (
    database_url,
    network_factors,
    networks,
    origins,
    redis_address,
    replica_url,
    sentry_dsn,
    storage_url,
    syslog_url,
)
from config.platform.env.secret_files import Secret
from config.platform.env.values import (
    days_or_none,
    emails,
    rates,
    second_factor,
    sender,
    stripe_products,
    time_of_day,
)
from config.platform.observability.syslog import Receiver
from releases.setting_readers import CDN_PURGE_FORM, claims, minisign_key, publish_secrets

ROOT = Path(__file__).parents[3]

RAW = b"Ed" + bytes(range(40))
LINE = base64.b64encode(RAW).decode()
FILE = f"untrusted comment: minisign public key 0706050403020100\n{LINE}\n"


FAULTY = {
    "OPERATOR_EMAILS": "ops@shell.test,the operators",
    "DEFAULT_FROM_EMAIL": "nonsense",
    "CORS_ORIGINS": "https://app.shell.test,*",
    "SENTRY_DSN": "garbage",
    "PORT": "99999",
    "ENVIRONMENT_NAME": "garbage\u202e",
    "WEB_WORKERS": "-7",
    "SESSION_DAYS": "9999999999",
    "AUDIT_RETENTION_DAYS": "0",
    "NIGHTLY_AT": "26:30",
    "REFRESH_RACE_SECONDS": "-7",
    "RATE_LIMITS": "auth.ip=1/m,auht.ip=1/m",
    "BASE_URL": "http://[brackets",
    "CACHE_URL": "redis://[brackets",
    "STORAGE_URL": "s3://[brackets",
    "SECRET_KEY_FILE": "/brackets/nothing",
    "ENCRYPTION_KEYS_FILE": "/brackets/nothing",
    "LLM_API_KEY_FILE": sys.executable,
    "PUBLISH_PLATFORMS": "darwin-aarch64,amiga-68k",
    "STRIPE_PRODUCTS": "prod_1,sk_live_garbage",
    "UPDATE_PUBLIC_KEY": LINE,
    "APPS_PUBLIC_KEY": LINE,
}
# The other of the two that must differ.
RIGHT = "UPDATE_PUBLIC_KEY"


@pytest.mark.parametrize(
    "start",
    [
        ["manage.py", "check"],
        ["-m", "gunicorn", "-c", "python:config.gunicorn", "config.wsgi"],
    ],
)
def test_one_report_names_every_faulty_variable_and_repeats_no_value(start: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *start],
        cwd=ROOT,
        env={**os.environ, **FAULTY},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    named = [line.split(":")[0].strip() for line in done.stderr.splitlines() if ": " in line]
    assert named == sorted(each.removesuffix("_FILE") for each in FAULTY.keys() - {RIGHT})
    for value in (
        "the operators",
        "nonsense",
        "garbage",
        "99999",
        "auht",
        "app.",
        "brackets",
        "amiga",
        LINE,
    ):
        assert value not in done.stderr


WEAK = {
    "SECRET_KEY": "k" * 49,
    "PUBLISH_SECRETS": f"{'p' * 32},{'q' * 31}",
    "BASE_URL": "http://weak.example.com",
    "CDN_URL": "http://10.0.0.1",
    "LLM_BASE_URL": "http://weak:11434/v1",
    "STRIPE_API_BASE": "http://weak.example.com",
    "SENTRY_DSN": "http://key@weak.example.com/1",
    "STORAGE_URL": "s3://bucket?endpoint=http://weak:9000",
    "PUBLISH_OIDC_ISSUER": "https://token.actions.githubusercontent.com",
    "PUBLISH_OIDC_AUDIENCE": "https://shell.example.com",
    "PUBLISH_OIDC_CLAIMS": "repository_owner_id=1234",
}


def test_a_weak_environment_stops_the_start_with_every_fault_in_one_report() -> None:
    done = start(WEAK)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line.split(":", 1) for line in done.stderr.splitlines() if ": " in line]
    said = {name.strip(): sentence.strip() for name, sentence in lines}
    assert said.pop("SECRET_KEY") == "Must have at least 50 characters."
    assert said.pop("PUBLISH_SECRETS") == "Each secret must have at least 32 characters."
    assert said.pop("PUBLISH_OIDC_CLAIMS") == (
        "Must name the project: repository, or project_id at GitLab. "
        "Must name the branch or the environment: ref or environment."
    )
    assert set(said) == WEAK.keys() - {
        "SECRET_KEY",
        "PUBLISH_SECRETS",
        "PUBLISH_OIDC_CLAIMS",
        "PUBLISH_OIDC_ISSUER",
        "PUBLISH_OIDC_AUDIENCE",
    }
    assert set(said.values()) == {"Must be https; http is for loopback addresses."}
    for value in ("weak.", ":11434", ":9000", "10.0", "1234", "kkkk", "qqqq"):
        assert value not in done.stderr


def test_the_least_that_is_strong_enough_starts() -> None:
    strong = {
        # As if it were not there.
        "LLM_MEMBERS": "",
        "SECRET_KEY": "k" * 50,
        "PUBLISH_SECRETS": f"{'p' * 32}, {'q' * 32},",
        "BASE_URL": "http://localhost:8000",
        "CDN_URL": "http://127.0.0.1",
        "LLM_BASE_URL": "http://[::1]:11434/v1",
        "PUBLISH_OIDC_ISSUER": "https://token.actions.githubusercontent.com",
        "PUBLISH_OIDC_AUDIENCE": "https://shell.example.com",
        "PUBLISH_OIDC_CLAIMS": "repository=acme/shell,repository_owner_id=1234,ref=refs/heads/main",
    }
    done = start(strong)
    assert done.returncode == 0, done.stderr


def start(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Reads the settings in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; print(settings.VERSION)"],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_replaced_secret_that_is_too_short_changes_nothing(file: Path) -> None:
    secret = Secret(
        "PUBLISH_SECRETS", "p" * 32, str(file), check=publish_secrets, may_be_empty=True
    )
    replace(file, "short")
    assert secret.listed() == ["p" * 32]
    replace(file, "q" * 32)
    assert secret.listed() == ["q" * 32]


def test_a_night_begins_at_a_minute_of_the_day_or_not_at_all() -> None:
    assert time_of_day("02:30") == dt.time(2, 30)
    assert time_of_day("") is None
    for wrong in ("2:30", "24:00", "02:60", "02:30:15", "02:30Z", "at night", "٠٢:٣٠"):
        with pytest.raises(ValidationError):
            time_of_day(wrong)


def test_a_session_lasts_some_days_or_for_ever() -> None:
    assert (days_or_none("180"), days_or_none("none"), days_or_none("None")) == (180, None, None)
    for wrong in ("", "0", "-1", "1.5", "never", "40000", "9" * 5000):
        with pytest.raises(ValidationError):
            days_or_none(wrong)


def test_the_second_factor_is_off_at_loopback_addresses_alone() -> None:
    for local in ("http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost"):
        assert not second_factor("off", address=local)
        assert second_factor("required", address=local)
    for address in ("https://shell.test", "https://10.0.0.1", "https://localhost.shell.test"):
        assert second_factor("required", address=address)
        with pytest.raises(ValidationError):
            second_factor("off", address=address)
    for wrong in ("", "on", "false", "Off"):
        with pytest.raises(ValidationError):
            second_factor(wrong, address="http://localhost")


def test_operators_have_one_email_or_several() -> None:
    assert emails("ops@shell.test, root@mailhost,") == ["ops@shell.test", "root@mailhost"]
    assert emails("Ops <ops@shell.test>") == ["Ops <ops@shell.test>"]
    for wrong in ("", " , ", "ops", "ops@shell.test;on-call@shell.test", "Ops <ops>"):
        with pytest.raises(ValidationError):
            emails(wrong)


def test_mail_comes_from_an_address_with_a_name_or_without() -> None:
    for right in ("shell@shell.test", "Shell <shell@shell.test>", '"Käse, Shell" <s@shell.test>'):
        sender(right)
    sender("M\u00fcller\u00a0GmbH <a@b.test>")
    several, group = "a@shell.test, b@shell.test", "Acme: Shell <a@b.test>"
    for wrong in ("", "Shell", "Shell <shell>", several, group, "S\nB: c <a@b.test>"):
        with pytest.raises(ValidationError):
            sender(wrong)


def test_an_origin_has_a_scheme_and_a_host() -> None:
    several = [
        "https://app.shell.test",
        "tauri://localhost",
        "http://127.0.0.1:1420",
        "HTTPS://[::1]",
        "file://",
    ]
    assert origins(", ".join(several)) == several
    assert origins("") == []
    for wrong in (
        "*",
        "null",
        "tauri://localhost, null",
        "app.shell.test",
        "https://",
        "https://*.shell.test",
        "https://a.test/",
    ):
        with pytest.raises(ValidationError):
            origins(wrong)


def test_the_address_of_error_reports_has_a_key_a_host_and_a_project() -> None:
    for right in ("", "https://key@o1.ingest.sentry.io/42", "http://key@127.0.0.1:9000/1"):
        sentry_dsn(right)
    for wrong in ("x", "https://sentry.io/1", "https://key@sentry.io/x", "https://key@[/1"):
        with pytest.raises(ValidationError):
            sentry_dsn(wrong)


def test_only_known_limits_can_be_overridden() -> None:
    assert rates("auth.ip=2/m, llm.user = 5/2s") == {"auth.ip": "2/m", "llm.user": "5/2s"}
    for wrong in ("auht.ip=1/m", "llm=1/m", "=1/m", "auth.ip=1"):
        with pytest.raises(ValidationError):
            rates(wrong)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1/32"),
        ("::FFFF:192.0.2.9/120", "192.0.2.0/24"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        # Wider than all of IPv4: a network of IPv6.
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("192.0.2.9/24", "192.0.2.0/24"),
    ],
)
def test_an_ipv4_network_written_as_ipv6_counts_as_ipv4(value: str, meant: str) -> None:
    assert networks(f"{value}, 10.0.0.0/8") == [ip_network(meant), ip_network("10.0.0.0/8")]
    assert network_factors(f"{value}=20") == {ip_network(meant): 20}


def test_empty_allowed_hosts_mean_the_host_of_the_service() -> None:
    said = "from django.conf import settings; print(settings.ALLOWED_HOSTS)"
    done = subprocess.run(
        [sys.executable, "-c", said],
        cwd=ROOT,
        env={**os.environ, "ALLOWED_HOSTS": "", "BASE_URL": "https://shell.test"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "['shell.test']"


@pytest.mark.parametrize(
    "value", [LINE, FILE, FILE.strip(), base64.b64encode(FILE.encode()).decode()]
)
def test_an_update_key_is_read_in_each_of_its_forms(value: str) -> None:
    assert minisign_key(value) == RAW


def test_no_update_key_is_none() -> None:
    assert minisign_key("") is None


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        LINE[:-4],
        base64.b64encode(b"ED" + RAW[2:]).decode(),
        f"untrusted comment: a secret key\n{base64.b64encode(bytes(158)).decode()}",
        f"{LINE} {LINE}",
    ],
)
def test_an_invalid_update_key_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        minisign_key(value)
    assert value not in str(refusal.value)


def test_storage_is_a_folder_or_a_bucket() -> None:
    assert storage_url("file:///srv/a%20b") == {"kind": "file", "path": "/srv/a b"}
    assert storage_url("s3://bucket") == {"kind": "s3", "bucket": "bucket", "prefix": ""}
    assert storage_url("s3://b/eu/live?endpoint=http://127.0.0.1:9000&region=eu-west-1") == {
        "kind": "s3",
        "bucket": "b",
        "prefix": "eu/live",
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-west-1",
    }
    assert storage_url("s3://b?endpoint=https%3A%2F%2Fs3.shell.test")["endpoint"] == (
        "https://s3.shell.test"
    )


@pytest.mark.parametrize(
    "value", ["", "/srv", "file://host/srv", "s3://", "s3://b?endpiont=x", "ftp://b"]
)
def test_other_storage_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        storage_url(value)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("", None),
        ("tls://logs.shell.test", Receiver("tls", "logs.shell.test", 6514)),
        ("tcp://logs.shell.test", Receiver("tcp", "logs.shell.test", 601)),
        ("udp://192.0.2.1", Receiver("udp", "192.0.2.1", 514)),
        ("tcp://[2001:db8::1]:5514/", Receiver("tcp", "2001:db8::1", 5514)),
        ("unix:///dev/log", Receiver("unix", path="/dev/log")),
    ],
)
def test_a_syslog_server_is_at_a_host_or_a_socket(value: str, meant: Receiver | None) -> None:
    assert syslog_url(value) == meant


@pytest.mark.parametrize(
    "value",
    [
        "logs.shell.test",
        "https://logs.shell.test",
        "tcp://",
        "tcp://a:99999",
        "tcp://user:hidden@a",
        "tls://a/path",
        "tls://a?b=c",
        "unix://host/dev/log",
        "unix:log",
    ],
)
def test_other_syslog_servers_are_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="Must be tls://host"):
        syslog_url(value)


def test_a_cdn_is_purged_in_one_of_two_ways_or_not_at_all() -> None:
    assert [CDN_PURGE_FORM(each) for each in ("", "purge", "cloudfront:E2ABC")] == [
        "",
        "purge",
        "cloudfront:E2ABC",
    ]
    for wrong in ("cloudfront:", "cloudfront", "cloudfront:a b", "PURGE", "ban"):
        with pytest.raises(ValidationError):
            CDN_PURGE_FORM(wrong)


def test_the_claims_of_an_identity_token_are_read_from_one_line() -> None:
    assert claims(" repository = acme/shell ,repository_owner_id=1, sub=a:b=c,") == {
        "repository": "acme/shell",
        "repository_owner_id": "1",
        "sub": "a:b=c",
    }
    assert claims("") == {}


@pytest.mark.parametrize("value", ["repository", "=acme", "ref=", "ref=a,ref=b"])
def test_ambiguous_claims_are_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        claims(value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("stolen")
    return path


def replace(file: Path, text: str, *, long_ago: bool = True) -> None:
    file.write_text(text)
    if long_ago:
        hour_ago = time.time() - 3600
        os.utime(file, (hour_ago, hour_ago))


def test_an_optional_secret_may_be_emptied_in_its_file(
    file: Path,
) -> None:
    secret = Secret("PUBLISH_SECRETS", "stolen", str(file), may_be_empty=True)
    replace(file, "\n")
    assert secret.listed() == []
    replace(file, "new")
    assert secret.listed() == ["new"]


def test_a_file_in_the_middle_of_being_written_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file was written just now, however long this takes.
    monkeypatch.setattr(secret_files, "REPLACED_WITHIN_NS", 3600 * 10**9)
    secret = Secret("PUBLISH_SECRETS", "stolen", str(file), may_be_empty=True)
    replace(file, "", long_ago=False)
    assert secret() == "stolen"
    replace(file, "new", long_ago=False)
    assert secret() == "new"


def test_a_file_dated_in_the_future_is_read_as_it_is(file: Path) -> None:
    secret = Secret("PUBLISH_SECRETS", "stolen", str(file), may_be_empty=True)
    file.write_text("")
    later = time.time() + 3600
    os.utime(file, (later, later))
    assert secret() == ""


def test_a_required_secret_stays_when_its_file_is_emptied(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = Secret("LLM_API_KEY", "stolen", str(file))
    replace(file, "")
    assert [secret(), secret()] == ["stolen", "stolen"]
    assert caplog.text.count("secret_file_not_usable") == 1


def test_a_cache_is_one_redis_a_sentinel_set_or_a_cluster() -> None:
    for right in (
        "",
        "redis://cache:6379/0",
        "rediss://user:secret@cache",
        "unix:///run/redis.sock?db=1",
        "redis+sentinel://a,b:26380,[::1]:1/main",
        "redis+cluster://user:secret@a,b:7001",
    ):
        redis_address(right)
    for wrong in (
        "memcached://cache",
        "redis://cache:port",
        "redis+sentinel://a,b",
        "redis+sentinel:///main",
        "redis+cluster://a,/",
        "redis+cluster://a/1",
        "redis+cluster://a:port,b",
    ):
        with pytest.raises(ValidationError):
            redis_address(wrong)


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", []),
        ("prod_Nf1", ["prod_Nf1"]),
        (" prod_Nf1 , price_1Mo,plan_x, gold-2024,", ["prod_Nf1", "price_1Mo", "plan_x", "gold-2024"]),
    ],
)  # fmt: skip
def test_products_are_ids(value: str, ids: list[str]) -> None:
    assert stripe_products(value) == ids


@pytest.mark.parametrize(
    "value", ["a b", "sk_live_1", "rk_live_1", "cus_1", "prod_1,sub_1", "prod_ä"]
)
def test_an_invalid_id_of_a_product_is_refused_without_being_repeated(value: str) -> None:
    with pytest.raises(ValidationError) as raised:
        stripe_products(value)
    assert value not in str(raised.value)


# Addresses with several hosts, as tools of clusters print them, and who has reported the like.
CLUSTERS = [
    (
        "postgresql://u:p,w@one:5432,two:5432/shell?target_session_attrs=read-write",
        "timgit/pg-boss#447",
    ),
    ("postgres://one:5432,two:5432/shell?sslmode=require", "hapostgres/pg_auto_failover#875"),
    ("postgresql://u:pw@one,two/shell", "encode/databases#466"),
    ("postgresql://u:pw@one,two:5432,three/shell", ""),
    ("postgresql://u:pw@[::1]:5432,[::2]:5432/shell", ""),
    ("postgresql:///shell?host=one,two", "sqlalchemy/sqlalchemy#4392"),
    ("postgresql://one/shell?host=one&port=5432,5433", ""),
]


@pytest.mark.parametrize(("value", "reported"), CLUSTERS)
@pytest.mark.parametrize("parse", [database_url, replica_url])
def test_a_database_address_names_one_host(parse, value: str, reported: str) -> None:
    with pytest.raises(ValidationError, match=r"^Must name one host") as refused:
        parse(value)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://u,v:p,w@one/shell,s?application_name=a,b",
        "postgresql://shell@%2Ftmp%2Fa%2Cb/shell",
    ],
)
def test_a_comma_that_parts_no_hosts_is_none_of_many(value: str) -> None:
    assert database_url(value)["NAME"].startswith("shell")
