"""The pages of the second factor: proving it, setting it up, and an operator's own factors and sessions."""

from base64 import b32encode
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import segno
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from accounts.factors import console_sessions, gate, setting_up
from accounts.factors.devices import authenticators, devices, has_factor, passkeys, recovery_codes
from accounts.factors.gate import operator_of
from accounts.factors.proofs import prove_by_code, prove_by_recovery_code, record_proof
from accounts.models import ConsoleSession, RecoveryCodes, User
from accounts.people.operators import actor_of
from accounts.sessions.known_places import limits_of_factor, mark_new_networks
from accounts.typed_codes import grouped
from config.console.actions import show_refusal
from config.platform.edge.ratelimits.failed_logins import attempt
from config.platform.problems.problem import InvalidRequest

ISSUER = "Shell backend"


class CodeForm(forms.Form):
    code = forms.CharField(
        max_length=100,
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "spellcheck": "false", "autofocus": True}
        ),
    )


class SetUpForm(CodeForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Set-up code"


class FirstCodeForm(CodeForm):
    name = forms.CharField(
        label="Name", max_length=setting_up.NAME_LENGTH, initial="Authenticator app"
    )
    field_order = ("name", "code")


def prove(request: HttpRequest) -> HttpResponse:
    """Asks for the factor after the password, and again before grave acts."""
    user, now = operator_of(request), timezone.now()
    if not settings.OPERATOR_SECOND_FACTOR:
        return HttpResponseRedirect(reverse("admin:index"))
    if not has_factor(user.pk):
        return HttpResponseRedirect(reverse("second_factor:set_up"))
    recovering = "recovery" in request.GET
    rule = prove_by_recovery_code if recovering else prove_by_code

    def check(code: str, **_: str) -> None:
        device = rule(
            user=user, code=code, sign_in=not gate.is_proved(request), by=actor_of(request), now=now
        )
        gate.prove(request, device, now=now)

    form = CodeForm(request.POST or None)
    if _takes(form, check, user=user, now=now):
        if recovering:
            messages.warning(request, _codes_left(user))
        return HttpResponseRedirect(_next(request) or reverse("admin:index"))
    shown = {
        "form": form,
        "recovering": recovering,
        "passkeys": not recovering and passkeys(user.pk).exists(),
        "codes": recovering or authenticators(user.pk).exists(),
        "next": _next(request),
    }
    return _page(request, "prove", "Second factor", **shown)


def _codes_left(user: User) -> SafeString:
    left = len(RecoveryCodes.objects.get(user=user).hashes)
    return format_html(
        "<strong>A recovery code was used; {} left.</strong> If your passkey or app is lost, "
        '<a href="{}">remove it and add a new one</a> now.',
        left,
        reverse("second_factor:own"),
    )


def set_up(request: HttpRequest) -> HttpResponse:
    """The only page of an operator without a factor: it wants a set-up code, then offers the kinds of factors."""
    user, now = operator_of(request), timezone.now()
    if has_factor(user.pk) or not settings.OPERATOR_SECOND_FACTOR:
        return HttpResponseRedirect(reverse("second_factor:own"))

    def check(code: str, **_: str) -> None:
        setting_up.use_set_up_code(user=user, code=code, by=actor_of(request), now=now)
        gate.allow_set_up(request, now=now)

    form = SetUpForm(request.POST or None)
    if _takes(form, check, user=user, now=now):
        return HttpResponseRedirect(reverse("second_factor:set_up"))
    allowed = gate.may_add(request, now=now)
    return _page(request, "set_up", "Set up a second factor", form=form, allowed=allowed)


def authenticator(request: HttpRequest) -> HttpResponse:
    """Shows the key of a new app as a picture and as text, and takes it into use after its first code."""
    user, now = operator_of(request), timezone.now()
    if refused := _may_not_add(request, now=now):
        return refused

    def check(code: str, name: str) -> None:
        by = actor_of(request)
        device = setting_up.confirm_authenticator(user=user, code=code, name=name, by=by, now=now)
        if not gate.is_proved(request):
            record_proof(device, user=user, sign_in=True, by=by, now=now)
        gate.prove(request, device, now=now)

    form = FirstCodeForm(request.POST or None)
    if _takes(form, check, user=user, now=now):
        return HttpResponseRedirect(_after_adding(user))
    begun = setting_up.begin_authenticator(user=user, now=now)
    secret = b32encode(begun.unseal("key")).decode()
    label = quote(f"{ISSUER}:{user.email}")
    address = f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': ISSUER})}"
    picture = segno.make(address, error="m").svg_data_uri(scale=4, light="white")
    shown = {"form": form, "secret": grouped(secret), "picture": picture}
    return _page(request, "authenticator", "Authenticator app", **shown)


def added(request: HttpRequest) -> HttpResponse:
    """Redirects the browser once a passkey is stored."""
    return HttpResponseRedirect(_after_adding(operator_of(request)))


def recovery(request: HttpRequest) -> HttpResponse:
    """Makes recovery codes and shows them once."""
    user, now = operator_of(request), timezone.now()
    if refused := admin.site.reauthenticate(request):  # type: ignore[attr-defined]
        return refused  # type: ignore[no-any-return]
    codes = None
    if request.method == "POST":
        codes = setting_up.make_recovery_codes(user=user, by=actor_of(request), now=now)
    known = recovery_codes(user.pk)
    left = len(known.hashes) if known else None
    return _page(request, "recovery", "Recovery codes", codes=codes, left=left)


def own(request: HttpRequest) -> HttpResponse:
    """An operator's own factors and sessions."""
    user, now = operator_of(request), timezone.now()
    if request.method == "POST":
        return _change(request, user, now=now)
    sessions = list(ConsoleSession.objects.live(at=now).filter(user=user))
    mark_new_networks(sessions, of=user.pk)
    shown = {
        "is_asked": settings.OPERATOR_SECOND_FACTOR,
        "devices": devices(user.pk),
        "recovery_codes": recovery_codes(user.pk),
        "sessions": sessions,
        "roles": sorted(user.roles),
        "this_session": request.session.get(gate.SESSION),
        **admin.site.each_context(request),
    }
    title = {"title": "Your sign-in"}
    return TemplateResponse(request, "admin/second_factor/own.html", {**shown, **title})


def _change(request: HttpRequest, user: User, *, now: datetime) -> HttpResponse:
    """Renames or removes a factor, or ends a session; the last two after a recent proof."""
    given, by = request.POST, actor_of(request)
    back = HttpResponseRedirect(reverse("second_factor:own"))
    asks = "end" in given or "remove" in given
    if asks and (refused := admin.site.reauthenticate(request)):  # type: ignore[attr-defined]
        return refused  # type: ignore[no-any-return]
    if "end" in given:
        ended = console_sessions.end(session_id=_uuid(given["end"]), user=user, by=by, now=now)
        said = "The session has been ended." if ended else "This session had already ended."
        messages.success(request, said)
    elif "rename" in given:
        name = given.get("name", "")
        setting_up.rename(user=user, device_id=given["rename"], name=name, by=by, now=now)
    elif "remove" in given:
        try:
            setting_up.remove(user=user, device_id=given["remove"], by=by, now=now)
        except InvalidRequest as refusal:
            messages.warning(request, refusal.detail)
    return back


def _takes(form: forms.Form, rule: Callable[..., None], *, user: User, now: datetime) -> bool:
    """Returns whether the form was sent and the rule takes its code; a refusal is shown at its field."""
    if not form.is_valid():
        return False
    limits = limits_of_factor(user_id=user.pk)
    try:
        with attempt(*limits, failing=InvalidRequest, now=now):
            rule(**form.cleaned_data)
    except InvalidRequest as refusal:
        show_refusal(form, refusal)
        return False
    return True


def _may_not_add(request: HttpRequest, *, now: datetime) -> HttpResponse | None:
    if gate.may_add(request, now=now):
        return None
    if has_factor(operator_of(request).pk):
        return admin.site.reauthenticate(request)  # type: ignore[attr-defined,no-any-return]
    return HttpResponseRedirect(reverse("second_factor:set_up"))


def _after_adding(user: User) -> str:
    return reverse("second_factor:own" if recovery_codes(user.pk) else "second_factor:recovery")


def _next(request: HttpRequest) -> str:
    """Returns where the operator was going, if that is a page of this service."""
    address = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(
        address, {request.get_host()}, require_https=request.is_secure()
    )
    return address if safe else ""


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _page(request: HttpRequest, name: str, title: str, **shown: Any) -> HttpResponse:
    """A page without the console's menus, which are for those who have proved their factor."""
    hidden = {"has_permission": gate.is_proved(request), "is_nav_sidebar_enabled": False}
    context = {**admin.site.each_context(request), "available_apps": [], **hidden, "title": title}
    return TemplateResponse(request, f"admin/second_factor/{name}.html", {**context, **shown})
