"""The attempts at a call: asks its target and, while nothing of an answer has come, those of its other routes.

A call goes on from a target that cannot be reached, is silent, or refuses for reasons that are not the caller's. It
does not go on once an answer has begun, for a caller who has left or was stopped, or past its deadline.
"""

import logging
import time
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.api.problems import Problem
from config.db.connections import release_connection
from config.encryption import CannotDecrypt
from config.http.client import Client
from config.http.exchange import (
    Broken,
    Exchange,
    ExchangeError,
    Limits,
    TimedOut,
    TooLarge,
    Unreachable,
)
from llmproxy.calls import watch
from llmproxy.calls.admission import Call, estimate_of
from llmproxy.catalogue import cooling, health
from llmproxy.catalogue.readiness import give_back, key_of, ready_target
from llmproxy.dialects.protocol import (
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    Target,
)
from llmproxy.dialects.sse import EventTooLarge
from usage.settlement import Left, NextRoute, move_on

log = logging.getLogger(__name__)

# A larger answer, streamed or whole, is a failure of the provider.
MAX_ANSWER = 64 * 1024 * 1024
# Seconds after which a process logs again that it cannot read a provider's key.
LOG_AGAIN_AFTER = 3_600.0
# Failures of a provider, and not of the caller or of this service.
PROVIDER_FAULTS = (
    ExchangeError,
    EventTooLarge,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
)

_session = Client(ca_bundle=settings.LLM_CA_BUNDLE or None)
_unreadable: dict[str, float] = {}


class Attempts:
    """The attempts at one call, with the exchange of the current one."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._exchange: Exchange | None = None
        self._has_others = bool(call.others)
        self._deadline = time.monotonic() + settings.LLM_MAX_SECONDS

    @property
    def exchange(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def begin(self) -> None:
        """Asks the call's target, or the next one that can be asked. Raises ``ProviderUnavailable`` without any."""
        try:
            self._ask()
        except ProviderUnavailable as failure:
            if not self.go_on(failure):
                raise

    def await_head(self) -> None:
        """Waits for the head of a whole answer: its share of the time, and on where nobody else can be asked then.

        That is also where the caller has left meanwhile, for whom the answer is read to its end.
        """
        silent = TimedOut("the provider is silent", sent=True)
        if self.exchange.head(self._share()) is None:
            if (target := self._next(silent)) is not None:
                give_back(target, now=timezone.now())
                raise silent
            self.exchange.head(settings.LLM_MAX_SECONDS)

    def go_on(self, failure: BaseException) -> bool:
        """Asks another target after a failure; returns False where the failure ends the call."""
        self.note_failure(failure)
        while (target := self._next(failure)) is not None:
            if not self._move(target, failure):
                give_back(target, now=timezone.now())
                return False
            try:
                self._ask()
            except ProviderUnavailable as error:
                self.note_failure(error)
            else:
                return True
        return False

    def note_beginning(self) -> None:
        """Notes that the target has begun to answer."""
        if self._has_others:
            cooling.note_beginning(key_of(self._call.target))

    def note_answer(self) -> None:
        """Notes that the target has answered as it should, be it by a refusal of the request."""
        self.note_beginning()
        health.note(self._call.target.provider, failed=False)
        if self._has_others:
            asked_at = self._call.sent_at() or 0.0
            cooling.note_answer(key_of(self._call.target), asked_at=asked_at)

    def note_failure(self, failure: BaseException) -> None:
        """Notes a failure, unless it is of this side's making."""
        call, target = self._call, self._call.target
        if call.cut or call.stopped is not None or call.disconnected:
            return
        if isinstance(failure, ProviderRejected):
            self.note_answer()
        elif isinstance(failure, PROVIDER_FAULTS):
            health.note(target.provider, failed=True)
            if self._has_others:
                wait = _asked_wait(failure)
                cooling.note_failure(key_of(target), wait=wait, now=timezone.now())

    def close(self) -> None:
        """Cuts the current exchange, unless its answer was read to the end, and ends the watch."""
        self._drop()
        watch.forget(self._call)

    def _drop(self) -> None:
        if self._exchange is not None:
            self._exchange.close()

    def _next(self, failure: BaseException) -> Target | None:
        """The target to ask next; None where the failure ends the call."""
        call = self._call
        if not call.others or not self._comes_before_an_answer(failure):
            return None
        if call.cut or call.stopped is not None or call.disconnected or call.is_disconnected():
            return None
        if time.monotonic() >= self._deadline:
            return None
        try:
            return ready_target(call.others, is_only=False, now=timezone.now())
        except ProviderUnavailable:
            return None

    def _comes_before_an_answer(self, failure: BaseException) -> bool:
        """Whether nothing of an answer had come, and the failure is none of the request."""
        match failure:
            case Unreachable():
                return True
            case Broken():
                return not self._call.began
            case TimedOut():
                # A stream asks this as long as it has had no event for the caller.
                return self._call.request.stream or self._call.first_byte_at is None
            case TooLarge() | EventTooLarge():
                return False
        return isinstance(failure, PROVIDER_FAULTS)

    def _move(self, target: Target, failure: BaseException) -> bool:
        """Notes in the ledger who is asked next; returns False if the call is settled.

        While the database is away, the call goes on, and the watch or the settlement notes it later.
        """
        call, now = self._call, timezone.now()
        counted = estimate_of(call.request, (target,), model=call.model).counted
        move: dict[str, Any] = {
            "record_id": call.id,
            "to": NextRoute(target.provider, target.prices, counted),
            "left": self._left(failure),
            "now": now,
        }
        moved = True
        try:
            if call.moves:
                # They are made in their order.
                call.moves.add(move)
            else:
                moved = move_on(**move)
        except (OperationalError, InterfaceError):
            log.warning("route_noted_later")
            call.moves.add(move)
        finally:
            release_connection()
        if moved:
            log.warning(
                "call_goes_on",
                extra={"provider": call.target.provider, "reason": type(failure).__name__},
            )
            self._drop()
            call.begin_again(target)
        return moved

    def _left(self, failure: BaseException) -> Left | None:
        """The attempt that was left without an answer although the provider may have begun to make one."""
        call, sent_at = self._call, self._call.sent_at()
        if sent_at is None or not isinstance(failure, ExchangeError):
            return None
        return Left(
            call.target.provider,
            call.target.prices,
            input=call.input_estimate,
            output=call.unseen_output(),
            asked_at=timezone.now() - timedelta(seconds=time.monotonic() - sent_at),
        )

    def _ask(self) -> None:
        """Sends the call to its target and watches it. Raises ``ProviderUnavailable`` without a readable key."""
        call = self._call
        try:
            outgoing = call.codec.outgoing(
                call.request, target=call.target, output_limit=call.reservation.output_limit
            )
        except CannotDecrypt:
            _log_unreadable_key(call.target)
            raise ProviderUnavailable from None
        exchange = self._exchange = Exchange(
            _session,
            url=outgoing.url,
            headers=outgoing.headers,
            body=outgoing.body,
            limits=self._limits(),
        )
        call.sent_at = exchange.sent_at
        watch.register(call, exchange)

    def _share(self) -> float:
        """The seconds that a whole answer has: as many for each route left, unless its provider has its own number."""
        if self._call.target.read_timeout:
            return settings.LLM_MAX_SECONDS
        return (self._deadline - time.monotonic()) / (1 + len(self._call.others))

    def _limits(self) -> Limits:
        now, is_streamed, target = time.monotonic(), self._call.request.stream, self._call.target
        read = target.read_timeout or settings.LLM_READ_TIMEOUT
        if is_streamed:
            first_byte = target.read_timeout or settings.LLM_FIRST_BYTE_TIMEOUT or read
        else:
            # The first byte of a whole answer comes when it is made.
            first_byte = target.read_timeout or self._deadline - now
        # After the first keep-alive a stream has sent its status, so a retry must begin before.
        retry_seconds = settings.LLM_KEEPALIVE_SECONDS if is_streamed else read
        return Limits(
            connect_timeout=settings.LLM_CONNECT_TIMEOUT,
            first_byte_timeout=first_byte,
            read_timeout=read,
            deadline=self._deadline,
            max_bytes=MAX_ANSWER,
            retry_until=now + retry_seconds,
            has_next=bool(self._call.others),
        )


def _asked_wait(failure: BaseException) -> int | None:
    """The seconds for which a provider asked not to be asked again."""
    wait = failure.headers.get("Retry-After") if isinstance(failure, Problem) else None
    return int(wait) if wait else None


def _log_unreadable_key(target: Target) -> None:
    """Logs that a provider's key cannot be decrypted: once an hour, not once a call."""
    now = time.monotonic()
    if now - _unreadable.get(target.provider, -LOG_AGAIN_AFTER) >= LOG_AGAIN_AFTER:
        _unreadable[target.provider] = now
        log.error("provider_key_unreadable", extra={"provider": target.provider})
