"""Errors of requests without a complete answer."""

from typing import Self


class ExchangeError(Exception):
    """No complete answer arrived.

    `sent`: the server may have received the whole request; if it has not, a repeat is safe. `reason` is a code. The
    text contains no address, header or body.
    """

    reason: str

    def __init__(self, message: str, *, sent: bool, reason: str | None = None) -> None:
        super().__init__(message)
        self.sent = sent
        self.reason = reason or type(self).reason

    def copy(self) -> Self:
        """Returns a copy to keep or raise: a raised exception refers to its frames, which would be a cycle."""
        return type(self)(str(self), sent=self.sent, reason=self.reason)


class Unreachable(ExchangeError):
    """No connection was made within the connect timeout: name, network, refusal, TLS, or a bad request."""

    reason = "unreachable"


class Broken(ExchangeError):
    """The connection failed, or the answer is truncated or unreadable."""

    reason = "truncated"


class Undecodable(Broken):
    """The body has an unknown coding, or its compressed data is corrupt."""


class TimedOut(ExchangeError):
    """The server was silent for longer than the read timeout, or the deadline passed."""

    reason = "too_slow"


class TooLarge(ExchangeError):
    """The body of the answer is longer than the limit."""

    reason = "too_large"
