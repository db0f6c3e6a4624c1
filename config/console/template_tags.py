"""Template tags that format instants, numbers and changes."""

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django import template
from django.conf import settings
from django.contrib import admin
from django.db.models import Model
from django.template import Context
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from config.api.problems import instant as rfc3339
from config.money import in_dollars

register = template.Library()

NOTHING = "–"
INSTANT = re.compile(r"\A(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z\Z")


@register.simple_tag
def environment() -> str:
    """The name of this deployment; "" without one."""
    return settings.ENVIRONMENT_NAME


@register.filter
def instant(at: datetime | None) -> SafeString:
    """An instant in UTC to the second; the console's script adds the operator's own time."""
    if at is None:
        return escape(NOTHING)
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return format_html('<time datetime="{}">{} UTC</time>', rfc3339(at), text)


@register.simple_tag(takes_context=True)
def link(context: Context, act: str, row: Model) -> str:
    """The address of an action on a row; "" if this operator may not take it."""
    console: Any = admin.site.get_model_admin(type(row))
    return str(console.link(context["request"], act, row))


@register.simple_tag
def columns(*names: str) -> SafeString:
    """The head of a table."""
    cells = format_html_join("", '<th scope="col">{}</th>', ((name,) for name in names))
    return format_html("<thead><tr>{}</tr></thead>", cells)


@register.filter
def grouped(number: int | None) -> str:
    """A number in groups of three."""
    return NOTHING if number is None else f"{number:,}"


@register.filter
def dollars(amount: int | None) -> str:
    """An amount of money, kept in millionths of a dollar."""
    return NOTHING if amount is None else in_dollars(amount)


@register.filter
def share(part: int, whole: int | None) -> int | None:
    """Percent of a cap; None without a cap, 100 for a cap of 0."""
    if whole is None:
        return None
    return 100 if whole == 0 else min(100, 100 * part // whole)


@register.filter
def changes(event: Any) -> SafeString:
    """The changes of an audit event, a line for each member: before → after."""
    before, after = event.before or {}, event.after or {}
    lines = []
    both = event.before is not None and event.after is not None
    for name in [*before, *(name for name in after if name not in before)]:
        was, has = _as_text(before.get(name)), _as_text(after.get(name))
        if both and was == has:
            continue
        one = has if event.before is None else was
        lines.append((name.replace("_", " "), f"{was} → {has}" if both else one))
    return format_html_join(SafeString("<br>"), '<span class="quiet">{}</span> {}', lines)


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
    """A licence's status, distinguishable without colours."""
    return format_html('<span class="standing standing-{}">{}</span>', status, status)


@register.filter
def first_part(identity: UUID) -> str:
    """The beginning of a uuid, enough to tell rows apart."""
    return str(identity)[:8]
