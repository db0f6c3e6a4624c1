"""Between requests of the console and the rules: which session a browser is in, and what it has proved when."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db import IntegrityError
from django.http import HttpRequest
from django_otp import login
from django_otp.models import Device

from accounts.factors import console_sessions
from accounts.factors.devices import has_factor
from accounts.factors.setting_up import SET_UP_WITHIN
from accounts.models import ConsoleSession, User
from accounts.sessions.revocation import lock_user
from config.platform.request.client_address import address_of

# Grave acts ask again for a proof that is older.
FRESH = timedelta(minutes=10)
SESSION, PROVED_AT, SET_UP_FROM = "console_session", "factor_proved_at", "factor_set_up_from"
# The library's key in a session.
DEVICE = "otp_device_id"


def operator_of(request: HttpRequest) -> User:
    return cast("User", request.user)


def begin(request: HttpRequest, *, now: datetime) -> None:
    """Begins a session after a sign-in; forgets what an earlier one in this browser had proved."""
    for name in (PROVED_AT, SET_UP_FROM, DEVICE):
        request.session.pop(name, None)
    user, address = operator_of(request), address_of(request)
    browser = request.headers.get("User-Agent", "")
    session = console_sessions.start(user=user, address=address, browser=browser, now=now)
    request.session[SESSION] = str(session.pk)


def goes_on(request: HttpRequest, *, now: datetime) -> bool:
    """Returns whether the browser's session goes on; begins one for a sign-in from before there were sessions."""
    if known := request.session.get(SESSION):
        return console_sessions.goes_on(session_id=known, user=operator_of(request), now=now)
    try:
        begin(request, now=now)
    except IntegrityError:
        # Deleted meanwhile.
        return False
    return True


def end(request: HttpRequest, *, now: datetime) -> None:
    """Takes the session of a browser that signs out from the list of its operator."""
    known: str | None = request.session.get(SESSION)
    rows = ConsoleSession.objects.filter(pk__in=[known] if known else [], ended_at=None)
    rows.update(ended_at=now)


def is_proved(request: HttpRequest) -> bool:
    user: Any = request.user
    return not settings.OPERATOR_SECOND_FACTOR or user.is_verified()


def is_fresh(request: HttpRequest, *, now: datetime) -> bool:
    """Returns whether the latest proof is recent enough for a grave act."""
    if not settings.OPERATOR_SECOND_FACTOR:
        return True
    return is_proved(request) and now - _time(request, PROVED_AT) < FRESH


def may_add(request: HttpRequest, *, now: datetime) -> bool:
    """Returns whether this browser may add a factor: after a recent proof, or a set-up code while there is none."""
    if has_factor(operator_of(request).pk):
        return is_fresh(request, now=now)
    return not settings.OPERATOR_SECOND_FACTOR or now - _time(request, SET_UP_FROM) < SET_UP_WITHIN


def holds(request: HttpRequest, *, now: datetime) -> bool:
    """Returns whether the session goes on: a reset of the factor or a revocation waits until the transaction ends."""
    user = lock_user(operator_of(request).pk)
    known = {"pk": request.session[SESSION], "user": user}
    return ConsoleSession.objects.live(at=now).filter(**known).exists()


def prove(request: HttpRequest, device: Device, *, now: datetime) -> None:
    """Keeps in the session that and when a device was proved, under a new key of the session."""
    login(request, device)
    request.session[PROVED_AT] = now.timestamp()
    request.session.pop(SET_UP_FROM, None)
    request.session.cycle_key()


def allow_set_up(request: HttpRequest, *, now: datetime) -> None:
    """Lets this browser add the first factor, and none that an earlier code or the password alone has let in."""
    user_id = operator_of(request).pk
    console_sessions.end_all(user_id=user_id, now=now, but=request.session[SESSION])
    request.session[SET_UP_FROM] = now.timestamp()


def _time(request: HttpRequest, name: str) -> datetime:
    return datetime.fromtimestamp(request.session.get(name, 0), UTC)
