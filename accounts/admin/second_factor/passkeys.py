"""Passkeys: the library's views and helper, with this service's rules, audit and mails."""

from typing import Any

from django.db import transaction
from django.http import HttpResponse
from django.utils import timezone
from django_otp_webauthn.exceptions import OTPWebAuthnApiError
from django_otp_webauthn.helpers import WebAuthnHelper
from django_otp_webauthn.models import AbstractWebAuthnCredential, WebAuthnCredential
from django_otp_webauthn.views import (
    BeginCredentialRegistrationView,
    CompleteCredentialAuthenticationView,
    CompleteCredentialRegistrationView,
)

from accounts.audit import record
from accounts.factors import gate, setting_up
from accounts.factors.gate import operator_of
from accounts.factors.proofs import record_proof
from accounts.people.operators import actor_of


class NotNow(OTPWebAuthnApiError):
    """The browser has proved nothing lately that would let it add a passkey."""

    status_code = 403
    default_code = "not_now"

    def __init__(self) -> None:
        super().__init__(
            "Prove your second factor again, or enter a set-up code, before you add a passkey."
        )


class PasskeyHelper(WebAuthnHelper):
    """Stores a passkey together with its name and its event."""

    def register_complete(self, user: Any, state: Any, data: Any) -> WebAuthnCredential:
        by, now = actor_of(self.request), timezone.now()
        with transaction.atomic():
            # A reset meanwhile would leave the passkey of whoever it was to keep out.
            if not gate.holds(self.request, now=now):
                raise NotNow
            device: WebAuthnCredential = super().register_complete(user, state, data)
            setting_up.name_passkey(device, user=operator_of(self.request), by=by, now=now)
        return device


class _Audited:
    """A ceremony whose refusal is audited."""

    def handle_exception(self, exc: Exception) -> HttpResponse:
        request: Any = self.request  # type: ignore[attr-defined]
        if request.user.is_authenticated:
            by, after = actor_of(request), {"kind": "passkey"}
            now, user = timezone.now(), operator_of(request)
            record("operator:factor_refused", by=by, now=now, target=user, after=after)
        answer: HttpResponse = super().handle_exception(exc)  # type: ignore[misc]
        return answer


class _ByThoseWhoMayAdd:
    def check_can_register(self) -> None:
        if not gate.may_add(self.request, now=timezone.now()):  # type: ignore[attr-defined]
            raise NotNow


class BeginRegistration(_ByThoseWhoMayAdd, BeginCredentialRegistrationView):
    """Sends the challenge of a new passkey."""


class CompleteRegistration(_Audited, _ByThoseWhoMayAdd, CompleteCredentialRegistrationView):
    """Takes a new passkey, which counts as its own first proof."""

    def post(self, *args: Any, **kwargs: Any) -> HttpResponse:
        sign_in = not gate.is_proved(self.request)
        response: HttpResponse = super().post(*args, **kwargs)
        # The library has taken the new passkey as proof unless there was another.
        user: Any = self.request.user
        device, now = user.otp_device, timezone.now()
        if sign_in:
            record_proof(device, user=user, sign_in=True, by=actor_of(self.request), now=now)
        gate.prove(self.request, device, now=now)
        return response


class CompleteAuthentication(_Audited, CompleteCredentialAuthenticationView):
    """Takes the proof of a passkey."""

    def complete_auth(self, device: AbstractWebAuthnCredential) -> Any:
        user, now = operator_of(self.request), timezone.now()
        sign_in, by = not gate.is_proved(self.request), actor_of(self.request)
        record_proof(device, user=user, sign_in=sign_in, by=by, now=now)
        gate.prove(self.request, device, now=now)
        return user
