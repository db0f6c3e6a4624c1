"""The environment file: its readers, its values, and which servers a start brings itself."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config.platform.env.addresses import owner_address
from config.platform.env.reading import env
from tests.tools import environment, redis
from tests.tools.beforehand import read_files
from tests.tools.folders import ROOT, claim, held
from tests.tools.run import Servers, ensure_environment
from tests.tools.variables import outside

SERVERS = ("database", "cache", "provider", "cdn")


def write(folder: Path, environ: dict[str, str]) -> tuple[set[str], dict[str, str]]:
    """The names of the servers to start, and the file's values."""
    folder = claim(folder)
    servers = Servers(folder, Path("/tmp/sockets"), environ)
    values = servers.write("127.0.0.1", 8000, environ)
    return {name for name in SERVERS if getattr(servers, name) is not None}, values


def manage(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """manage.py of a copy of the project, beside the ``.local`` in that folder."""
    shutil.copy(ROOT / "manage.py", folder)
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=folder,
        env={**outside(os.environ), "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_only_its_owner_may_read_the_file_whatever_existed_before(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("OLD=1\n")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        environment.write(path, {"NEW": "1"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert environment.read(path) == {"NEW": "1"}


@pytest.mark.parametrize("value", ["x\ny", "a #b", "${HOME}", "'a'", '"a"', " a"])
def test_a_value_that_would_read_differently_is_refused_and_changes_nothing(
    tmp_path: Path, value: str
) -> None:
    environment.write(tmp_path / "env", {"A": "1"})
    with pytest.raises(ValueError, match="B needs quotes"):
        environment.write(tmp_path / "env", {"A": "2", "B": value})
    assert environment.read(tmp_path / "env") == {"A": "1"}


def test_manage_reads_every_value_as_it_was_written(tmp_path: Path) -> None:
    odd = tmp_path / "Odd #name? ü $HOME 'x'"
    values = write(odd, {})[1]
    assert environment.read(odd / "env") == values
    reader = type(env)()
    assert reader.read_env(odd / "env", recurse=False)
    given = {
        name: value for name, value in values.items() if not environment.given(name, os.environ)
    }
    assert {name: reader.str(name) for name in given} == given


def test_variables_of_the_process_go_before_the_file(tmp_path: Path) -> None:
    write(tmp_path / ".local", {})
    ask = (
        "shell",
        "-c",
        "from django.conf import settings; print(settings.BASE_URL, settings.SECRET_KEY)",
    )
    (tmp_path / "key").write_text("k" * 60)
    given = {"BASE_URL": "https://by.hand", "SECRET_KEY_FILE": str(tmp_path / "key")}
    # The file's value is accepted at a loopback address alone.
    given["OPERATOR_SECOND_FACTOR"] = "required"
    done = manage(tmp_path, *ask, **given)
    assert done.stdout.splitlines()[-1] == f"https://by.hand {'k' * 60}", done.stderr


def test_manage_names_a_variable_that_the_file_does_not_keep_and_asks_to_export_it(
    tmp_path: Path,
) -> None:
    write(tmp_path / ".local", {"DATABASE_URL": "postgresql://shell:s3cret@db.example/shell"})
    done = manage(tmp_path, "check")
    assert done.returncode == 1
    assert "DATABASE_URL: Environment variable not set." in done.stderr
    assert "export" in done.stderr
    assert "s3cret" not in done.stderr


def test_a_wrong_variable_of_ones_own_is_named_without_other_advice(tmp_path: Path) -> None:
    write(tmp_path / ".local", {})
    wrong = {
        "LLM_READ_TIMEOUT": "soon",
        "LLM_MEMBERS": "top k",
        "LLM_FETCHES": "no!",
        "LLM_LIMIT_NAME": "n",
    }
    done = manage(tmp_path, "check", **wrong)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-4:] == [
        "  LLM_FETCHES: Must be yes or no.",
        "  LLM_LIMIT_NAME: Must be max_tokens or max_completion_tokens.",
        "  LLM_MEMBERS: Must be names of members, separated by commas.",
        "  LLM_READ_TIMEOUT: Must be a number above 0 to 31536000, such as 60 or 2.5.",
    ]


def test_the_owner_in_the_file_owns_the_tables_of_the_database_in_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "DATABASE_URL_FILE", "DATABASE_OWNER_URL"):
        monkeypatch.delenv(name, raising=False)
    owner = write(tmp_path, {})[1]["DATABASE_OWNER_URL"]
    assert (owner_address(tmp_path / "env"), owner_address()) == (owner, "")
    monkeypatch.setenv("DATABASE_URL_FILE", "of-another-database")
    assert owner_address(tmp_path / "env") == ""
    elsewhere = "postgresql://another:s3cret@db.example/shell"
    monkeypatch.setenv("DATABASE_OWNER_URL", f"{elsewhere}?sslmode=verify-full")
    assert owner_address(tmp_path / "env") == f"{elsewhere}?sslmode=verify-full"
    monkeypatch.setenv("DATABASE_OWNER_URL", elsewhere)
    with pytest.raises(
        SystemExit, match=r"DATABASE_OWNER_URL: .*PLAIN_CONNECTIONS=database"
    ) as told:
        owner_address()
    assert "s3cret" not in str(told.value)
    monkeypatch.setenv("PLAIN_CONNECTIONS", "database")
    assert owner_address() == elsewhere


def test_manage_without_a_local_run_names_every_variable(tmp_path: Path) -> None:
    done = manage(tmp_path, "check")
    assert done.returncode == 1
    assert "SECRET_KEY: Environment variable not set." in done.stderr
    assert ".local" not in done.stderr


def test_a_start_brings_all_servers_by_default(tmp_path: Path) -> None:
    started, values = write(tmp_path, {})
    assert started == {"database", "provider", "cdn"} | ({"cache"} if redis.available() else set())
    assert values == environment.read(tmp_path / "env")
    assert values.keys() >= {"DATABASE_URL", "CACHE_URL", "LLM_BASE_URL", "CDN_URL", "CDN_PURGE"}


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("DATABASE_URL", "database"),
        ("CACHE_URL", "cache"),
        ("LLM_BASE_URL", "provider"),
        ("CDN_URL", "cdn"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "_FILE"])
def test_a_server_with_credentials_is_neither_brought_nor_written(
    tmp_path: Path, name: str, server: str, suffix: str
) -> None:
    address = "https://user:s3cret@server.example/v1"
    started, values = write(tmp_path, {f"{name}{suffix}": address})
    assert server not in started
    assert name not in values
    assert "s3cret" not in (tmp_path / "env").read_text()


def test_addresses_without_credentials_are_kept_until_they_are_no_longer_given(
    tmp_path: Path,
) -> None:
    given = {
        "BASE_URL": "https://shell.example",
        "CDN_URL": "https://cdn.example",
        "LLM_BASE_URL": "http://127.0.0.1:11434/v1",
        "STRIPE_API_BASE": "http://127.0.0.1:12111",
    }
    started, values = write(tmp_path, {**given, "LLM_API_KEY": "s3cret", "PORT": "8000"})
    assert {name: values[name] for name in given} == given
    assert not {"provider", "cdn"} & started
    assert "CDN_PURGE" not in values
    assert "s3cret" not in (tmp_path / "env").read_text()
    assert {"provider", "cdn"} <= write(tmp_path, {})[0]
    after = environment.read(tmp_path / "env")
    assert after["BASE_URL"] == "http://127.0.0.1:8000"
    assert "STRIPE_API_BASE" not in after


@pytest.mark.parametrize("tail", ["?key=s3cret", "#s3cret"])
def test_an_address_that_may_hold_a_key_is_not_kept(tmp_path: Path, tail: str) -> None:
    assert (
        "LLM_BASE_URL" not in write(tmp_path, {"LLM_BASE_URL": f"https://llm.example/v1{tail}"})[1]
    )


@pytest.mark.parametrize("name", ["LLM_BASE_URL", "CDN_URL"])
def test_a_stand_in_keeps_its_port_because_published_manifests_name_it(
    tmp_path: Path, name: str
) -> None:
    first = write(tmp_path, {})[1][name]
    assert urlsplit(first).hostname == "127.0.0.1"
    assert write(tmp_path, {})[1][name] == first


def test_the_file_is_made_once_without_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    ensure_environment(folder, {})
    made = (folder / "env").read_bytes()
    ensure_environment(folder, {"PORT": "9000"})
    assert (folder / "env").read_bytes() == made


def test_only_the_process_that_locks_the_folder_writes_its_file(tmp_path: Path) -> None:
    with held(tmp_path):
        ensure_environment(tmp_path, {})
        assert not (tmp_path / "env").exists()


def test_variables_can_be_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("8974\n")
    given = {"PORT_FILE": str(tmp_path / "port"), "HOST": "::1", "CDN_URL_FILE": "/nowhere"}
    read_files(given, "HOST", "PORT", "CDN_URL")
    assert given == {"PORT": "8974", "HOST": "::1", "CDN_URL_FILE": "/nowhere"}
