"""The values of the service's variables for a local run and for a test run."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.tools import variables

HERE = {
    "DATABASE_URL": "postgresql://shell@%2Fhere/shell",
    "CACHE_URL": "unix:///here/redis.sock?db=0",
    "LLM_BASE_URL": "http://127.0.0.1:9000/v1",
    "CDN_URL": "http://127.0.0.1:9001",
}
SECRETS = ("SECRET_KEY", "ENCRYPTION_KEYS", "LLM_API_KEY", "PUBLISH_SECRETS")
KEYS = ("UPDATE_PUBLIC_KEY", "APPS_PUBLIC_KEY")


def for_run(
    folder: Path, before: dict[str, str], host: str = "127.0.0.1", **moved: str
) -> dict[str, str]:
    return variables.for_run(folder, host=host, port=8000, addresses=HERE | moved, before=before)


def test_secrets_and_keys_stay_and_addresses_follow(tmp_path: Path) -> None:
    first = for_run(tmp_path, {})
    second = for_run(tmp_path, first, host="::1", CDN_URL="c", DATABASE_URL="d", CACHE_URL="")
    assert {name: second[name] for name in (*SECRETS, *KEYS)} == {
        name: first[name] for name in (*SECRETS, *KEYS)
    }
    assert (second["BASE_URL"], second["CDN_URL"]) == ("http://[::1]:8000", "c")
    assert (second["DATABASE_URL"], second["CACHE_URL"]) == ("d", "")


def test_a_secret_removed_from_the_file_is_generated_again(tmp_path: Path) -> None:
    first = for_run(tmp_path, {})
    del first["SECRET_KEY"]
    assert len(for_run(tmp_path, first)["SECRET_KEY"]) >= 50


def test_a_host_for_every_address_is_reached_through_loopback(tmp_path: Path) -> None:
    assert for_run(tmp_path, {}, host="0.0.0.0")["BASE_URL"] == "http://127.0.0.1:8000"


def test_the_second_factor_is_off_for_this_machine_alone_also_in_a_file_from_before(
    tmp_path: Path,
) -> None:
    before = for_run(tmp_path, {})
    del before["OPERATOR_SECOND_FACTOR"]
    assert for_run(tmp_path, before)["OPERATOR_SECOND_FACTOR"] == "off"
    public = for_run(tmp_path, before, BASE_URL="https://shell.example.com")
    assert public["OPERATOR_SECOND_FACTOR"] == "required"


def test_folders_with_odd_names_come_back_from_their_addresses(tmp_path: Path) -> None:
    folder = tmp_path / "Odd #name? ü"
    folder.mkdir()
    values = variables.for_tests(folder)
    for name, inside in (("STORAGE_URL", "storage"), ("EMAIL_URL", "mail")):
        parts = urlsplit(values[name])
        assert (parts.scheme, parts.netloc) == ("file", "")
        assert Path(unquote(parts.path)) == folder / inside


def test_a_test_run_shares_no_value_with_the_environment_file_and_names_all_of_it(
    tmp_path: Path,
) -> None:
    """manage.py fills what is missing from that file, so nothing may be missing."""
    (tmp_path / "run").mkdir()
    (tmp_path / "tests").mkdir()
    run = for_run(tmp_path / "run", {})
    tests = variables.for_tests(tmp_path / "tests")
    assert run.keys() - tests.keys() == {"DATABASE_URL", "CACHE_URL", "HOST", "PORT"}
    assert all(tests[name] != run[name] for name in (*SECRETS, *KEYS))


def test_a_test_run_inherits_no_variable_that_the_settings_read() -> None:
    names = set(variables.NAMES)
    assert {"DATABASE_URL", "DATABASE_OWNER_URL", "RATE_LIMITS", "SENTRY_DSN"} <= names
    shell = dict.fromkeys(names, "1") | {f"{name}_FILE": "1" for name in names}
    assert variables.outside({**shell, "PATH": "/bin"}) == {"PATH": "/bin"}
