"""Passkeys: the library's views and helper, with this service's rules, audit and mails."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.sessions.backends.base import UpdateError
from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.utils import timezone
from django_otp_webauthn.exceptions import (
    InvalidState,
    MalformedRequest,
    OTPWebAuthnApiError,
    UnprocessableEntity,
)
from django_otp_webauthn.helpers import WebAuthnHelper
from django_otp_webauthn.models import AbstractWebAuthnCredential, WebAuthnCredential
from django_otp_webauthn.views import (
    BeginCredentialAuthenticationView,
    BeginCredentialRegistrationView,
    CompleteCredentialAuthenticationView,
    CompleteCredentialRegistrationView,
)
from webauthn.helpers import base64url_to_bytes, parse_client_data_json
from webauthn.helpers.exceptions import WebAuthnException

from accounts.audit import record
from accounts.factors import gate, setting_up
from accounts.factors.gate import operator_of
from accounts.factors.proofs import record_proof
from accounts.people.operators import actor_of

# The library turns some of its own errors into answers; the rest, and those of what it reads the statements of a
# passkey with, are these. The last is of a passkey that is known already, as by another request at the same moment.
UNREADABLE = (
    WebAuthnException, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    IntegrityError,
)  # fmt: skip


class NotNow(OTPWebAuthnApiError):
    """The browser has proved nothing lately that would let it add a passkey."""

    status_code = 403
    default_code = "not_now"

    def __init__(self) -> None:
        super().__init__(
            "Confirm your second factor again, or enter a set-up code, before you add a passkey."
        )


@contextmanager
def _read(data: Any) -> Iterator[None]:
    """Refuses a statement that the library cannot read, or that was made in a page within another origin's."""
    try:
        stated = parse_client_data_json(base64url_to_bytes(data["response"]["clientDataJSON"]))
        if stated.cross_origin:
            raise UnprocessableEntity
        yield
    except UNREADABLE as error:
        raise UnprocessableEntity from error


class PasskeyHelper(WebAuthnHelper):
    """Stores a passkey together with its name and its event, and refuses what cannot be read."""

    def register_complete(self, user: Any, state: Any, data: Any) -> WebAuthnCredential:
        by, now = actor_of(self.request), timezone.now()
        with transaction.atomic():
            # A reset meanwhile would leave the passkey of whoever it was to keep out.
            if not gate.holds(self.request, now=now):
                raise NotNow
            with _read(data):
                device: WebAuthnCredential = super().register_complete(user, state, data)
            setting_up.name_passkey(device, user=operator_of(self.request), by=by, now=now)
        return device

    def authenticate_complete(self, user: Any, state: Any, data: Any) -> WebAuthnCredential:
        with _read(data):
            device: WebAuthnCredential = super().authenticate_complete(user, state, data)
        return device


class _Strict:
    """A ceremony that refuses a body which the library cannot read."""

    def handle_exception(self, exc: Exception) -> HttpResponse:
        read = hasattr(self.request, "data")  # type: ignore[attr-defined]
        if not read and isinstance(exc, ValueError | RecursionError):
            exc = MalformedRequest()
        if isinstance(exc, UpdateError):
            # Another request has ended the ceremony, and with it this key of the session.
            exc = InvalidState()
        answer: HttpResponse = super().handle_exception(exc)  # type: ignore[misc]
        return answer


class _Audited:
    """A ceremony whose refusal is audited."""

    def handle_exception(self, exc: Exception) -> HttpResponse:
        request: Any = self.request  # type: ignore[attr-defined]
        if request.user.is_authenticated:
            by, after = actor_of(request), {"kind": "passkey"}
            now, user = timezone.now(), operator_of(request)
            record("operator:factor_refused", user, by=by, now=now, after=after)
        answer: HttpResponse = super().handle_exception(exc)  # type: ignore[misc]
        return answer


class _ByThoseWhoMayAdd:
    def check_can_register(self) -> None:
        if not gate.may_add(self.request, now=timezone.now()):  # type: ignore[attr-defined]
            raise NotNow


class BeginAuthentication(_Strict, BeginCredentialAuthenticationView):
    """Sends the challenge of a known passkey."""


class BeginRegistration(_Strict, _ByThoseWhoMayAdd, BeginCredentialRegistrationView):
    """Sends the challenge of a new passkey."""


class CompleteRegistration(
    _Strict, _Audited, _ByThoseWhoMayAdd, CompleteCredentialRegistrationView
):
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


class CompleteAuthentication(_Strict, _Audited, CompleteCredentialAuthenticationView):
    """Takes the proof of a passkey."""

    def complete_auth(self, device: AbstractWebAuthnCredential) -> Any:
        user, now = operator_of(self.request), timezone.now()
        sign_in, by = not gate.is_proved(self.request), actor_of(self.request)
        record_proof(device, user=user, sign_in=sign_in, by=by, now=now)
        gate.prove(self.request, device, now=now)
        return user
