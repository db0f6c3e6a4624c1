"""Template tags that format instants, numbers and changes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db.models import Model
from django.template import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import conditional_escape, escape, format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString

from config.console.navigation import page_of
from config.console.tables import Chip, Column, Link, Menu, Row, Table, state_chip
from config.platform.acts import ACTS
from config.platform.money import readable_dollars
from config.platform.problems.problem import instant as rfc3339

register = template.Library()

NOTHING = "–"
# The thresholds in percent of each kind and shape.
SHARES = ((100, "over", "octagon"), (80, "near", "triangle"), (0, "under", ""))
ROW_LINK = re.compile(r'(?s)<a href="/admin/(\w+)/(\w+)/[^"]+/change/[^"]*"[^>]*>(.*?)</a>')
INSTANT = re.compile(r"\A(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)\Z")


@register.simple_tag
def environment() -> str:
    """The name of this deployment; "" without one."""
    return settings.ENVIRONMENT_NAME


@register.simple_tag
def icon(name: str) -> SafeString:
    """A decorative shape in the colour of the text."""
    return format_html('<span class="icon icon-{}" aria-hidden="true"></span>', name)


@register.simple_tag
def chip(kind: str, state: object) -> SafeString:
    """A state: word, shape and colour. ``config.console.tables.Chip`` names the kinds."""
    return format_html('<span class="chip chip-{}">{}</span>', kind, state)


@register.inclusion_tag("admin/parts/table.html")
def table(table: Table, more: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a template names none
    """A table, with the link to more rows unless its page has that elsewhere."""
    return {"table": table, "more": table.more if more else None}


@register.filter
def cells(row: Row, columns: Iterable[Column]) -> list[tuple[Column, SafeString]]:
    """Returns the columns and cells of a row; the first cell links to the row's subject."""
    first, *others = row.cells
    named = Link(first, row.href, strong=True) if row.href else first
    return [(column, cell(each)) for column, each in zip(columns, [named, *others], strict=True)]


@register.filter
def cell(value: Any) -> SafeString:
    """Renders a cell of a table by its type."""
    match value:
        case Link(text, href, strong):
            css = SafeString(' class="strong"' if strong else "")  # nosec B308, B703
            shown = cell(text)
            return format_html('<a href="{}"{}>{}</a>', href, css, shown) if href else shown
        case Chip(kind, word):
            return chip(kind, word)
        case Menu(of, links):
            return _menu(of, links) if links else SafeString("")
        case list() | tuple():
            return format_html_join(" ", "{}", ((cell(each),) for each in value))
        case datetime():
            return instant(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = grouped(value)
    return conditional_escape(_as_text(value) if isinstance(value, bool) else value or "")


def _menu(of: str, links: Sequence[Link]) -> SafeString:
    items = format_html_join("", '<a href="{}">{}</a>', ((link.href, link.text) for link in links))
    return format_html(
        '<details class="menu"><summary class="button small" aria-label="Actions for {}">{}</summary>'
        '<div class="menu-items">{}</div></details>',
        of, icon("more"), items,
    )  # fmt: skip


@register.inclusion_tag("admin/parts/acts.html", takes_context=True)
def acts(context: Context, buttons: Sequence[Any], activity: str, main: int = 1) -> dict[str, Any]:
    """Returns the acts on a row: the first usual or a single destructive one as a button, and the others in *More*.

    Each opens a page that asks for confirmation.
    """
    usual = [each for each in buttons if not each["destructive"]]
    destructive = [each for each in buttons if each["destructive"]]
    source = usual or (destructive if len(destructive) == 1 else [])
    first, source[:main] = source[:main], []
    alone: list[Mapping[str, Any]] = []
    if context["request"].user.has_perm("accounts.view_auditevent"):
        # A single act needs no menu.
        (usual if usual or destructive else alone).append({"url": activity, "label": "Activity"})
    return {"first": first, "usual": usual, "destructive": destructive, "alone": alone}


@register.filter
def is_blank(contents: str) -> bool:
    """Returns whether a field of a row has nothing to show."""
    return strip_tags(contents).strip() in {"", "-", NOTHING}


@register.filter
def instant(at: datetime | None, form: str = "") -> SafeString:
    """An instant: its time today, otherwise its day, with the year of another year; the title has it to the second.

    It is in UTC, which the console's script converts to the operator's time zone. ``second`` adds the second to today's
    times, and ``exact`` shows day and time to the second.
    """
    if at is None:
        return escape(NOTHING)
    at, today = at.astimezone(UTC), timezone.now().astimezone(UTC)
    day = f"{at.day} {at:%b}" if at.year == today.year else f"{at.day} {at:%b %Y}"
    if at.date() == today.date():
        text = f"{at:%H:%M:%S}" if form else f"{at:%H:%M}"
    else:
        text = {"": day, "second": f"{day} {at:%H:%M}"}.get(form, f"{day} {at:%H:%M:%S}")
    return format_html(
        '<time datetime="{}" title="{} UTC" data-form="{}">{}</time>',
        rfc3339(at), f"{at:%Y-%m-%d %H:%M:%S}", form, text,
    )  # fmt: skip


@register.filter
def later(at: datetime, seconds: int) -> datetime:
    """The instant some seconds after another."""
    return at + timedelta(seconds=seconds)


@register.simple_tag(takes_context=True)
def link(context: Context, act: str, row: Model) -> str:
    """The address of an action on a row; "" if this operator may not take it."""
    console: Any = admin.site.get_model_admin(type(row))
    return str(console.link(context["request"], act, row))


@register.simple_tag(takes_context=True)
def row_link(context: Context, row: Model | None) -> str:
    """The address of a row's page; "" if this operator may not open it."""
    if row is None or not admin.site.is_registered(type(row)):
        return ""
    shown = admin.site.get_model_admin(type(row)).has_view_permission(context["request"], row)
    return page_of(row) if shown else ""


@register.simple_tag(takes_context=True)
def to(context: Context, row: Model | str, text: object = "", query: str = "") -> SafeString:
    """The name of a row, or a text for it or for a list ("app.model"), linked where this operator may open it."""
    href, request = "", context.get("request")
    if isinstance(row, Model):
        href = row_link(context, row) if request else ""
    elif request and admin.site.get_model_admin(apps.get_model(row)).has_view_permission(request):
        page = f"admin:{row.replace('.', '_')}_changelist"
        href = f"{reverse(page)}?{query}".rstrip("?")
    return cell(Link(str(text or row), href))


@register.simple_tag(takes_context=True)
def reachable(context: Any, cell: str) -> SafeString:
    """Removes links to rows that this operator may not open from a cell: columns do not know the operator."""
    user = context.request.user

    def shown(link: re.Match[str]) -> str:
        return link[0] if user.has_perm(f"{link[1]}.view_{link[2]}") else link[3]

    # Removes the links from escaped text.
    return SafeString(ROW_LINK.sub(shown, conditional_escape(cell)))  # nosec B308, B703


@register.filter
def grouped(number: int | None) -> str:
    """A number in groups of three."""
    return NOTHING if number is None else f"{number:,}"


@register.filter
def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


@register.filter
def dollars(amount: int | None, places: int = 2) -> str:
    """Formats an amount of money, given in millionths of a dollar, with so many decimals or those that it needs."""
    return NOTHING if amount is None else readable_dollars(amount, places)


@register.filter
def lasting(seconds: float | None) -> str:
    """A duration: *420 ms*, *2.61 s*, *5 min 12 s*; never zero for one that took some time."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 0.0005:
        return "under 1 ms"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


@register.filter
def per_second(tokens: float) -> str:
    """A speed, to a tenth where it is slow."""
    return f"{tokens:,.0f} tokens/s" if tokens >= 10 else f"{tokens:.1f} tokens/s"


@register.filter
def short(number: int | None) -> str:
    """Rounds a large number to three or four digits: 3.03 B, 862.6 M, 12 k."""
    if number is None:
        return NOTHING
    for least, size, form in (
        (10**9, 10**9, "{:.2f} B"),
        (10**6, 10**6, "{:.1f} M"),
        (10**4, 10**3, "{:.0f} k"),
    ):
        if number >= least:
            return form.format(number / size)
    return f"{number:,}"


@register.filter(name="share")
def percent(part: int, whole: int | None) -> int | None:
    """Returns the percentage of a cap, which may exceed 100; None without a cap, 100 for a cap of 0."""
    if whole is None:
        return None
    return 100 * part // whole if whole else 100


@register.simple_tag
def share(used: int, cap: int | None) -> SafeString:
    """Renders a share of a cap as a bar and a number; from 80 % with a triangle, from 100 % with an octagon."""
    part = percent(used, cap)
    if part is None:
        return SafeString('<span class="share quiet">no cap</span>')
    _, kind, shape = next(each for each in SHARES if part >= each[0])
    return bar(min(100, part), f"{part:,}", kind=kind, shape=shape and icon(shape))


def bar(width: float, percent: str, *, kind: str = "", shape: str = "") -> SafeString:
    """A part as a bar of this width in percent, and its number."""
    return format_html(
        '<span class="share share-{}"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{}" height="8"/></svg><span class="percent">{} {} %</span></span>',
        kind, width, shape, percent,
    )  # fmt: skip


@register.filter
def short_id(identity: object) -> SafeString:
    """Shortens an id; the title has the whole, which the console's script can copy."""
    return format_html(
        '<code class="id" title="{0}" data-copy="{0}">{1}…</code>', identity, str(identity)[:8]
    )


@register.filter
def act(event: Any) -> str:
    """An event of the audit log in words, after the name of its actor."""
    declared = ACTS.get(event.action)
    if declared is None:
        return f"{event.action} {event.target}".strip()
    return declared.sentence.format(declared.target(event.target)).strip()


@register.filter
def changes(event: Any) -> SafeString:
    """Describes the change of an audit event: by its act's details, else by member, before → after.

    An event with one of both leaves out the members that are empty.
    """
    before, after = event.before or {}, event.after or {}
    if described := _details(event.action, after or before):
        return described
    lines = []
    both = event.before is not None and event.after is not None
    for name in [*before, *(name for name in after if name not in before)]:
        was, has = _as_text(before.get(name)), _as_text(after.get(name))
        one = has if event.before is None else was
        if was != has if both else one != NOTHING:
            lines.append((name.replace("_", " "), f"{was} → {has}" if both else one))
    return format_html_join(" · ", '<span class="quiet">{}</span> {}', lines)


def _details(action: str, members: Mapping[str, Any]) -> SafeString:
    """The first sentence of an act whose members are known; "" without one."""
    declared = ACTS.get(action)
    known = {name: _in_sentence(value) for name, value in members.items() if value is not None}
    for sentence in declared.details if declared and known else ():
        with suppress(KeyError):
            return format_html(sentence, **known)
    return SafeString("")


def _in_sentence(value: Any) -> str:
    is_instant = isinstance(value, str) and INSTANT.match(value)
    return instant(datetime.fromisoformat(value)) if is_instant else _as_text(value)


def _as_text(value: Any) -> str:
    if value is None or value in ("", []):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_as_text(each) for each in value)
    if isinstance(value, dict):
        return "; ".join(f"{name} {_as_text(each)}" for name, each in value.items())
    # Instants are shown to the second.
    return INSTANT.sub(r"\1 \2 UTC", str(value))


@register.filter
def standing(status: str) -> SafeString:
    """A licence's status as a chip."""
    return cell(state_chip(status))
