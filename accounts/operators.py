"""Operators as the audit log names them."""

from typing import cast

from django.http import HttpRequest

from accounts.audit import Actor
from accounts.models import User
from config.client_address import address_of
from config.request_ids import current


def actor_of(request: HttpRequest) -> Actor:
    """The operator who is signed in to the console, from where, in which request."""
    operator = cast("User", request.user)
    return Actor(
        name=operator.email, id=operator.pk, address=address_of(request), request_id=current()
    )
