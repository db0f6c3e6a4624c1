"""Translates violated constraints into faults of an input."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, transaction

from config.platform.problems.problem import Fault, InvalidRequest


@contextmanager
def refused_as(fault: Fault) -> Iterator[None]:
    """Opens a savepoint; raises ``InvalidRequest`` with this fault if a constraint is violated within it."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise InvalidRequest(errors=[fault]) from None
