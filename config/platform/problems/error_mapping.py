"""Maps exceptions to problems; an exception without one is unexpected."""

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice
from traceback import walk_tb
from typing import Any

import psycopg
from django import db
from django.core.exceptions import (
    BadRequest,
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils import timezone
from procrastinate.exceptions import ConnectorException
from rest_framework import exceptions
from rest_framework.settings import api_settings

from config.platform.problems import problem as problems
from config.platform.problems.problem import Problem, pointer

THROTTLED_SECONDS = 60

log = logging.getLogger(__name__)


class UnknownHost(problems.MalformedRequest):
    default_detail = "The service does not answer under the host name of this request."


DATABASE_AWAY = (
    db.OperationalError,
    db.InterfaceError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
)


DATA_REFUSED = (db.DataError, psycopg.DataError)
# psycopg's functions that read rows, in C and in Python.
READING = ("load_row", "load_rows")
# The first match wins.
KINDS: tuple[tuple[tuple[type[BaseException], ...], type[Problem]], ...] = (
    ((Http404,), problems.NotFound),
    ((PermissionDenied,), problems.PermissionRefused),
    ((exceptions.NotAuthenticated, exceptions.AuthenticationFailed), problems.NotAuthenticated),
    ((RequestDataTooBig,), problems.RequestTooLarge),
    ((DisallowedHost,), UnknownHost),
    (
        (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError),
        problems.MalformedRequest,
    ),
)
BY_STATUS: Mapping[int, type[Problem]] = {
    400: problems.MalformedRequest,
    401: problems.NotAuthenticated,
    403: problems.PermissionRefused,
    404: problems.NotFound,
    405: problems.MethodNotAllowed,
    406: problems.NotAcceptable,
    413: problems.RequestTooLarge,
    415: problems.UnsupportedMediaType,
    500: problems.InternalError,
    503: problems.ServiceUnavailable,
}


def problem_of(error: BaseException) -> Problem | None:
    """Returns the problem of an exception, or None for an unexpected one."""
    while isinstance(error, ConnectorException) and error.__cause__ is not None:
        # The queue wraps errors of the database.
        error = error.__cause__
    if isinstance(error, Problem):
        return error
    if isinstance(error, DATABASE_AWAY + DATA_REFUSED):
        return _of_database(error)
    if isinstance(error, exceptions.ValidationError):
        return problems.InvalidRequest(errors=islice(_faults(error.detail), problems.MAX_FAULTS))
    if isinstance(error, exceptions.Throttled):
        return _throttled(error)
    for kinds, problem in KINDS:
        if isinstance(error, kinds):
            return problem()
    kind = BY_STATUS.get(error.status_code) if isinstance(error, exceptions.APIException) else None
    return kind() if kind else None


def _of_database(error: BaseException) -> Problem | None:
    if isinstance(error, DATABASE_AWAY):
        log.warning("database_unavailable", exc_info=error)
        return problems.ServiceUnavailable()
    if _raised_while_reading(error):
        # An unreadable value, such as the year 12000, was written by another program.
        return None
    # The value passed every check but is invalid, such as a number out of a column's range.
    log.warning("data_refused", exc_info=error)
    return problems.InvalidRequest("The request has a value that cannot be stored.")


def _raised_while_reading(error: BaseException) -> bool:
    frames = walk_tb(error.__traceback__)
    return any(frame.f_code.co_name.endswith(READING) for frame, _ in frames)


def _throttled(error: exceptions.Throttled) -> Problem:
    now = timezone.now()
    wait: float = getattr(error, "wait", None) or THROTTLED_SECONDS
    return problems.RefusedUntil(now=now, until=now + timedelta(seconds=wait))


def _faults(detail: Any, path: tuple[str | int, ...] = ()) -> Iterator[problems.Fault]:
    """Flattens REST framework's nested details and keeps their codes."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            own = key == api_settings.NON_FIELD_ERRORS_KEY
            yield from _faults(value, path if own else (*path, key))
    elif isinstance(detail, list):
        for index, value in enumerate(detail):
            yield from _faults(value, path if isinstance(value, str) else (*path, index))
    else:
        yield problems.Fault(pointer(path), getattr(detail, "code", None) or "invalid", str(detail))
