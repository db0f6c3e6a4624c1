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
    sent: dict[str, str] = session.get_decoded().get(KEPT, {}) if session else {}
    return sent.get(_key(request))


def keep(request: HttpRequest, address: str) -> None:
    """What was sent was done, and leads there."""
    if FIELD not in request.POST:
        return
    with transaction.atomic():
        session = _locked(request)
        if session is None:
            return
        data = session.get_decoded()
        sent = {**data.get(KEPT, {}), _key(request): address}
        data[KEPT] = dict(list(sent.items())[-MOST_KEPT:])
        # Its row alone, so that it ends when it would have.
        encoded = request.session.encode(data)
        Session.objects.filter(pk=session.pk).update(session_data=encoded)


def _locked(request: HttpRequest) -> Session | None:
    """The session as it is now, not as this request has found it; None once somebody has signed out."""
    sessions = Session.objects.select_for_update(no_key=True)
    return sessions.filter(pk=request.session.session_key).first()


def _key(request: HttpRequest) -> str:
    return sha256(repr(sorted(request.POST.lists())).encode()).hexdigest()
