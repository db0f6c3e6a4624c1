"""The operators' console: who may come in, and what stands on its front page."""

import logging
from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from accounts.acts import show_refusal
from accounts.audit import record
from accounts.operators import actor_of
from accounts.people import set_password
from accounts.sign_in import MAX_PASSWORD
from config import ratelimits
from config.console.front import at_a_glance
from config.problems import Problem

# The pages need nothing from elsewhere and run no script that stands in a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The order of work, not of the alphabet.
APPS = ("accounts", "licensing", "usage", "llmproxy", "releases", "telemetry", "procrastinate")

log = logging.getLogger(__name__)


class OperatorSignIn(AdminAuthenticationForm):
    """Email and password of an operator. Failures count as those of the API do, and all look alike."""

    error_messages = {
        **AdminAuthenticationForm.error_messages,
        "invalid_login": "That email and password do not go together for an operator.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].max_length = MAX_PASSWORD

    def clean(self) -> dict[str, Any]:
        now = timezone.now()
        account = str(self.cleaned_data.get("username", "")).lower()
        ratelimits.refuse_if_spent("auth.account", key=account, now=now)
        ratelimits.refuse_if_spent("auth.all", now=now)
        try:
            return super().clean()
        except ValidationError:
            ratelimits.spend("auth.account", key=account)
            ratelimits.spend("auth.all")
            log.warning("operator_sign_in_refused")
            raise


class OwnPasswordForm(PasswordChangeForm):
    required_css_class = "required"


class OwnPassword(PasswordChangeView):
    """An operator's own password, set by the rule; this browser stays signed in, everything else ends."""

    form_class = OwnPasswordForm

    def form_valid(self, form: Any) -> HttpResponse:
        password = form.cleaned_data["new_password1"]
        by = actor_of(self.request)
        try:
            set_password(user_id=form.user.pk, password=password, by=by, now=timezone.now())
        except Problem as problem:
            show_refusal(form, problem)
            return self.form_invalid(form)
        form.user.refresh_from_db()
        update_session_auth_hash(self.request, form.user)
        # Django's own form would save the password a second time, around the rule.
        return super(PasswordChangeView, self).form_valid(form)


class ConsoleSite(AdminSite):
    site_header = "Shell backend"
    site_title = "Shell backend"
    index_title = "Console"
    index_template = "admin/console/front.html"
    site_url = None
    login_form = OperatorSignIn

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What matters at a glance."""
        glance = at_a_glance(now=timezone.now())
        return super().index(request, {"glance": glance, **(extra_context or {})})

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().login(request, extra_context)
        # A form that was refused is shown again; only a good one leads on.
        if request.method == "POST" and response.status_code == 302:
            _record("operator:signed_in", request)
        return _guarded(response)

    def logout(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "POST" and request.user.is_authenticated:
            _record("operator:signed_out", request)
        return _guarded(super().logout(request, extra_context))

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        request.current_app = self.name  # type: ignore[attr-defined]
        view = OwnPassword.as_view(
            success_url=reverse("admin:password_change_done"),
            extra_context={**self.each_context(request), **(extra_context or {})},
        )
        return view(request)

    def admin_view(
        self,
        view: Callable[..., HttpResponse],
        cacheable: bool = False,  # noqa: FBT001, FBT002
    ) -> Callable[..., HttpResponse]:
        inner = super().admin_view(view, cacheable)

        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return _guarded(inner(request, *args, **kwargs))

        return guarded

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        apps = super().get_app_list(request, app_label)
        for app in apps:
            if app["app_label"] == "procrastinate":
                app["name"], app["models"][0]["name"] = "Queued work", "Jobs"
        order = {label: place for place, label in enumerate(APPS)}
        return sorted(apps, key=lambda app: order.get(app["app_label"], len(order)))


def _guarded(response: HttpResponse) -> HttpResponse:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response


def _record(action: str, request: HttpRequest) -> None:
    by = actor_of(request)
    record(action, by=by, now=timezone.now(), target=by.name, target_id=by.id)
