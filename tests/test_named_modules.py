"""Modules that strings name, and the tags that templates load, obey the contracts of imports.

import-linter sees imports alone. Settings, hooks of libraries and ``DeclaringApp`` name modules in strings, and a
template loads a library of tags for each module that renders it. Such names are added to the graph of imports, and
the contracts of pyproject.toml are checked again.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import grimp
import pytest
from django.conf import settings
from importlinter import Contract, api
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

from tests.lasting import reading
from tests.tools.folders import ROOT

# Circles among siblings are left out: by its name alone, one starts or loads what another process or setting needs.
TYPES: dict[str, type[Contract]] = {
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
    "protected": ProtectedContract,
}
TEMPLATES = ROOT / "templates"
NAME = re.compile(r"[a-z_]\w*(?:\.\w+)+(?::\w+)?")
TEMPLATE = re.compile(r"[\w/*]+\.(?:html|txt)")
LOADS = re.compile(r"\{% load (?:[\w ]+ from )?([\w ]+?) %\}")
INCLUDES = re.compile(r'\{% (?:include|extends) "([^"]+)"')
# A module, what it names, and the module that this is.
Named = tuple[str, str, str]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*reading.OURS, include_external_packages=True, cache_dir=None)


def strings(tree: ast.Module) -> Iterator[str]:
    """The strings of a module but docstrings, with ``*`` for a value of a run."""
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for part in node.values}
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in prose | inner
        ):
            yield node.value
    for node in formatted:
        yield "".join(
            str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "*"
            for part in node.values
        )


def module_of(name: str) -> str | None:
    """The module of a dotted name, which may end with an attribute; None for any other text."""
    parts = re.split("[.:]", name) if NAME.fullmatch(name) else []
    names = (".".join(parts[:number]) for number in range(len(parts), 1, -1))
    return next((each for each in names if each in graph().modules), None)


def by_strings(sources: dict[str, ast.Module]) -> Iterator[Named]:
    for module, tree in sources.items():
        for text in strings(tree):
            # An app names what it declares from its own package.
            own = f"{module.removesuffix('apps')}{text}" if module.endswith(".apps") else text
            found = module_of(text) or module_of(own)
            if found not in {None, module}:
                yield module, text, str(found)


@cache
def templates() -> dict[str, str]:
    paths = [path for path in TEMPLATES.rglob("*.*") if path.suffix in {".html", ".txt"}]
    return {str(path.relative_to(TEMPLATES)): path.read_text() for path in paths}


def with_included(name: str, sources: dict[str, str]) -> set[str]:
    """A template with those that it includes and extends."""
    found, waiting = set(), [name]
    while waiting:
        each = waiting.pop()
        if each in sources and each not in found:
            found.add(each)
            waiting += INCLUDES.findall(sources[each])
    return found


def by_templates(sources: dict[str, ast.Module], pages: dict[str, str]) -> Iterator[Named]:
    libraries = settings.TEMPLATES[0]["OPTIONS"]["libraries"]
    for module, tree in sources.items():
        named = {text for text in strings(tree) if TEMPLATE.fullmatch(text)}
        for pattern in sorted(named):
            for name in (each for each in pages if fnmatchcase(each, pattern)):
                for each in sorted(with_included(name, pages)):
                    for library in " ".join(LOADS.findall(pages[each])).split():
                        if (found := libraries.get(library)) not in {None, module}:
                            yield module, f"{library} in templates/{each}", found


def contracts() -> list[dict[str, Any]]:
    found: Any = api.read_configuration(str(ROOT / "pyproject.toml"))
    every = found["contracts_options"]
    assert {each["type"] for each in every} <= TYPES.keys() | {"acyclic_siblings"}
    return [each for each in every if each["type"] in TYPES]


def broken(found: Iterable[Named]) -> Iterator[str]:
    """The contracts that these names would break as imports, each with the names that break it alone."""
    found = list(dict.fromkeys(found))
    for options in contracts():
        if not keeps(options, found):
            alone = [each for each in found if not keeps(options, [each])]
            assert alone, options["name"]
            yield from (f"{module} names {text}: {options['name']}" for module, text, _ in alone)


def keeps(options: dict[str, Any], found: Iterable[Named]) -> bool:
    extended = deepcopy(graph())
    for module, text, imported in found:
        if not extended.direct_import_exists(importer=module, imported=imported):
            extended.add_import(
                importer=module, imported=imported, line_number=1, line_contents=text
            )
    session = {"root_packages": [*reading.OURS], "include_external_packages": True}
    contract = TYPES[options["type"]](options["name"], session, options)
    return contract.check(extended, verbose=False).kept


def test_a_module_that_a_string_names_is_one_that_may_be_imported() -> None:
    found = [*by_strings(reading.modules())]
    assert {
        ("config.settings", "config.composition.roles.RoleBackend", "config.composition.roles"),
        ("usage.apps", "admin.finders", "usage.admin.finders"),
    } <= {*found}
    bad = [*broken(found)]
    assert not bad, "\n".join(bad)


def test_a_template_loads_only_tags_that_whatever_renders_it_may_import() -> None:
    found = [*by_templates(reading.modules(), templates())]
    assert len({text for _, text, _ in found}) > 50
    bad = [*broken(found)]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("accounts.seats", 'import_module("usage.caps")'),
        ("usage.tasks", 'HOOK = "telemetry.volumes:count"'),
        ("config.platform.jobs.mail", 'NAME = f"{1}"; HOOK = "config.console.finders.finders"'),
        ("licensing.licences", 'HOOK = "config.composition.site.site"'),
        (
            "accounts.apps",
            'declaring = ("people.roles", "admin.finders")\nabove = "licensing.acts"',
        ),
    ],
)
def test_a_string_that_names_a_module_above_is_found(module: str, source: str) -> None:
    [found] = {each.partition(": ")[0] for each in broken(by_strings({module: ast.parse(source)}))}
    assert found.startswith(f"{module} names ")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("usage.mails", 'render_to_string(f"usage/mail/{name}.txt")'),
        ("telemetry.admin", 'template = "page.html"'),
    ],
)
def test_a_template_that_loads_tags_from_above_is_found(module: str, source: str) -> None:
    pages = {
        "usage/mail/day.txt": "{% load console static %}",
        "page.html": '{% extends "base.html" %}{% include "parts/one.html" %}',
        "base.html": "{% load console %}",
        "parts/one.html": "{% load from_above from versions %}",
    }
    found = {*broken(by_templates({module: ast.parse(source)}, pages))}
    assert {each.partition(":")[0].rpartition("/")[2] for each in found} == {
        "usage.mails": {"day.txt"},
        "telemetry.admin": {"one.html"},
    }[module]
