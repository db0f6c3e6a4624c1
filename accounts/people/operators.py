"""Operators as the audit log names them."""

from datetime import datetime
from typing import cast

from django.http import HttpRequest

from accounts.audit import Actor, record
from accounts.models import User
from config.middleware.client_address import address_of
from config.middleware.request_id import current

IS_AN_OPERATOR = "This is an operator, who is touched only by those who may make operators."


def actor_of(request: HttpRequest) -> Actor:
    """The operator who is signed in to the console, from where, in which request."""
    operator = cast("User", request.user)
    return Actor(
        name=operator.email, id=operator.pk, address=address_of(request), request_id=current()
    )


def may_touch(request: HttpRequest, person: User | None) -> bool:
    """Whether the operator who asks may do anything to a person: to operators only those who may make operators."""
    operator = cast("User", request.user)
    return operator.is_superuser or person is None or not (person.is_staff or person.is_superuser)


def record_refused_sign_in(email: str, request: HttpRequest, *, now: datetime) -> None:
    """Somebody tried to come in to the console, and was told nothing.

    Whose account was meant is kept only where there is one: what else was typed may be a password. It is written
    either way, so that the time it takes does not tell them apart; how often is bounded by the rate limits.
    """
    meant = User.objects.filter(email=email[:254]).first()
    record(
        "operator:sign_in_refused",
        by=Actor(name="a stranger", address=address_of(request), request_id=current()),
        now=now,
        target=meant.email if meant else "",
        target_id=meant.pk if meant else "",
    )
