"""Refusals of the database that are faults of an input."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError, transaction

from config.platform.problems.problem import Fault, InvalidRequest


@contextmanager
def refused_as(fault: Fault) -> Iterator[None]:
    """A savepoint. Raises ``InvalidRequest`` with this fault if a constraint, as of a unique name, refuses it."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise InvalidRequest(errors=[fault]) from None
