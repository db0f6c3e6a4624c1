"""Classifies failures to connect to the database, as one word for the log.

The driver's message contains the address, the role and, from some servers, more; the log format drops all of it.
"""

import logging

from config.platform.observability.redaction import class_name

# Fragments of driver and server messages; the first match gives the cause.
_CAUSES = {
    "password authentication failed": "password_refused",
    "no password supplied": "password_missing",
    "pg_hba.conf": "host_refused",
    "not permitted to log in": "role_may_not_log_in",
    "too many clients": "no_connection_free",
    "too many connections": "no_connection_free",
    "connection slots": "no_connection_free",
    "the database system is": "server_starts_or_stops",
    "not currently accepting connections": "database_closed",
    "configuration parameter": "option_refused",
    "command-line": "option_refused",
    "startup parameter": "option_refused",
    "invalid value for parameter": "option_refused",
    "permission denied to set parameter": "option_refused",
    "permission denied for database": "role_may_not_connect",
    "certificate": "certificate_refused",
    "SSL": "tls_refused",
    "Connection refused": "nothing_listens",
    "No such file or directory": "no_socket",
    "translate host name": "name_unknown",
    "resolve host": "name_unknown",
    "Name or service not known": "name_unknown",
    "timeout": "timed_out",
    "timed out": "timed_out",
    "No route to host": "unreachable",
    "unreachable": "unreachable",
    "closed the connection unexpectedly": "closed",
}
_MISSING = {'role "': "role_unknown", 'database "': "database_unknown"}


class Cause(logging.Filter):
    """Adds the member ``reason`` to a record whose arguments contain an error."""

    def filter(self, record: logging.LogRecord) -> bool:
        for each in record.args if isinstance(record.args, tuple) else ():
            if isinstance(each, BaseException):
                record.reason = cause_of(each)
        return True


def cause_of(error: BaseException) -> str:
    """Returns a word for the cause, or the error's class for an unknown message."""
    text = str(error)
    if "does not exist" in text:
        for part, cause in _MISSING.items():
            if part in text.rpartition("FATAL:")[2]:
                return cause
    return next((cause for part, cause in _CAUSES.items() if part in text), class_name(error))
