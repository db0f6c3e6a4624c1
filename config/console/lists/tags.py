"""Template tags of the console's lists: Django's filters, cells and pages in the console's own markup."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django import template
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR
from django.utils.html import escape, strip_tags
from django.utils.safestring import SafeString
from django.utils.text import capfirst

register = template.Library()

# The kind of a column by the type of its cells. An instant is the whole of a cell: a sentence may contain one.
KINDS = {"number": 'class="number"', "chips": 'class="chip '}
TIME = "<time "


@register.inclusion_tag("admin/parts/filters.html")
def list_filters(cl: Any) -> dict[str, Any]:
    """The filters as one form: a select's value is its part of the address (``list_filters.expanded``)."""
    named = {name for spec in cl.filter_specs for name in spec.expected_parameters()}
    others = parse_qsl(cl.get_query_string(remove=[PAGE_VAR])[1:])
    kept = [(name, value) for name, value in others if name not in {*named, SEARCH_VAR}]
    return {
        "cl": cl,
        "kept": kept,
        "filters": [_filter(spec, cl) for spec in cl.filter_specs],
        "problems": [each for spec in cl.filter_specs if (each := getattr(spec, "problem", ""))],
        "placeholder": getattr(cl.model_admin, "search_placeholder", "Search"),
    }


def _filter(spec: Any, cl: Any) -> dict[str, Any]:
    moments = getattr(spec, "moments", None)
    if moments is not None:
        return {"moments": moments}
    if fields := getattr(spec, "fields", None):
        return {"fields": fields, "is_rare": not spec.is_first}
    own = set(spec.expected_parameters())
    options = []
    for choice in spec.choices(cl):
        pairs = parse_qsl(choice["query_string"].removeprefix("?"))
        value = urlencode([(name, each) for name, each in pairs if name in own])
        options.append((value, choice["display"], choice["selected"]))
    chosen = any(value and selected for value, _, selected in options)
    return {
        "title": spec.title,
        "options": options,
        "set": chosen,
        "is_rare": not getattr(spec, "is_first", True),
    }


@register.filter
def listed(results: Iterable[Any], headers: Iterable[Any]) -> dict[str, Any]:
    """The cells of a list, each with its label for a phone and the kind of its column."""
    labels = [capfirst(str(header["text"])) for header in headers]
    rows = [list(row) for row in results]
    kinds = [_kind(cells) for cells in zip(*rows, strict=True)]
    labelled = [[_labelled(*each) for each in zip(row, labels, kinds, strict=True)] for row in rows]
    return {"rows": labelled, "headers": list(zip(headers, kinds, strict=True))}


def _kind(cells: Iterable[str]) -> str:
    for cell in cells:
        for kind, mark in KINDS.items():
            if mark in cell:
                return kind
        if cell.partition(">")[2].startswith(TIME):
            return "time"
    return ""


def _labelled(cell: str, label: str, kind: str) -> SafeString:
    # Django has escaped the cell.
    if "action-checkbox" in cell:
        return SafeString(cell)  # nosec B308, B703
    if not strip_tags(cell).strip():
        # Nothing to separate from the others on a phone.
        cell = f"{cell.partition('>')[0]}></td>"
    named = cell.replace('class="', f'data-label="{escape(label)}" class="{kind} ', 1)
    return SafeString(named.replace(">-</td>", "></td>"))  # nosec B308, B703
