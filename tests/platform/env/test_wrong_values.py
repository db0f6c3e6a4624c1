"""Values that cannot work: each ends the start, with a sentence that says how to write it and repeats nothing.

``wrong_values.ndjson`` has the table: variable, value, words of the sentence, other variables ``beside`` it, and the
public report ``from`` which it is.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from config.platform.env.addresses import email_url, own_address, owner_address, redis_address
from config.platform.env.reading import plain
from tests.tools import variables
from tests.tools.folders import ROOT

TABLE: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("wrong_values.ndjson").read_text().splitlines()
]
# Read by the commands that change the schema, and by nothing else.
OWNER = "DATABASE_OWNER_URL"
# Parts of the table's values that a sentence may not have.
HIDDEN = (
    "hidden",
    "ada",
    "schema=public",
    "99999",
    "300.1.1.1",
    "//weak",
    "auht",
    "amiga",
)
ALONE = [each for each in TABLE if each["name"] != OWNER and "beside" not in each]


def said_at_start(environ: dict[str, str]) -> dict[str, str]:
    """The sentence about each variable when a start is refused."""
    done = subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; print(settings.VERSION)"],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    for part in HIDDEN:
        assert part not in done.stderr
    lines = [line.split(":", 1) for line in done.stderr.splitlines() if line.startswith("  ")]
    return {name.strip(): sentence.strip() for name, sentence in lines}


def rounds() -> list[list[dict[str, Any]]]:
    """The table, so that no round has a variable twice: one start judges a whole round."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in ALONE:
        found[each["name"]].append(each)
    most = max(map(len, found.values()))
    return [[rows[at] for rows in found.values() if at < len(rows)] for at in range(most)]


@pytest.mark.parametrize("rows", rounds(), ids=lambda rows: str(len(rows)))
def test_every_wrong_value_of_the_table_ends_the_start(rows: list[dict[str, Any]]) -> None:
    said = said_at_start({each["name"]: each["value"] for each in rows})
    missing = [each for each in rows if each["says"] not in said.get(each["name"], "nothing!")]
    assert not [(each, said.get(each["name"])) for each in missing]


@pytest.mark.parametrize(
    "row",
    [each for each in TABLE if "beside" in each],
    ids=lambda row: "-".join((row["name"], *row["beside"])),
)
def test_values_that_do_not_fit_together_end_the_start(row: dict[str, Any]) -> None:
    said = said_at_start({row["name"]: row["value"], **row["beside"]})
    assert row["says"] in said[row["name"]]


def test_every_variable_has_a_row() -> None:
    assert {each["name"] for each in TABLE} == set(variables.NAMES)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_quotes_around_any_value_are_named(quote: str) -> None:
    names = [name for name in variables.NAMES if name != OWNER]
    said = said_at_start(dict.fromkeys(names, f"{quote}hidden{quote}"))
    assert {name for name in names if "without quotes" not in said.get(name, "")} == set()


# docker/cli#4404, mtrnix/metronix-memory#458, calesthio/Crucix#6, openscientist-io/openscientist#244
@pytest.mark.parametrize(
    "value", ["hidden # ours", "hidden\t# ours", "# hidden", "hidden   # a # b"]
)
def test_a_comment_beside_any_value_is_named(value: str) -> None:
    names = [name for name in variables.NAMES if name != OWNER]
    said = said_at_start(dict.fromkeys(names, value))
    assert {name for name in names if "without a comment" not in said.get(name, "")} == set()


@pytest.mark.parametrize("value", ["a#b", "#ab", "a #b", "C# and F#", "#"])
def test_a_sign_within_a_value_is_no_comment(value: str) -> None:
    assert plain(value) == value


def test_a_variable_that_is_given_twice_is_named(tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_text("hidden")
    names = [name for name in variables.NAMES if name != OWNER]
    twice = dict.fromkeys(names, "hidden") | {f"{name}_FILE": str(file) for name in names}
    said = said_at_start(twice)
    assert said == {name: f"Must be given once: {name} or {name}_FILE." for name in names}


@pytest.mark.parametrize("row", [each for each in TABLE if each["name"] == OWNER], ids=str)
def test_an_owner_s_address_is_held_to_the_same(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWNER, row["value"])
    with pytest.raises(SystemExit) as end:
        owner_address()
    assert row["says"] in str(end.value)
    assert not [part for part in HIDDEN if part in str(end.value)]


def test_an_owner_s_address_in_quotes_or_given_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OWNER, '"postgresql://ada:hidden@localhost/shell"')
    with pytest.raises(SystemExit, match="without quotes"):
        owner_address()
    monkeypatch.setenv(OWNER, " postgresql://ada:hidden@localhost/shell\r\n")
    assert owner_address() == "postgresql://ada:hidden@localhost/shell"
    (tmp_path / "value").write_text("postgresql://ada:hidden@localhost/shell")
    monkeypatch.setenv(f"{OWNER}_FILE", str(tmp_path / "value"))
    with pytest.raises(SystemExit, match="Must be given once"):
        owner_address()


def test_unambiguous_values_are_read() -> None:
    values = {
        "HOST": "[::1]",
        "PORT": " 8001 ",
        "BASE_URL": " HTTPS://shell.test/\r\n",
        "CACHE_URL": "",
        "LLM_API_KEY": "\ufeffsk-key\r",
        "LLM_PROVIDER": "openai\n",
        "OPERATOR_EMAILS": "ops@shell.test,\n on-call@shell.test\n",
        "DEFAULT_FROM_EMAIL": '"Shell, Inc." <shell@shell.test>',
    }
    names = ["HOST", "PORT", "BASE_URL", "LLM_PROVIDER", "OPERATOR_EMAILS", "SESSION_COOKIE_SECURE"]
    asked = f"print([getattr(settings, name) for name in {names}], settings.LLM_API_KEY())"
    done = subprocess.run(
        [sys.executable, "-c", f"from django.conf import settings; {asked}"],
        cwd=ROOT,
        env={**os.environ, **values},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    emails = ["ops@shell.test", "on-call@shell.test"]
    assert done.stdout.strip() == (
        f"{['::1', 8001, 'https://shell.test', 'openai', emails, True]} sk-key"
    )


def test_a_worker_in_a_container_of_its_own_may_have_the_same_port() -> None:
    same = {
        "HOST": "0.0.0.0",
        "PORT": "8000",
        "METRICS_PORT": "9100",
        "WORKER_METRICS_PORT": "9100",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; settings.VERSION"],
        cwd=ROOT,
        env={**os.environ, **same},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("address", "at", "ssl", "tls"),
    [
        ("smtp://h.test", ("h.test", 25), False, False),
        ("smtp://", ("localhost", 25), False, False),
        ("SMTPS://ada:p%40ss@h.test", ("h.test", 465), True, False),
        ("smtps://h.test:4465", ("h.test", 4465), True, False),
        ("smtp://h.test?ssl=True", ("h.test", 465), True, False),
        ("smtp://h.test:2525/?tls=on", ("h.test", 2525), False, True),
        ("submission://ada:p%40ss@h.test", ("h.test", 587), False, True),
        ("submission://h.test:465?ssl=true", ("h.test", 465), True, False),
    ],
)
def test_mail_goes_in_clear_only_where_the_address_says_so(
    address: str, at: tuple[str, int], *, ssl: bool, tls: bool
) -> None:
    found = email_url(address)
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == at
    assert (found["EMAIL_USE_SSL"], found["EMAIL_USE_TLS"]) == (ssl, tls)
    assert found["EMAIL_HOST_PASSWORD"] == ("p@ss" if "ada" in address else "")


def test_a_scheme_has_no_case() -> None:
    assert redis_address("REDISS://Ada@Cache/1") == "rediss://Ada@Cache/1"
    assert own_address("HTTPS://Shell.test") == "https://Shell.test"


def test_quotes_within_a_value_stay() -> None:
    for value in ('"Shell" <a@b.test>', '{"a": "b"}', '"', "it's", '"a'):
        assert plain(f" {value}\n") == value
