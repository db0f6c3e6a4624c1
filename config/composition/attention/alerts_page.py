"""The console's page of alerts, with the step that each kind declares."""

from typing import Any, cast

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path

from config.platform.attention import in_order


def rows() -> list[tuple[str, str, str]]:
    """Returns the kind of each alert, when it is raised and the step to take, in Markdown."""
    return [(kind.name, kind.alert.after, kind.alert.step) for kind in in_order() if kind.alert]


def alerts(request: HttpRequest) -> HttpResponse:
    plain = [[cell.replace("`", "") for cell in row] for row in rows()]
    context = {**admin.site.each_context(request), "title": "Alerts", "alerts": plain}
    return TemplateResponse(request, "admin/console/alerts.html", context)


site = cast("Any", admin.site)
site.pages += [path("alerts/", site.admin_view(alerts), name="alerts")]
