"""Errors of requests whose answer did not arrive whole."""

from typing import Self


class ExchangeError(Exception):
    """No whole answer arrived.

    `sent`: the server may have received the whole request; if not, it is safe to repeat. `reason` is a code. The text
    holds no address, header or body.
    """

    reason: str

    def __init__(self, message: str, *, sent: bool, reason: str | None = None) -> None:
        super().__init__(message)
        self.sent = sent
        self.reason = reason or type(self).reason

    def copy(self) -> Self:
        """A copy to keep or raise: a raised exception refers to its frames, which would refer to it."""
        return type(self)(str(self), sent=self.sent, reason=self.reason)


class Unreachable(ExchangeError):
    """No connection within the connect timeout: name, network, refusal, TLS, or a bad request."""

    reason = "unreachable"


class Broken(ExchangeError):
    """The connection failed, or the answer is truncated or unreadable."""

    reason = "truncated"


class Undecodable(Broken):
    """The body has a coding that is unknown or broken."""


class TimedOut(ExchangeError):
    """The server was silent for longer than the read timeout, or the deadline passed."""

    reason = "too_slow"


class TooLarge(ExchangeError):
    """The body of the answer is longer than the limit."""

    reason = "too_large"
