"""What is sent twice from one page of the console, as by a double click, is done once.

Every page that asks carries a number of its own. Where it led is kept in the operator's session, by that number and
all that was sent with it: what is changed and sent anew from the same page is another wish.
"""

from hashlib import sha256
from uuid import uuid4

from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest

FIELD = "once"
KEPT = "sent"
MOST_KEPT = 20


def new_number() -> str:
    return uuid4().hex


def where_it_led(request: HttpRequest) -> str | None:
    """The address that the same led to before; None where it is new.

    Within a transaction it waits for what else this session sends, and the others for this one.
    """
    if FIELD not in request.POST:
        return None
    with transaction.atomic():
        session = _locked(request)
    return _sent(session).get(_key(request))


def claim(request: HttpRequest, address: str) -> str | None:
    """The same; what is new leads to this address from now on, until it is kept or released."""
    if FIELD not in request.POST:
        return None
    with transaction.atomic():
        session = _locked(request)
        led = _sent(session).get(_key(request))
        if led is None:
            _write(request, session, address)
        return led


def keep(request: HttpRequest, address: str) -> None:
    """What was sent was done, and leads there."""
    if FIELD in request.POST:
        with transaction.atomic():
            _write(request, _locked(request), address)


def release(request: HttpRequest) -> None:
    """What was sent was refused, and may be sent again."""
    if FIELD in request.POST:
        with transaction.atomic():
            _write(request, _locked(request), None)


def _sent(session: Session | None) -> dict[str, str]:
    return session.get_decoded().get(KEPT, {}) if session else {}


def _write(request: HttpRequest, session: Session | None, address: str | None) -> None:
    if session is None:
        return
    sent = {key: led for key, led in _sent(session).items() if key != _key(request)}
    if address is not None:
        sent[_key(request)] = address
    data = {**session.get_decoded(), KEPT: dict(list(sent.items())[-MOST_KEPT:])}
    # Its row alone, so that it ends when it would have.
    encoded = request.session.encode(data)
    Session.objects.filter(pk=session.pk).update(session_data=encoded)


def _locked(request: HttpRequest) -> Session | None:
    """The session as it is now, not as this request has found it; None once somebody has signed out."""
    sessions = Session.objects.select_for_update(no_key=True)
    return sessions.filter(pk=request.session.session_key).first()


def _key(request: HttpRequest) -> str:
    return sha256(repr(sorted(request.POST.lists())).encode()).hexdigest()
