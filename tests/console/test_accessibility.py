"""Every kind of page of the console, as axe and a phone find it."""

from collections.abc import Iterator

import pytest
from django.urls import Resolver404, resolve

from accounts.models import User
from tests.console.conftest import World
from tests.console.test_in_a_browser import base_url, desk  # noqa: F401 - a fixture
from tests.console.test_pages import every_page
from tests.tools.wire import NODE

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

# Pages that are not among those of models.
OTHERS = ("/admin/second-factor/own/",)
FAULTS = """rules => axe.run({rules, resultTypes: ["violations"]}).then(found => found.violations
    .filter(each => ["serious", "critical"].includes(each.impact) || each.id in rules)
    .map(each => [each.id, ...each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"""
# What this console promises beside what axe calls serious.
RULES = {name: {"enabled": True} for name in ("page-has-heading-one", "link-in-text-block")}


def kinds_of_pages() -> Iterator[str]:
    """One page of each kind: of each model its list, a row, one act on it, and the form that adds one."""
    seen = set()
    for address in (*every_page(), *OTHERS):
        try:
            kind = resolve(address).view_name
        except Resolver404:
            kind = address
        place, _, what = kind.rpartition("_")
        is_act = place and what not in {"changelist", "change", "add"}
        if (kind := f"{place} act" if is_act else kind) not in seen:
            seen.add(kind)
            yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_has_a_serious_fault_or_grows_sideways(
    base_url: str,  # noqa: F811
    operator: User,
    world: World,
    width: int,
    scheme: str,
) -> None:
    pages = list(kinds_of_pages())
    axe = (NODE / "node_modules" / "axe-core" / "axe.min.js").read_text()
    how = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    faults = {}
    with desk(base_url, operator, **how) as page:
        for address in pages:
            page.goto(address)
            page.evaluate(axe)
            found = page.evaluate(FAULTS, RULES)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(["grows sideways"])
            if found:
                faults[address] = found
    assert not faults, "\n".join(f"{address} {each}" for address, each in faults.items())
