"""The house keeps its shape and stands on public API (docs/adr/0045-public-api-only.md)."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from tests.test_architecture import ROOT, parsed, sources

OURS = ("config", "accounts", "licensing", "usage", "llmproxy", "releases", "telemetry", "tests")
BY_STRING = re.compile(r"\b(import_string|import_module)\(")
# The beginning of a statement or of a piece of one. SQL is in capitals here; what is not needs a cursor all the same.
STATEMENT = re.compile(
    r"[\s(]*(SELECT|INSERT INTO|UPDATE|DELETE FROM|MERGE|WITH|VALUES|TABLE|SHOW|SET|RESET|BEGIN|COMMIT|ROLLBACK"
    r"|SAVEPOINT|CREATE|ALTER|DROP|TRUNCATE|COMMENT|REINDEX|CLUSTER|VACUUM|ANALYZE|REFRESH|LOCK|LISTEN|UNLISTEN|NOTIFY"
    r"|COPY|CALL|DO|GRANT|REVOKE|REASSIGN|EXPLAIN|PREPARE|EXECUTE|DECLARE|FETCH|DISCARD)(?=[\s;]|$)"
)
# Functions that query the database beside the ORM.
ASKING = {"callproc", "cursor", "executemany", "RawSQL"}
# Underscore names that their libraries document: Django's, namedtuple's, os', sys' and storages'.
DOCUMENTED = frozenset(
    {"_", "_meta", "_make", "_asdict", "_fields", "_replace", "_exit", "_getframe", "_save"}
)
# Importing it makes gevent patch this process.
SERVING = "config.gunicorn"


def test_no_private_name_of_a_library_is_used_or_overridden() -> None:
    assert [*private_names(), *private_overrides()] == []


def test_no_attribute_of_a_foreign_module_is_replaced() -> None:
    assert list(replaced_attributes()) == []


def test_gevent_is_imported_by_the_server_and_one_module_more() -> None:
    found = {place(path) for path in sources() if "gevent" in {name for name, _ in imported(path)}}
    assert found == {"config/gunicorn.py", "config/platform/concurrency/greenlets.py"}


def test_few_modules_are_imported_by_a_string() -> None:
    """Composition, and libraries that are large and seldom used."""
    found = [place(path) for path in sources() if BY_STRING.search(path.read_text())]
    assert len(found) <= 4, found


def test_a_request_passes_few_middlewares() -> None:
    assert len(settings.MIDDLEWARE) <= 11


def test_raw_sql_stands_in_few_files() -> None:
    found = [place(path) for path in sources() if has_raw_sql(path.read_text())]
    assert len(found) <= 13, found


@pytest.mark.parametrize(
    "sample",
    [
        'cursor.callproc("accounts_prune_audit", [since])',
        'on.execute("SHOW server_version")',
        'on.execute("SELECT 1")',
        'on.execute("BEGIN; SET LOCAL lock_timeout = 0")',
        'on.execute("NOTIFY changed")',
        "rows.raw(text)",
        'rows.extra(where=["a = 1"])',
        'TEXT = f"UPDATE {table} SET number = 1"',
        'TEXT = """\nWITH one AS (VALUES (1)) TABLE one\n"""',
        'PIECES = ["DELETE FROM", name]',
        'with connection.cursor() as cursor: cursor.execute("select 1")',
        "with connection.cursor() as cursor: cursor.execute(text)",
        'rows.annotate(number=RawSQL("1", ()))',
        "cursor.executemany(text, values)",
    ],
)
def test_raw_sql_is_found_in_every_shape(sample: str) -> None:
    assert has_raw_sql(sample)


def test_text_that_only_looks_like_sql_is_none() -> None:
    assert not has_raw_sql(
        '("DELETE", "Select a plan", "Set budget", "SELECTED", rows.update(a=1))'
    )


def test_a_folder_fits_a_screen() -> None:
    folders = {path.parent for path in sources()}
    for folder in folders:
        flat = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        most = 15 if folder == ROOT / "config" else 20
        assert len(flat) <= most, f"{place(folder)} has {len(flat)} files"


def test_no_file_is_long() -> None:
    lengths = {place(path): path.read_text().count("\n") for path in sources()}
    assert max(lengths.values()) <= 420, max(lengths, key=lambda name: lengths[name])


def has_raw_sql(source: str) -> bool:
    """Returns whether a statement begins in a text of this source, or something but the ORM asks the database."""
    for node in ast.walk(ast.parse(source)):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        text = node.value if isinstance(node, ast.Constant) else None
        if name in ASKING or (isinstance(text, str) and STATEMENT.match(text)):
            return True
        called = getattr(node.func, "attr", None) if isinstance(node, ast.Call) else None
        if called in {"raw", "extra"}:
            return True
    return False


def private_names() -> Iterator[str]:
    """Underscore names that are imported from a library, or used of an object that is not ``self``."""
    for path in sources():
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").partition(".")[0] not in OURS
            ):
                named = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                yield from (f"{place(path)}: {name}" for name in named if is_private(name))
            if (
                isinstance(node, ast.Attribute)
                and is_private(node.attr)
                and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
            ):
                yield f"{place(path)}: {node.attr}"


def replaced_attributes() -> Iterator[str]:
    """Assignments to attributes of what is imported from a library; Python documents its own hooks."""
    for path in sources():
        foreign = {
            bound for name, bound in imported(path) if name not in {*OURS, *sys.stdlib_module_names}
        }
        for node in ast.walk(parsed(path)):
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                value = target.value if isinstance(target, ast.Attribute) else None
                while isinstance(value, ast.Attribute):
                    value = value.value
                if isinstance(value, ast.Name) and value.id in foreign:
                    yield f"{place(path)}: {ast.unparse(target)} ="


def private_overrides() -> Iterator[str]:
    """Underscore methods of our classes that a library's class has too."""
    for module in modules():
        for kind in vars(module).values():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__:
                continue
            theirs = [
                base for base in kind.__mro__ if base.__module__.partition(".")[0] not in OURS
            ]
            for name in filter(is_private, vars(kind)):
                if any(name in vars(base) for base in theirs) and not made_by_library(name):
                    yield f"{module.__name__}.{kind.__name__}.{name}"


def modules() -> Iterator[object]:
    for app in OURS[:-1]:
        package = importlib.import_module(app)
        for found in pkgutil.walk_packages(package.__path__, f"{app}."):
            if ".migrations" not in found.name and found.name != SERVING:
                yield importlib.import_module(found.name)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """The top level of each module that is imported, and the name that it is bound to."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield top, alias.asname or top
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield (node.module or "").partition(".")[0], alias.asname or alias.name


def made_by_library(name: str) -> bool:
    """Returns whether metaclasses put this name into every class, or, as with enums, it is documented."""
    return name.endswith("_") or name in {"_abc_impl", "_declared_fields", "_is_protocol"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
