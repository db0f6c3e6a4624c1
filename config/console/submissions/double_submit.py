"""Guards against double submission, as by a double click: a form that is sent twice takes effect once.

Every action's page has a new nonce. The operator's session maps that nonce and all other values of the form to the
address of the result: a form that is changed and sent again is a new submission.
"""

from hashlib import sha256

from django.contrib import messages
from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest, HttpResponseRedirect

from config.platform.session_store import row_key

FIELD = "once"
KEPT = "sent"
MOST_KEPT = 20
ALREADY_SUBMITTED = "You have already submitted this form. It was applied once."


class ResultRedirect(HttpResponseRedirect):
    """The redirect after a submission, with a message about its outcome."""

    def __init__(self, address: str, message: str = "", level: int = messages.INFO) -> None:
        super().__init__(address)
        self.message, self.level = message, level


def repeated(request: HttpRequest, *, claimed: str | None) -> ResultRedirect | None:
    """Returns the redirect of the same earlier submission; None for a new one.

    Within a transaction the submissions of one session are serialized. Outside one, a new submission redirects to
    ``claimed`` until its result is kept.
    """
    if FIELD not in request.POST:
        return None
    with transaction.atomic():
        session = _locked(request)
        led = _sent(session).get(_key(request))
        if led is None and claimed:
            _write(request, session, claimed)
    return ResultRedirect(led, ALREADY_SUBMITTED, messages.WARNING) if led else None


def keep(request: HttpRequest, address: str | None) -> None:
    """Records the address of a submission's result; None for a refused one, which may be sent again."""
    if FIELD in request.POST:
        with transaction.atomic():
            _write(request, _locked(request), address)


def _sent(session: Session | None) -> dict[str, str]:
    return session.get_decoded().get(KEPT, {}) if session else {}


def _write(request: HttpRequest, session: Session | None, address: str | None) -> None:
    if session is None:
        return
    sent = {key: led for key, led in _sent(session).items() if key != _key(request)}
    if address is not None:
        sent[_key(request)] = address
    data = {**session.get_decoded(), KEPT: dict(list(sent.items())[-MOST_KEPT:])}
    # Updates only the data and keeps the session's expiry.
    encoded = request.session.encode(data)
    Session.objects.filter(pk=session.pk).update(session_data=encoded)


def _locked(request: HttpRequest) -> Session | None:
    """Returns the stored session, which other requests may have changed, under a lock; None after a sign-out."""
    if request.session.session_key is None:
        return None
    sessions = Session.objects.select_for_update(no_key=True)
    return sessions.filter(pk=row_key(request.session.session_key)).first()


def _key(request: HttpRequest) -> str:
    return sha256(repr(sorted(request.POST.lists())).encode()).hexdigest()
