"""The security docs are true: every test they name exists, and no secret of the settings is missing."""

import ast
import csv
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import CODE, NAMED, ROOT, rows
from tests.tools.variables import read_by_settings

DOCS = ROOT / "docs"
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
# A name that says so, or an address that may hold a password.
TELLING = re.compile(
    r"KEY|SECRET|PASSWORD|TOKEN(?!S_|_AUDIENCE)|DSN|(DATABASE|CACHE|EMAIL|STORAGE)\w*_URL"
)


@cache
def names_in(path: Path) -> set[str]:
    """The names of a module's tests, in classes too."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def requirements() -> list[dict[str, str]]:
    with (DOCS / "asvs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def proofs(page: str) -> list[tuple[str, str]]:
    """File and name of each test that a page or table names."""
    if page == "asvs.csv":
        named = [test for row in requirements() for test in row["tests"].split()]
        return [(path, name) for path, _, name in (test.partition("::") for test in named)]
    return TEST.findall((DOCS / page).read_text())


@pytest.mark.parametrize("page", ["threat-model.md", "asvs.csv"])
def test_every_test_that_is_named_as_proof_exists(page: str) -> None:
    named = proofs(page)
    assert len(named) > 20
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and name not in names_in(ROOT / path))
    ]
    assert missing == []


def test_every_requirement_has_a_state_and_a_reason() -> None:
    found = requirements()
    assert len({row["requirement"] for row in found}) == len(found) > 100
    for row in found:
        assert row["subject"], row
        assert row["state"] in {"met", "part", "no", "n/a"}, row
        assert row["how"] or row["tests"], row
        for named in row["how"].split():
            assert not NAMED.fullmatch(named) or (ROOT / named).exists(), named


def test_every_door_has_a_guard_and_a_proof() -> None:
    _, _, doors = (DOCS / "threat-model.md").read_text().partition("\n## Doors\n")
    for table in doors.partition("\n## ")[0].split("\n### ")[1:]:
        for attack, guard, proof in rows(table):
            assert all((attack, guard, TEST.search(proof))), attack


def test_the_inventory_of_keys_has_every_secret_of_the_settings() -> None:
    inventory = set(CODE.findall((DOCS / "keys.md").read_text()))
    secrets = {
        name
        for name, call in read_by_settings().items()
        if ast.unparse(call.func) == "secret" or TELLING.search(name)
    }
    assert {"SECRET_KEY", "LLM_API_KEY", "DATABASE_URL", "SENTRY_DSN"} <= secrets
    assert secrets - inventory == set()
