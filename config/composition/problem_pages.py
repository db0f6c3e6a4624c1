"""Renders errors of the console as pages: in its layout for signed-in operators, as a card for everybody else."""

from typing import Any, cast

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.factors import gate
from accounts.models import Role, User
from config.console.navigation import label_of
from config.platform.acts import PAGES, RIGHTS
from config.platform.problems.problem import PermissionRefused, Problem
from config.platform.request.request_id import id_of

OWNERS_SHOWN = 3
# A card loads only the style sheet, its font and its icons.
CARD_POLICY = (
    "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def problem_page(site: AdminSite, request: HttpRequest, problem: Problem) -> HttpResponse:
    """Renders an error: its cause, whom to ask, and a link back. A server error runs no query."""
    context: dict[str, Any] = {
        **_worded(problem),
        "status": problem.status,
        "request_id": id_of(request),
        "path": request.path,
        "back": _back(request),
        "wait": problem.headers.get("Retry-After"),
    }
    # A request refused before sessions are read has no user.
    known = problem.status < 500 and hasattr(request, "user") and site.has_permission(request)
    if not known or not gate.is_proved(request):
        page = render_to_string("admin/problem_card.html", context)
        response = HttpResponse(page, status=problem.status)
        response["Content-Security-Policy"] = CARD_POLICY
        return response
    if isinstance(problem, PermissionRefused) and problem.detail == problem.default_detail:
        context |= _refused(request)
    page = render_to_string(
        "admin/problem.html", {**site.each_context(request), **context}, request
    )
    return HttpResponse(page, status=problem.status)


def _worded(problem: Problem) -> dict[str, str]:
    """Returns the title and the rest; the title is the first sentence of a detail written for this error."""
    if problem.detail == problem.default_detail:
        return {"title": problem.title, "detail": problem.detail}
    first, _, rest = problem.detail.partition(". ")
    return {"title": f"{first.removesuffix('.')}.", "detail": rest}


def _back(request: HttpRequest) -> str:
    """Returns the referring page, if it is another one of this service."""
    address = request.headers.get("Referer", "")
    hosts = {request.get_host()}
    own = url_has_allowed_host_and_scheme(address, hosts, require_https=request.is_secure())
    return address if own and address != request.build_absolute_uri() else ""


def _refused(request: HttpRequest) -> dict[str, str]:
    """Returns the page or action that the operator may not use, and the roles that may."""
    roles = sorted(cast("User", request.user).roles)
    whose = f"Your role{'s' * (len(roles) > 1)} ({', '.join(roles) or 'none'}) cannot"
    verb, what, holders = _refused_right(request)
    owners = User.objects.filter(is_superuser=True, is_active=True).order_by("email")
    emails = list(owners.values_list("email", flat=True)[:OWNERS_SHOWN])
    *others, last = holders or ["only owners"]
    who = f"{', '.join(others)} and {last}" if others else last
    return {
        "title": f"{whose} {verb} {what}.",
        "detail": f"{who.capitalize()} can {verb} it. Ask an owner: {' or '.join(emails)}.",
    }


def _refused_right(request: HttpRequest) -> tuple[str, str, list[str]]:
    """Returns a verb, the label of the page or act, and the roles that may open or use it."""
    name = request.resolver_match.url_name or "" if request.resolver_match else ""
    app, _, rest = name.partition("_")
    model, _, act = rest.partition("_")
    page, right = PAGES.get(f"{app}.{model}"), RIGHTS.get(f"{app}.{model}_{act}")
    if page is None:
        return "open", "this page", []
    if right is None:
        # As config.composition.roles has it: an auditor opens every page, an owner does everything.
        return "open", label_of(page.model), [*page.roles, Role.AUDITOR.value]
    console: Any = admin.site.get_model_admin(apps.get_model(page.model))
    acts = (*console.row_actions, *filter(None, [console.add_action]))
    label = next((each.label for each in acts if each.name == act), act)
    return "use", f"“{label}” of {label_of(page.model)}", list(right.roles)
