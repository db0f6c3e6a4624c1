"""The operators' console: its sign-in, its front page and its order of pages."""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode

from accounts.audit import record
from accounts.factors import gate
from accounts.factors.console_sessions import why_over
from accounts.factors.devices import has_factor
from accounts.models import AuditEvent, User
from accounts.people.operator_sign_in import OperatorSignIn, OwnPassword
from accounts.people.operators import IS_AN_OPERATOR, actor_of, may_touch, record_refused_sign_in
from config.composition.attention.listing import counts
from config.composition.front.page import at_a_glance
from config.composition.impact import affected, outcome_note
from config.composition.problem_pages import problem_page
from config.composition.roles import wants_proof
from config.composition.search import search
from config.console.list_filters import RestrictedAdmin
from config.console.navigation import navigation
from config.platform.edge.outermost import FORGET
from config.platform.problems.problem import Problem
from config.platform.request.request_id import current

# The pages load nothing from other origins and have no inline scripts.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PROOF_TOO_OLD = "Confirm that it is you to continue: you last did so more than 10 minutes ago."


class ConsoleSite(AdminSite):
    site_header = "Shell backend"
    site_title = "Shell backend"
    index_title = "Console"
    index_template = "admin/console/front.html"
    site_url = None
    login_form = OperatorSignIn
    actor_of, wants_proof = staticmethod(actor_of), staticmethod(wants_proof)
    # Pages without a model; modules add theirs.
    pages: ClassVar[list[URLPattern]] = []

    def may_touch_all(self, request: HttpRequest) -> bool:
        return cast("User", request.user).is_owner

    def why_not_touch(self, request: HttpRequest, person: User | None) -> str:
        return "" if may_touch(request, person) else IS_AN_OPERATOR

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Restricts the filters of every page, including those that packages register."""
        page = admin_class or ModelAdmin
        if not issubclass(page, RestrictedAdmin):
            page = type(page.__name__, (RestrictedAdmin, page), {})
        super().register(model_or_iterable, page, **options)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context: dict[str, Any] = {}
        # Before the second factor an operator sees no part of the console.
        if gate.is_proved(request):
            # Current on the front page, cached elsewhere.
            number = counts(request.user, found=getattr(request, "attention", None))
            context = navigation(self, request, number)
        return {**super().each_context(request), "navigation": context}

    def problem_page(self, request: HttpRequest, problem: Problem) -> HttpResponse:
        """Renders an error in the console's layout."""
        return _guarded(problem_page(self, request, problem))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Returns nothing: the sidebar lists the pages, and asking each model takes a tenth of a page's time."""
        return []

    def get_urls(self) -> list[Any]:
        own = path("search/", self.admin_view(search), name="search")
        return [own, *self.pages, *super().get_urls()]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Serves the front page."""
        glance = at_a_glance(request, now=timezone.now())
        request.attention = glance["items"]  # type: ignore[attr-defined]
        return super().index(request, {"glance": glance, **(extra_context or {})})

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        response = super().login(request, extra_context)
        # A refused form is shown again; only a sign-in redirects.
        if request.method == "POST" and response.status_code == 302:
            gate.begin(request, now=timezone.now())
            if settings.OPERATOR_SECOND_FACTOR:
                _record("operator:password_accepted", request)
            else:
                _record("operator:signed_in", request)
        elif request.method == "POST" and _was_refused(response):
            record_refused_sign_in(request.POST.get("username", ""), request, now=timezone.now())
        return _guarded(response)

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if request.method == "POST" and request.user.is_authenticated:
            _record("operator:signed_out", request)
            gate.end(request, now=timezone.now())
        response = super().logout(request, extra_context)
        if request.method == "POST":
            for name, value in FORGET.items():
                response[name] = value
        return response

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        view = OwnPassword.as_view(
            success_url=reverse("admin:password_change_done"),
            extra_context={**self.each_context(request), **(extra_context or {})},
        )
        return view(request)

    def autocomplete_view(self, request: HttpRequest) -> Any:
        """Disables suggestions: no form uses them, and they reveal ids; that of a refresh token is half of it."""
        raise Http404

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Protects a page by the second factor; everybody may sign out."""
        return self._page(super().admin_view(view, cacheable), proved=view != self.logout)

    def half_way(self, view: Any) -> Any:
        """Protects a page by the password only, to set up or prove the second factor."""
        return self._page(super().admin_view(view), proved=False)

    def reauthenticate(self, request: HttpRequest, *, page: str = "") -> HttpResponse | None:
        """Asks for the second factor again before a grave act, unless the latest proof is recent."""
        if gate.is_fresh(request, now=timezone.now()):
            return None
        kept = " What you typed is kept." if request.method == "POST" else ""
        messages.info(request, f"{PROOF_TOO_OLD}{kept}")
        return _redirect("second_factor:prove", request, then=page)

    affected, outcome_note = staticmethod(affected), staticmethod(outcome_note)

    def audit_entry(self, request: HttpRequest) -> str:
        """Returns the address of the request's latest audit event; "" for operators who may not read it."""
        written = AuditEvent.objects.filter(request_id=current(), actor_id=request.user.pk)
        if not current() or not request.user.has_perm("accounts.view_auditevent"):
            return ""
        newest = written.order_by("-pk").values_list("pk", flat=True).first()
        return reverse("admin:accounts_auditevent_change", args=[newest]) if newest else ""

    def _page(self, inner: Callable[..., HttpResponse], *, proved: bool) -> Any:
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            # Read first: Django forgets a session that a new password or a revocation has ended.
            session = request.session.get(gate.SESSION)
            away = self._turned_away(request, session, proved=proved)
            return _guarded(away or inner(request, *args, **kwargs))

        return guarded

    def _turned_away(
        self, request: HttpRequest, session: str | None, *, proved: bool
    ) -> HttpResponse | None:
        """Returns the page that an operator must visit first; it says why a session has ended."""
        known, now = self.has_permission(request), timezone.now()
        if not known and session is None:
            return None
        if not known or not gate.goes_on(request, now=now):
            logout(request)
            messages.warning(request, why_over(session_id=session, now=now))
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        if not proved or gate.is_proved(request):
            return None
        known = has_factor(gate.operator_of(request).pk)
        return _redirect("second_factor:prove" if known else "second_factor:set_up", request)


def _redirect(page: str, request: HttpRequest, *, then: str = "") -> HttpResponse:
    where = urlencode({"next": then or request.get_full_path()})
    return HttpResponseRedirect(f"{reverse(page)}?{where}")


def _record(action: str, request: HttpRequest) -> None:
    by = actor_of(request)
    record(action, by.name, by=by, now=timezone.now(), target_id=by.id)


def _guarded(response: HttpResponse) -> HttpResponse:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response


def _was_refused(response: Any) -> bool:
    """Returns whether a password was wrong; a form without a password is not an attempt."""
    form = (getattr(response, "context_data", None) or {}).get("form")
    return form is not None and form.has_error(NON_FIELD_ERRORS, "invalid_login")
