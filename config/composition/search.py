"""Global search: the rows that the finders of the apps find.

Only models that an operator's roles may list are searched: one query by index per finder, and none where the text
cannot match.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from accounts.models import AuditEvent
from config.console.finders import Term, finders
from config.console.navigation import page_of


def search(request: HttpRequest) -> HttpResponse:
    """Finds rows of each model that this operator may list, and the row to open if the text identifies one."""
    term = Term(request.GET.get("q", ""))
    site: Any = admin.site
    mine = [
        finder
        for finder in sorted(finders, key=lambda finder: finder.place)
        if site.get_model_admin(finder.model).has_view_permission(request)
    ]
    results = {each: rows for each in mine if term.text and (rows := each.find(term))}
    named = [row for finder, rows in results.items() for row in rows if finder.is_it(row, term)]
    # Several rows may share a name, and events are about a row; an id, an email or a number identifies one row.
    number = sum(len(rows) for finder, rows in results.items() if finder.model is not AuditEvent)
    is_sure = term.ids or "@" in term.text or term.text.isdecimal() or number == 1
    if is_sure and len(named) == 1:
        return HttpResponseRedirect(page_of(named[0]))
    context = {
        **site.each_context(request),
        "title": "Search",
        "q": term.text,
        "tables": [(finder.title, finder.table(rows, term)) for finder, rows in results.items()],
        "nothing": [finder.title for finder in mine if finder not in results],
    }
    return TemplateResponse(request, "admin/console/search.html", context)
