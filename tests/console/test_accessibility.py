"""Every kind of page of the console, as axe and a phone find it."""

from collections.abc import Iterator

import pytest
from django.urls import Resolver404, resolve

from accounts.models import User
from tests.browsers import SCREENS
from tests.console.conftest import World
from tests.console.test_in_a_browser import base_url, desk  # noqa: F401 - a fixture
from tests.console.test_pages import every_page
from tests.tools.wire import NODE

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

# Pages that are not among those of models.
OTHERS = ("/admin/second-factor/own/", "/admin/settings/", "/account/forgotten")
FAULTS = """rules => axe.run({rules, resultTypes: ["violations"]}).then(found => found.violations
    .filter(each => ["serious", "critical"].includes(each.impact) || each.id in rules)
    .map(each => [each.id, ...each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"""
# Contrast depends on the scheme, and some things are shown on a desk alone.
LOOKS = {**SCREENS, "dark desk": {**SCREENS["desk"], "color_scheme": "dark"}}
# Rules that this console adds to those that axe calls serious.
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


@pytest.mark.parametrize("screen", LOOKS)
def test_no_page_has_a_serious_fault_or_grows_sideways(
    base_url: str,  # noqa: F811
    operator: User,
    world: World,
    screen: str,
) -> None:
    pages = list(kinds_of_pages())
    axe = (NODE / "node_modules" / "axe-core" / "axe.min.js").read_text()
    faults = {}
    with desk(base_url, operator, **LOOKS[screen]) as page:
        for address in pages:
            page.goto(address)
            page.evaluate(axe)
            found = page.evaluate(FAULTS, RULES)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(["grows sideways"])
            if found:
                faults[address] = found
    assert not faults, "\n".join(f"{address} {each}" for address, each in faults.items())


# A target of at least 24 px each way, or one with so much room around its middle; a link within a sentence is none.
TARGETS = """() => {
    const shown = (each) => each.checkVisibility({visibilityProperty: true}) && !each.closest(".visually-hidden")
        && !(each.closest("thead")?.getBoundingClientRect().width < 2);
    const inSentence = (each) => each.tagName === "A" && getComputedStyle(each).display === "inline"
        && each.parentElement.textContent.trim().length > each.textContent.trim().length + 2;
    const kinds = "a[href]:not(.areas a), button, input:not([type=hidden]), select, summary";
    const all = [...document.querySelectorAll(kinds)]
        .filter((each) => shown(each) && !inSentence(each) && each.tabIndex >= 0);
    const boxes = all.map((each) => {
        const label = each.matches("[type=radio], [type=checkbox]") ? each.labels?.[0] : null;
        return (label && shown(label) ? label : each).getBoundingClientRect();
    });
    const near = (box, other) => {
        const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
        const across = Math.max(other.left - x, 0, x - other.right);
        const down = Math.max(other.top - y, 0, y - other.bottom);
        return Math.hypot(across, down) < 12;
    };
    return all.filter((_, one) => (boxes[one].height < 24 || boxes[one].width < 24)
        && boxes.some((other, two) => two !== one && near(boxes[one], other)))
        .map((each) => each.outerHTML.slice(0, 160));
}"""


def test_every_target_is_large_enough_for_a_thumb(
    base_url: str,  # noqa: F811
    operator: User,
    world: World,
) -> None:
    # Read before: the browser's driver does not let Django ask the database meanwhile.
    pages, faults = [*kinds_of_pages()], {}
    with desk(base_url, operator, viewport={"width": 390, "height": 844}) as page:
        for address in pages:
            page.goto(address)
            if found := page.evaluate(TARGETS):
                faults[address] = found
    assert not faults, "\n".join(f"{address} {each[:4]}" for address, each in faults.items())


def test_no_line_of_a_card_ends_in_a_separator(
    base_url: str,  # noqa: F811
    operator: User,
    world: World,
) -> None:
    with desk(base_url, operator, viewport={"width": 390, "height": 844}) as page:
        page.goto("/admin/accounts/auditevent/")
        assert page.evaluate(
            """() => [...document.querySelectorAll("#result_list td")].every((cell) => {
                const mark = getComputedStyle(cell, "::after");
                return mark.content !== '" ·"' && (mark.content !== '"·"' || mark.position === "absolute");
            })"""
        )
