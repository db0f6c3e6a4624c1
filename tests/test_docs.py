"""The docs say what is there: names, variables, codes, limits, commands, links. How well they say it is not tested."""

import ast
import csv
import json
import os
import re
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands
from drf_spectacular.generators import SchemaGenerator

from config.platform.edge.ratelimits.table import DEFAULTS
from config.platform.env.secret_files import Secret
from tests.generated_docs import GENERATED, OURS, problems
from tests.tools.variables import NAMES, read_by_settings

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
OPERATING = ROOT / "docs" / "operating.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
# A file of the repository, by its path.
NAMED = re.compile(r"(?:tests|docs|\.ci|config|templates|[a-z]+)/[\w./-]+")
# Commands of packages that operators of this service need.
BORROWED = {"migrate", "createsuperuser", "procrastinate"}


def section(page: Path, title: str) -> str:
    """The text under a heading, up to the next one of its kind."""
    _, _, rest = page.read_text().partition(f"\n## {title}\n")
    assert rest, f"{page.name} has no part called {title}"
    return rest.partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings as they stand in addresses."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def default_of(call: ast.Call) -> ast.expr | None:
    named = [each.value for each in call.keywords if each.arg == "default"]
    return next(iter([*call.args[1:], *named]), None)


def described_variables() -> dict[str, str]:
    """Name and default of each row of the configuration table."""
    found = {}
    for cells in rows(section(README, "Configuration")):
        (name,) = CODE.findall(cells[0])
        assert name not in found, f"{name} is described twice"
        found[name] = cells[1]
    return found


def test_the_readme_names_every_file_that_is_read_again_and_no_other() -> None:
    [sentence] = re.findall(r"^Files of .* are read on change;", README.read_text(), re.MULTILINE)
    again = {name for name in NAMES if isinstance(getattr(settings, name, None), Secret)}
    assert set(re.findall(r"`([A-Z_]+)`", sentence)) == again


def test_every_place_in_the_indexes_exists() -> None:
    short, long = rows(section(README, "Where things live")), rows(section(CONTRIBUTING, "Index"))
    places = [place for cells in [*short, *long] for place in CODE.findall(cells[1])]
    assert len(short) == 15 < len(long) < len(places)
    # In a process of its own: importing the configuration of gunicorn changes the process that does it.
    script = (
        "import json, sys, importlib, operator\n"
        "places = [each.split(':') for each in json.loads(sys.argv[1])]\n"
        "importlib.import_module('config.gunicorn')\n"
        "import django; django.setup()\n"
        "for module, name in places: operator.attrgetter(name)(importlib.import_module(module))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(places)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_configuration_table_has_every_variable_and_no_other() -> None:
    assert described_variables().keys() == set(NAMES)


@pytest.mark.parametrize("name", sorted(read_by_settings()))
def test_the_configuration_table_has_the_default_of(name: str) -> None:
    said, default = described_variables()[name], default_of(read_by_settings()[name])
    assert (said == "required") == (default is None)
    if isinstance(default, ast.Constant) and isinstance(default.value, int | float):
        assert float(said) == float(default.value)
    elif isinstance(default, ast.Constant) and default.value and isinstance(default.value, str):
        assert said == default.value


@pytest.mark.parametrize("name", GENERATED)
def test_the_file_is_as_the_code_generates_it(name: str) -> None:
    path, wanted = ROOT / "docs" / name, GENERATED[name]()
    if "UPDATE_DOCS" in os.environ:
        path.write_text(wanted)
    written = path.read_text()
    lines = unified_diff(written.splitlines(), wanted.splitlines(), "written", "wanted", "", "", 0)
    assert written == wanted, "\n".join([f"Write docs/{name} anew: make docs", *lines])


def test_a_problem_has_one_status() -> None:
    kinds = {(kind.code, kind.status) for kind in problems()}
    assert len({code for code, _ in kinds}) == len(kinds) > 30


def test_every_rate_limit_is_described_with_its_number() -> None:
    table = rows(section(OPERATING, "Rate limits"))
    assert {CODE.findall(cells[0])[0]: cells[1] for cells in table} == dict(DEFAULTS)


def test_every_command_of_ours_is_described() -> None:
    with (ROOT / "docs" / "commands.csv").open(newline="") as file:
        described = {row["command"].split()[0] for row in csv.DictReader(file)}
    ours = {name for name, app in get_commands().items() if app in OURS}
    assert described == ours | BORROWED


def test_every_call_of_the_api_is_in_the_changelog() -> None:
    said = (ROOT / "CHANGELOG.md").read_text()
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    paths = generator.get_schema(request=None, public=True)["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {call for call in calls if f"`{call}`" not in said} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_docs_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(prose(page)):
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_the_docs_name_exist(page: Path) -> None:
    for named in CODE.findall(prose(page)):
        if NAMED.fullmatch(named) and named.partition("/")[0] in OURS | {
            "tests",
            "docs",
            ".ci",
            "templates",
        }:
            assert (ROOT / named).exists(), f"{page.name} names {named}"


def test_every_decision_is_listed_and_short() -> None:
    folder = ROOT / "docs" / "adr"
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == pages
    _, _, gone = (folder / "README.md").read_text().partition("Numbers that are gone: ")
    merged, there = (
        set(re.findall(r"\d{4}", gone.partition("\n\n")[0])),
        {name[:4] for name in pages},
    )
    assert len(there) == len(pages)
    assert {int(each) for each in merged | there} == set(range(1, len(merged | there) + 1))
    for name in pages:
        text = (folder / name).read_text()
        assert text.startswith(f"# {name[:4]}. ")
        assert re.search(r"^\*\*Decision\.\*\*", text, re.MULTILINE)
        assert 10 <= len(text.splitlines()) <= 32, f"{name} is not one short page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_docs_name_no_place_of_one_machine(page: Path) -> None:
    found = re.findall(
        r"(?<![\w.])/(?:home|root|tmp|work|Users|var|usr)\b[\w/.-]*", page.read_text()
    )
    assert not found
