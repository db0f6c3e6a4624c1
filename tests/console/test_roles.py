"""What each role may look at and do in the console: ``docs/roles.md`` says it, and every page and action is tried.

Pages and actions are found in the code, so that a new one without a role fails here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.contrib import admin

from accounts.admin.exports import ExportedList
from accounts.models import Role
from config.roles import ACTIONS, RIGHTS, VIEWS

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(\w+\.\w+)` \| [^|]+ \| ([\w, ]+) \|$", re.MULTILINE)
OTHERS = {Role.SUPPORT, Role.LICENSING, Role.RELEASE, Role.AUDITOR}
# Rights to see a block of another page, whose rows have no page of their own.
BLOCKS = {"releases.appchannel", "usage.budget", "usage.stop"}


def expected() -> dict[str, set[str]]:
    """The roles beside an owner that the documentation grants each right."""
    rows = ROW.findall((ROOT / "docs/roles.md").read_text())
    return {
        right: set() if roles == "owner alone" else set(roles.split(", ")) for right, roles in rows
    }


EXPECTED = expected()


def label_of(console: Any) -> str:
    return f"{console.opts.app_label}.{console.opts.model_name}"


def actions() -> Iterator[str]:
    """The right of every action of every page."""
    for console in admin.site._registry.values():
        for act in (*console.row_actions, *filter(None, [console.add_action])):
            yield f"{label_of(console)}_{act.name}"
        if isinstance(console, ExportedList):
            yield f"{label_of(console)}_export"


def pages() -> Iterator[str]:
    yield from (label_of(console) for console in admin.site._registry.values())
    yield from BLOCKS


def test_every_page_and_action_has_its_roles() -> None:
    for kind, found, table in (("page", set(pages()), VIEWS), ("action", set(actions()), ACTIONS)):
        for right in sorted(found):
            assert right in table, (
                f"Nobody but owners may use the {kind} {right}: name its roles, or none, in "
                "config/roles.py, and add its row to docs/roles.md."
            )
            assert right in EXPECTED, f"docs/roles.md has no row for the {kind} `{right}`."
        assert set(table) <= found, f"config/roles.py names what is gone: {set(table) - found}"
    assert set(EXPECTED) == {*pages(), *actions()}


def test_the_documentation_grants_what_the_code_grants() -> None:
    assert set().union(*EXPECTED.values()) == OTHERS
    for role in OTHERS:
        said = {right for right, roles in EXPECTED.items() if role in roles}
        views = {f"{label.replace('.', '.view_')}" for label in said if label in VIEWS}
        assert RIGHTS[role] == views | {right for right in said if right in ACTIONS}, role
    assert not {right for right in RIGHTS[Role.AUDITOR] if right in ACTIONS} - {
        right for right in ACTIONS if right.endswith("_export")
    }
