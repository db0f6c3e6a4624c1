"""The caller of a request as the audit log names them, and rules about operators in the console."""

from datetime import datetime
from typing import cast

from django.http import HttpRequest

from accounts.audit import Actor, record
from accounts.models import User
from config.platform.request.client_address import address_of
from config.platform.request.request_id import current

IS_AN_OPERATOR = "This is an operator. Only owners may change operators."


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in person, with the address and id of the request."""
    person = cast("User", request.user)
    return Actor(name=person.email, id=person.pk, address=address_of(request), request_id=current())


def may_touch(request: HttpRequest, person: User | None) -> bool:
    """Returns whether the signed-in operator may change a person; only owners may change operators."""
    operator = cast("User", request.user)
    return operator.is_owner or person is None or not (person.is_staff or person.is_superuser)


def record_refused_sign_in(email: str, request: HttpRequest, *, now: datetime) -> None:
    """Audits a refused sign-in to the console.

    The event names the account only if it exists, because other input may be a password. Both cases write one event,
    so that the time reveals nothing; rate limits bound their number.
    """
    meant = User.objects.by_email(email[:254]).first()
    by = Actor(name="unknown caller", address=address_of(request), request_id=current())
    record("operator:sign_in_refused", meant or "", by=by, now=now)
