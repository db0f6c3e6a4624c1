"""The console's page of alerts: what to do about each, by the table of ``docs/operating.md``."""

from typing import Any, cast

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path


def rows() -> list[list[str]]:
    """The kind of each alert, when it is raised and what to do."""
    text = (settings.BASE_DIR / "docs" / "operating.md").read_text()
    table = text.partition("\n| Alert |")[2].partition("\n\n")[0].replace("`", "")
    return [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]


def alerts(request: HttpRequest) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": "Alerts", "alerts": rows()}
    return TemplateResponse(request, "admin/console/alerts.html", context)


site = cast("Any", admin.site)
site.pages += [path("alerts/", site.admin_view(alerts), name="alerts")]
