"""The console's page of alerts: what to do about each, by the table of ``docs/operating.md``."""

from functools import cache
from typing import Any, cast

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path


@cache
def rows() -> list[list[str]]:
    """The kind of each alert, when it is raised and what to do."""
    text = (settings.BASE_DIR / "docs" / "operating.md").read_text()
    _, _, table = text.partition("\n| Alert |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().replace("`", "") for cell in line.split("|")[1:4]] for line in lines]


def alerts(request: HttpRequest) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": "Alerts", "alerts": rows()}
    return TemplateResponse(request, "admin/console/alerts.html", context)


site = cast("Any", admin.site)
site.pages += [path("alerts/", site.admin_view(alerts), name="alerts")]
