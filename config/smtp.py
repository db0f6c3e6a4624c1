"""Handing mail to a server by SMTP, which is over in time, whatever the server does.

Django limits each silence. A server that sends a byte now and then, as some do to whom they do not trust, or one whose
answer always has one more line, would keep whoever sends for ever.
"""

import smtplib
from contextlib import suppress
from socket import SHUT_RDWR, socket
from threading import Timer

from django.core.mail.backends import smtp

# For one mail, from the connection to the farewell. Sending is quick; where it is not, it is tried again later.
MOST_SECONDS = 120.0


class EmailBackend(smtp.EmailBackend):
    """Django's, whose connections are cut when their time is over: an error like any other of the network."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _OfTLS if self.use_ssl else _Limited


class _Limited(smtplib.SMTP):
    _held: socket | None = None

    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        # What TLS is laid over later, under both; the library has no other place before the handshake.
        connected: socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        # One of its own: what TLS is laid over gives its descriptor away.
        self._held = connected.dup()
        self._watchdog = Timer(MOST_SECONDS, _cut, [self._held])
        self._watchdog.daemon = True
        self._watchdog.start()
        return connected

    def close(self) -> None:
        super().close()
        if self._held is not None:
            self._watchdog.cancel()
            self._held.close()


class _OfTLS(smtplib.SMTP_SSL, _Limited):
    """Through TLS from the first byte."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        try:
            return super()._get_socket(host, port, timeout)
        except BaseException:
            # There is nobody yet who could close what has come to nothing.
            self.close()
            raise


def _cut(sock: socket) -> None:
    with sock, suppress(OSError):
        sock.shutdown(SHUT_RDWR)
