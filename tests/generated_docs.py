"""The tables, the drawing and the list of strings of the docs that are made from the code.

``tests/test_docs.py`` fails while one differs from the code; `make docs` writes it.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping

import grimp
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.urls import get_resolver
from django.utils.module_loading import import_string

from accounts.models import Role
from config.composition.attention import alerts_page
from config.console.navigation import label_of
from config.platform.acts import ACTS, PAGES, RIGHTS
from config.platform.problems.problem import Problem
from tests import strings
from tests.tools.folders import ROOT

OURS = {"accounts", "licensing", "usage", "releases", "telemetry", "llmproxy", "config"}


def problems() -> Iterator[type[Problem]]:
    """Every problem of the service but those of its HTTP server, which nobody imports but gunicorn."""
    assert get_resolver().url_patterns
    for middleware in settings.MIDDLEWARE:
        import_string(middleware)
    waiting: list[type[Problem]] = [Problem]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.split(".")[0] in OURS and kind.__module__ != "config.gunicorn":
            yield kind


def problem_rows() -> Iterator[list[str]]:
    """One row for each code, with the sentences of its most general class."""
    yield ["code", "status", "title", "detail"]
    ordered = sorted(
        problems(), key=lambda kind: (kind.status, kind.code, len(kind.__mro__), kind.__module__)
    )
    seen = set()
    for kind in ordered:
        if kind.code not in seen:
            seen.add(kind.code)
            yield [kind.code, str(kind.status), kind.title, kind.default_detail]


def role_rows() -> Iterator[list[str]]:
    """One row for each right: what it opens, the roles that have it beside an owner, and whether it is grave."""
    yield ["right", "kind", "name", "roles", "proof"]
    assert get_resolver().url_patterns
    has_page = {console.model for console in admin.site._registry.values()}
    labels = {
        f"{console.opts.label_lower}_{act.name}": str(act.label)
        for console in admin.site._registry.values()
        for act in (*console.row_actions, *filter(None, [console.add_action]))
    }
    for page in PAGES:
        kind = "page" if apps.get_model(page.model) in has_page else "part of a page"
        yield [page.model, kind, label_of(page.model), _roles({*page.roles, Role.AUDITOR}), ""]
    for right in RIGHTS:
        label = labels.get(right.name, "Export")
        yield [right.name, "action", label, _roles({*right.roles}), right.proof]


def _roles(given: set[str]) -> str:
    return " ".join(role for role in Role.values if role in given) or "owner alone"


def audit_rows() -> Iterator[list[str]]:
    """One row for each act of the audit log."""
    yield ["action", "event"]
    yield from ([act.action, act.meaning] for act in ACTS)


def drawing() -> str:
    """Every import between rooms, for Mermaid."""
    graph = grimp.build_graph("config", *sorted(OURS - {"config"}), cache_dir=None)
    imports = {
        (room_of(module), room_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    arrows = sorted(f"  {one} --> {other}" for one, other in imports if one != other)
    return "\n".join(["flowchart TD", *arrows, ""])


def room_of(module: str) -> str:
    """An app, or a package of ``config``."""
    app, _, rest = module.partition(".")
    package = rest.partition(".")[0]
    is_package = app == "config" and (ROOT / app / package / "__init__.py").exists()
    return f"{app}.{package}" if package and is_package else app


def table(rows: Callable[[], Iterator[list[str]]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows())
    return written.getvalue()


def operating() -> str:
    """The page for operators with the table of alerts, as their kinds declare them."""
    text = (ROOT / "docs" / "operating.md").read_text()
    before, head, rest = text.partition("| Alert | Raised after | What to do |\n|---|---|---|\n")
    lines = (f"| `{name}` | {after} | {step} |" for name, after, step in alerts_page.rows())
    return before + head + "\n".join(lines) + "\n\n" + rest.partition("\n\n")[2]


GENERATED: Mapping[str, Callable[[], str]] = {
    "audit.csv": lambda: table(audit_rows),
    "imports.mmd": drawing,
    "operating.md": operating,
    "problems.csv": lambda: table(problem_rows),
    "roles.csv": lambda: table(role_rows),
    "strings.txt": strings.written,
}
