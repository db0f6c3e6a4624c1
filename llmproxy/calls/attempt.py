"""One target asked: the exchange with it, and what has come of its answer."""

import logging
import time
from dataclasses import replace
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from config.platform.encryption import CannotDecrypt
from config.platform.http.client import Limits
from config.platform.http.exchange import Exchange
from llmproxy.calls.admission import Admission
from llmproxy.calls.meter import Meter
from llmproxy.catalogue import known_refusals
from llmproxy.catalogue.choosing import Choice
from llmproxy.dialects import asking
from llmproxy.dialects.model_rules import dropped, left_out
from llmproxy.dialects.protocol import ProviderUnavailable, Target, TokenUsage
from llmproxy.prompts.estimates import Estimate
from llmproxy.requests.call_request import CallRequest

log = logging.getLogger(__name__)

# A larger answer, streamed or whole, is a failure of the provider. It is read on for its usage, up to as many again.
MAX_ANSWER = 64 * 1024 * 1024
MOST_READ = 4 * MAX_ANSWER
# Seconds after which a process logs again that it cannot read a provider's key.
LOG_AGAIN_AFTER = 3_600.0

_unreadable: dict[str, float] = {}


class Attempt:
    """One target asked. Each route gets a new one, so nothing is reset; failover makes it.

    ``share`` are the seconds that a whole answer has until another route is looked for: as many for each of the
    ``routes`` left, unless the provider has its own number. The relay sets ``failure`` and what it reports.
    """

    __slots__ = (
        "asked_at",
        "dropped",
        "estimate",
        "exchange",
        "failure",
        "failure_report",
        "has_answered",
        "meter",
        "share",
        "target",
    )

    def __init__(
        self, target: Target, estimate: Estimate, *, deadline: float, routes: int = 1
    ) -> None:
        self.target = target
        self.estimate = estimate
        left = deadline - time.monotonic()
        self.share = settings.LLM_MAX_SECONDS if target.read_timeout else left / routes
        self.meter = Meter()
        self.asked_at: datetime = timezone.now()
        self.exchange: Exchange | None = None
        # Set once the head of an answer has come with the status 200.
        self.has_answered = False
        self.failure: Exception | None = None
        # The members that the model does not take.
        self.dropped: list[str] = []
        # The usage that a failure in place of an answer reports.
        self.failure_report: TokenUsage | None = None

    def ask(self, admission: Admission, *, deadline: float, has_next: bool) -> None:
        """Sends the request. Raises ``ProviderUnavailable`` without a readable key."""
        request, target, now = admission.request, self.target, time.monotonic()
        read = target.read_timeout or settings.LLM_READ_TIMEOUT
        if request.stream:
            first_byte = target.read_timeout or settings.LLM_FIRST_BYTE_TIMEOUT or read
        else:
            # The first byte of a whole answer comes when it is made.
            first_byte = target.read_timeout or deadline - now
        limits = Limits(
            connect_timeout=settings.LLM_CONNECT_TIMEOUT,
            first_byte_timeout=first_byte,
            read_timeout=read,
            deadline=deadline,
            max_bytes=MOST_READ,
            # After the first keep-alive a stream has sent its status, so a retry must begin before.
            retry_until=now + (settings.LLM_KEEPALIVE_SECONDS if request.stream else read),
            has_next=has_next,
        )
        try:
            outgoing = target.codec(request.surface).outgoing(
                self._taken(request), target=target, output_limit=admission.reservation.output_limit
            )
        except CannotDecrypt:
            _log_unreadable_key(target)
            raise ProviderUnavailable from None
        self.exchange = asking.begin(outgoing, limits=limits)

    def _taken(self, request: CallRequest) -> CallRequest:
        """The request without the members that the target's model does not take."""
        refused = known_refusals.refused_by(self.target, request.surface)
        names = left_out(request.members, model=self.target.model, also=refused)
        if not names:
            return request
        self.dropped = dropped(request.members, names)
        members = {name: each for name, each in request.members.items() if name not in names}
        return replace(request, members=members)

    def own_model_name(self, model: Choice) -> str | None:
        """The model's name in the answer; None where it is the provider's name."""
        return model.name if model.name != self.target.model else None

    def sent_at(self) -> float | None:
        """The monotonic time when the request was sent; None where the provider cannot have received it."""
        return None if self.exchange is None else self.exchange.sent_at()

    def close(self) -> None:
        """Cuts the exchange, unless its answer was read to the end. Idempotent; any thread may call it."""
        if self.exchange is not None:
            self.exchange.close()


def _log_unreadable_key(target: Target) -> None:
    """Logs that a provider's key cannot be decrypted: once an hour, not once a call."""
    now = time.monotonic()
    if now - _unreadable.get(target.provider, -LOG_AGAIN_AFTER) >= LOG_AGAIN_AFTER:
        _unreadable[target.provider] = now
        log.error("provider_key_unreadable", extra={"provider": target.provider})
