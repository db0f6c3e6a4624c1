"""Calls for a model with two routes, at providers of bare sockets: when a call goes on to the next route."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from json import dumps
from threading import Event
from typing import Any
from unittest import mock

import pytest
from django.core.cache import cache
from django.db import OperationalError
from django.utils import timezone

from accounts.models import Session, User
from accounts.sessions.authentication import AccessRevoked
from accounts.sessions.sign_in import TokenPair
from config.platform.db.connections import release_connection
from config.platform.problems.problem import InvalidRequest, Problem, ServiceUnavailable
from licensing.callers import Caller, load_caller
from llmproxy.calls import attempt, watch
from llmproxy.calls.attempt import Attempt as CallAttempt
from llmproxy.calls.call import Call
from llmproxy.calls.relay import Stream, complete, stream
from llmproxy.calls.stop import StopReason
from llmproxy.catalogue import health
from llmproxy.catalogue.limit_names import limit_name
from llmproxy.dialects.chat_answers import DONE
from llmproxy.dialects.protocol import (
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
)
from llmproxy.models import LanguageModel, Route
from llmproxy.models import Provider as ProviderRow
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit
from tests.llmproxy.test_cooling import forget
from tests.pairing import each_once
from tests.races import race
from tests.standins.raw_server import CHUNKED, Peer, Provider
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.spending.statements import Attempt, attempts_of
from usage.spending.summaries import summary

pytestmark = pytest.mark.django_db(transaction=True)
Script = Callable[[Peer, bytes], object]
USAGE = {"prompt_tokens": 9, "completion_tokens": 5}
EMPTY = b"Content-Length: 0\r\n\r\n"
SECONDS = 1
# So many routes that a share of the time is short although the time is long.
SHARES = 60


def event(text: str | None) -> bytes:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": None if text else "stop"}]
    return b"data: %s\n\n" % dumps({"choices": choices}).encode()


def answers(text: str) -> Script:
    """Answers as it is asked: by events or as a whole."""

    def script(peer: Peer, request: bytes) -> None:
        if b'"stream":true' in request:
            usage = b'data: {"choices":[],"usage":%s}\n\n' % dumps(USAGE).encode()
            peer.send(CHUNKED)
            peer.chunk(event(text) + event(None) + usage + DONE)
            peer.chunk(b"")
        else:
            choices = [{"message": {"content": text}, "finish_reason": "stop"}]
            peer.answer(dumps({"choices": choices, "usage": USAGE}).encode())

    return script


def sends(data: bytes) -> Script:
    return lambda peer, _: peer.send(data)


def refuses(status: int, *headers: bytes) -> Script:
    lines = b"".join(each + b"\r\n" for each in headers)
    return sends(b"HTTP/1.1 %d No\r\n%s%s" % (status, lines, EMPTY))


def hangs(peer: Peer, _: bytes) -> None:
    peer.wait_until_gone()


def resets(peer: Peer, _: bytes) -> None:
    time.sleep(0.15)
    peer.reset()


class Routed:
    """A model with a route to each of some providers, and a caller."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.model = LanguageModel.objects.create(name="house", provider_name="-")
        self.providers: list[Provider] = []
        # The number of requests by provider.
        self.asked: list[int] = []

    def add(self, script: Script | None, **columns: Any) -> ProviderRow:
        """A provider that plays a script; none refuses connections."""
        number = len(self.providers) + 1
        if script is None:
            with socket.create_server(("127.0.0.1", 0)) as closed:
                port = closed.getsockname()[1]
        else:
            place = len(self.providers)
            self.asked.append(0)
            provider = Provider(lambda peer: self.play(peer, script, place), None)
            self.providers.append(provider)
            port = provider.port
        base_url = f"http://127.0.0.1:{port}/v1"
        row = ProviderRow.objects.create(
            **{"name": f"number-{self.routes() + 1}", "base_url": base_url, **columns}
        )
        Route.objects.create(
            model=self.model,
            provider=row,
            provider_name=f"m-{number}",
            order=self.routes(),
            tokenizer="o200k_base",
            input_price=1_000_000 * (self.routes() + 1),
            output_price=1_000_000 * (self.routes() + 1),
        )
        return row

    def routes(self) -> int:
        return Route.objects.filter(model=self.model).count()

    def admit(self, *, streamed: bool = True, now: datetime | None = None, **members: Any) -> Call:
        asked = {"model": "house", "messages": [{"role": "user", "content": "hello"}], **members}
        request = parse(asked, stream=streamed)
        return admit(caller=self.caller, request=request, request_id="r", now=now or timezone.now())

    def ask(self, *, streamed: bool = True, **members: Any) -> bytes:
        call = self.admit(streamed=streamed, **members)
        return read(stream(call)) if streamed else dumps(complete(call)).encode()

    def play(self, peer: Peer, script: Script, place: int) -> None:
        # A connection is used again.
        while peer.sock.fileno() != -1 and (request := peer.request()):
            self.asked[place] += 1
            script(peer, request)


def abandoned() -> list[Attempt]:
    """The abandoned attempts on the one record."""
    record = UsageRecord.objects.get()
    return attempts_of([record])[record.pk]


def read(answer: Stream) -> bytes:
    try:
        return b"".join(answer)
    finally:
        answer.close()


@pytest.fixture
def routed(pair: TokenPair, user: User, settings) -> Iterator[Routed]:
    settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None
    model = Routed(caller)
    yield model
    for each in model.providers:
        each.stop()
    forget()
    health._counts.clear()
    watch._calls.clear()
    assert [each.errors for each in model.providers] == [[] for _ in model.providers]


@contextmanager
def unwatched() -> Iterator[None]:
    with mock.patch.object(watch, "_start"):
        yield


REFUSALS = {
    "429": refuses(429, b"Retry-After: 7"),
    "500": refuses(500),
    "503": refuses(503),
    "401": refuses(401),
    "403": refuses(403),
}
SILENCES = {"hangs": hangs, "resets": resets}


def test_a_name_of_the_limit_that_was_refused_is_not_sent_again(routed: Routed) -> None:
    knows = "max_completion_tokens"

    def script(peer: Peer, request: bytes) -> None:
        name = "max_tokens" if b'"max_tokens"' in request else "max_completion_tokens"
        if name == knows:
            answers("Hi")(peer, request)
        else:
            said = b'{"message":"Unsupported parameter: %b"}' % name.encode()
            peer.send(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    row = routed.add(script)
    asked = []
    for streamed in (True, False):
        routed.ask(streamed=streamed)
        asked += routed.asked
    assert asked == [2, 3]
    # An operator who says a name is obeyed.
    row.limit_name = "max_tokens"
    assert (limit_name(row, model="m-1"), limit_name(row, model="m-2")) == ("max_tokens",) * 2
    # By now the server is another.
    knows = "max_tokens"
    routed.ask()
    routed.ask()
    assert routed.asked == [6]


def test_a_refusal_that_repeats_a_callers_words_renames_nothing(routed: Routed) -> None:
    said = b'{"message":"Invalid value: \'unsupported max_tokens\'."}'
    row = routed.add(sends(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)))
    with pytest.raises(ProviderRejected):
        routed.ask(streamed=False)
    assert routed.asked == [2]
    assert limit_name(row, model="m-1") == "max_tokens"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_goes_on_without_a_member_that_its_model_refuses(
    routed: Routed, streamed: bool, now: datetime
) -> None:
    def script(peer: Peer, request: bytes) -> None:
        refused = [each for each in (b"temperature", b"max_tokens") if b'"%b"' % each in request]
        if not refused:
            answers("Hi")(peer, request)
        else:
            said = b'{"message":"`%b` is not supported with this model."}' % refused[0]
            peer.send(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    routed.add(script)
    call = routed.admit(streamed=streamed, temperature=0.2, top_p=0.9)
    answer = read(stream(call)) if streamed else dumps(complete(call)).encode()
    assert b"Hi" in answer
    # The limit had another name too.
    assert routed.asked == [3]
    assert call.remaining(now=now)["X-Dropped-Members"] == "temperature"
    assert UsageRecord.objects.get().output_tokens == USAGE["completion_tokens"]


def test_a_member_is_left_out_once(routed: Routed) -> None:
    said = b'{"message":"`temperature` is deprecated for this model."}'
    routed.add(sends(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)))
    for members, asked in (({"temperature": 0.2}, 2), ({}, 3)):
        with pytest.raises(ProviderRejected):
            routed.ask(streamed=False, **members)
        assert routed.asked == [asked]


@pytest.mark.parametrize(
    ("streamed", "how"), each_once([True, False], [*REFUSALS, *SILENCES, "closed"])
)
def test_a_call_goes_on_to_the_next_route_before_the_first_byte(
    routed: Routed, how: str, streamed: bool
) -> None:
    limits = {"read_timeout": SECONDS} if how == "hangs" else {}
    routed.add({**REFUSALS, **SILENCES}.get(how), **limits)
    routed.add(answers("second"))
    assert b"second" in routed.ask(streamed=streamed)
    # With another route left, nobody asks the first again.
    assert routed.asked == ([1] if how == "closed" else [1, 1])
    record = UsageRecord.objects.get()
    assert (record.provider, record.end, record.source) == ("number-2", "done", "provider")
    assert (record.input_tokens, record.output_tokens) == (9, 5)
    # By the prices of the second.
    assert record.cost == 2 * 14
    assert len(abandoned()) == (how in SILENCES)
    for each in abandoned():
        assert (each.provider, each.is_reported) == ("number-1", False)
        assert each.input == record.reserved_input
        assert each.cost == each.input + each.output
        if how == "hangs":
            # A second of ten tokens; of a stream's wait a tenth, because the model is not known to think.
            assert each.output >= (1 if streamed else 10)


@pytest.mark.parametrize(
    "first",
    [
        b"<html>Sorry</html>",
        b'data: {"error": {"message": "busy", "type": "overloaded_error"}}\n\n',
        b'data: {"object": "error", "message": "no", "code": 500}\n\n',
    ],
)
def test_an_error_in_place_of_the_first_event_goes_on(routed: Routed, first: bytes) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(first)
        peer.chunk(b"")

    routed.add(script)
    routed.add(answers("second"))
    assert b"second" in routed.ask()
    assert not abandoned()


def test_an_error_in_place_of_the_first_event_is_an_http_error_and_costs_nothing(
    routed: Routed,
) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(b'data: {"error": {"message": "busy", "type": "overloaded_error"}}\n\n')
        peer.chunk(b"")

    routed.add(script)
    with pytest.raises(ProviderUnavailable):
        stream(routed.admit())
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens) == ("provider_failed", 0)


def test_a_silent_route_is_left_after_keep_alives_have_begun(routed: Routed, settings) -> None:
    settings.LLM_KEEPALIVE_SECONDS = 0.1
    routed.add(hangs, read_timeout=SECONDS)
    routed.add(lambda peer, _: (peer.send(CHUNKED), peer.wait_until_gone()), read_timeout=SECONDS)
    routed.add(answers("third"))
    answer = read(stream(routed.admit()))
    assert answer.startswith(b": keep-alive\n: keep-alive\n")
    assert b"third" in answer
    assert answer.endswith(DONE)
    assert UsageRecord.objects.get().provider == "number-3"
    assert [each.provider for each in abandoned()] == ["number-1", "number-2"]


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_breaks_after_its_head_does_not_go_on(
    routed: Routed, streamed: bool
) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        time.sleep(0.1)
        peer.reset()

    routed.add(script)
    routed.add(answers("second"))
    with pytest.raises(ProviderError):
        routed.ask(streamed=streamed)
    assert routed.asked == [1, 0]
    assert UsageRecord.objects.get().provider == "number-1"


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_cannot_be_read_goes_on_and_its_reservation_is_the_clients(
    routed: Routed, streamed: bool
) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    routed.add(lambda peer, _: (peer.send(head + b"data: {[\n\n"), peer.close()))
    routed.add(answers("Hi"))
    assert b"Hi" in routed.ask(streamed=streamed, max_tokens=50)
    (left,) = abandoned()
    assert left.output == 50
    assert UsageRecord.objects.get().end == "done"


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_nests_too_deep_does_not_go_on(routed: Routed, streamed: bool) -> None:
    deep = b'{"choices": [{"delta": %b}]}' % (b"[" * 900 + b"]" * 900)
    body = b"data: %b\n\n" % deep if streamed else deep
    routed.add(sends(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))
    routed.add(answers("Hi"))
    with pytest.raises(ProviderError):
        routed.ask(streamed=streamed, max_tokens=50)
    assert routed.asked == [1, 0]
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens) == ("answer_unread", 50)


def test_an_answer_that_breaks_after_output_does_not_go_on(routed: Routed) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(event("one"))
        time.sleep(0.1)
        peer.reset()

    routed.add(script)
    routed.add(answers("second"))
    answer = routed.ask()
    assert b"one" in answer
    assert b"provider_error" in answer
    assert routed.asked == [1, 0]


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_refusal_of_the_request_itself_does_not_go_on(routed: Routed, status: int) -> None:
    routed.add(refuses(status))
    routed.add(answers("second"))
    for streamed in (True, False):
        with pytest.raises(ProviderRejected):
            routed.ask(streamed=streamed)
    assert routed.asked[1] == 0


def test_the_last_failure_is_the_calls_where_all_fail(routed: Routed) -> None:
    routed.add(refuses(500))
    routed.add(hangs, read_timeout=SECONDS)
    with pytest.raises(ProviderTimeout):
        routed.ask(streamed=False)
    record = UsageRecord.objects.get()
    assert (record.provider, record.end, record.source) == ("number-2", "timeout", "estimated")
    assert record.cost == 2 * (record.input_tokens + record.output_tokens)
    assert not abandoned()


@pytest.mark.wall_time
def test_the_deadline_covers_all_attempts(routed: Routed, settings) -> None:
    settings.LLM_MAX_SECONDS = 6.0
    for _ in range(3):
        routed.add(hangs)
    call = routed.admit(streamed=False)
    with pytest.raises(ProviderTimeout):
        complete(call)
    assert time.monotonic() >= call.deadline
    # Each had its share of the time.
    assert routed.asked == [1, 1, 1]


def test_a_whole_answer_is_awaited_beyond_its_share_where_nobody_else_can_be_asked(
    routed: Routed, settings
) -> None:
    settings.LLM_MAX_SECONDS = 1.0 * SHARES
    said = answers("first")
    routed.add(lambda peer, asked: (time.sleep(1.5), said(peer, asked)))
    for _ in range(SHARES - 1):
        routed.add(None, calls_per_minute=0)
    assert b"first" in routed.ask(streamed=False)
    assert routed.asked == [1]
    assert UsageRecord.objects.get().source == "provider"


def test_a_failing_route_cools_down_and_comes_back(routed: Routed) -> None:
    works = Event()
    said = answers("first")
    routed.add(
        lambda peer, asked: said(peer, asked) if works.is_set() else refuses(500)(peer, asked)
    )
    routed.add(answers("second"))
    for _ in range(3):
        assert b"second" in routed.ask()
    before = routed.asked[0]
    # A later call is admitted to the second at once.
    call = routed.admit()
    assert UsageRecord.objects.get(pk=call.id).provider == "number-2"
    assert b"second" in read(stream(call))
    assert routed.asked[0] == before
    works.set()
    later = timezone.now() + timedelta(seconds=31)
    assert b"first" in read(stream(routed.admit(now=later)))
    assert b"first" in routed.ask()


def test_a_retry_after_is_kept_to(routed: Routed) -> None:
    routed.add(refuses(429, b"Retry-After: 300"))
    routed.add(refuses(429, b"Retry-After: 200"))
    with pytest.raises(ProviderUnavailable):
        routed.ask()
    for _ in range(2):
        with pytest.raises(ProviderUnavailable) as refused:
            routed.admit()
        assert 100 <= int(refused.value.headers["Retry-After"]) <= 200
    assert routed.asked == [1, 1]
    assert UsageRecord.objects.count() == 1


def test_routes_that_have_all_failed_are_asked_all_the_same(routed: Routed) -> None:
    routed.add(refuses(500))
    routed.add(refuses(502))
    for _ in range(5):
        with pytest.raises(ProviderError):
            routed.ask()
    assert sum(routed.asked) == 10


def test_the_next_is_asked_beyond_a_providers_calls_a_minute(routed: Routed, now: datetime) -> None:
    routed.add(answers("first"), calls_per_minute=2)
    routed.add(answers("second"), calls_per_minute=1)
    said = [read(stream(routed.admit(now=now))) for _ in range(3)]
    assert [b"first" in each for each in said] == [True, True, False]
    with pytest.raises(ProviderUnavailable) as refused:
        routed.admit(now=now)
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60


def test_a_refused_call_takes_none_of_a_providers_calls(routed: Routed, now: datetime) -> None:
    routed.add(answers("first"), calls_per_minute=1)
    with mock.patch("llmproxy.calls.admission.reserve", side_effect=ServiceUnavailable):
        for _ in range(2):
            with pytest.raises(ServiceUnavailable):
                routed.admit(now=now)
    assert b"first" in read(stream(routed.admit(now=now)))


def test_a_model_with_one_route_makes_no_look_up(routed: Routed) -> None:
    routed.add(answers("first"))
    with mock.patch.object(cache, "get") as get, mock.patch.object(cache, "add") as add:
        routed.ask(streamed=False)
    assert not get.called
    assert not add.called


class TestRoutesThatCannotTakeARequest:
    image = {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}

    def test_are_skipped(self, routed: Routed) -> None:
        routed.add(refuses(500), fetches="yes")
        routed.add(answers("second"))
        call = routed.admit(messages=[{"role": "user", "content": [self.image]}])
        assert [each.provider for each in call.admission.targets] == ["number-1"]

    def test_the_first_refuses_for_all(self, routed: Routed) -> None:
        routed.add(answers("first"))
        routed.add(answers("second"), fetches="yes")
        with pytest.raises(InvalidRequest):
            routed.admit(messages=[{"role": "user", "content": [self.image]}])

    @pytest.mark.parametrize("others", [True, False])
    def test_providers_without_a_readable_key_are_skipped_and_logged_once(
        self, routed: Routed, others: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        attempt._unreadable.clear()
        row = routed.add(answers("first"))
        moved = ProviderRow(name=row.name, base_url="https://elsewhere.example")
        moved.seal("api_key", b"secret")
        ProviderRow.objects.filter(pk=row.pk).update(api_key=moved.api_key)
        if others:
            routed.add(answers("second"))
        for _ in range(2):
            if others:
                assert b"second" in routed.ask()
            else:
                with pytest.raises(ProviderUnavailable):
                    routed.ask()
        lines = [each for each in caplog.records if each.message == "provider_key_unreadable"]
        assert [each.provider for each in lines] == ["number-1"]  # type: ignore[attr-defined]
        assert routed.asked[0] == 0
        assert set(UsageRecord.objects.values_list("input_tokens", flat=True)) == {9 * others}


class TestCallersWhoLeave:
    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_cut_meets_the_current_attempt(self, routed: Routed, streamed: bool) -> None:
        def script(peer: Peer, _: bytes) -> None:
            record = UsageRecord.objects.get()
            watch.save_checkpoints()
            release_connection()
            # If this process died now, its record would say whom it asked.
            record.refresh_from_db()
            assert (record.provider, record.state) == ("number-2", "open")
            watch._calls[record.pk].cut(StopReason.ACCESS_GONE, AccessRevoked())
            peer.wait_until_gone()

        routed.add(refuses(500))
        routed.add(script)
        routed.add(answers("third"))
        with unwatched(), pytest.raises(AccessRevoked):
            routed.ask(streamed=streamed)
        assert routed.asked == [1, 1, 0]
        record = UsageRecord.objects.get()
        assert (record.provider, record.end) == ("number-2", "stopped")
        assert record.input_tokens == record.reserved_input

    def test_a_cut_between_two_attempts_is_not_lost(self, routed: Routed) -> None:
        routed.add(refuses(500))
        routed.add(hangs)

        def cut_before(call: Call, attempt: CallAttempt, **inputs: Any) -> None:
            if attempt.target.provider == "number-2":
                call.stop.set(StopReason.ACCESS_GONE, AccessRevoked())
            begin(call, attempt, **inputs)

        begin = Call.begin
        with (
            unwatched(),
            mock.patch.object(Call, "begin", cut_before),
            pytest.raises(AccessRevoked),
        ):
            routed.ask()
        assert UsageRecord.objects.get().end == "stopped"

    @pytest.mark.parametrize("streamed", [True, False])
    def test_nobody_is_asked_for_a_caller_who_has_left(
        self, routed: Routed, streamed: bool
    ) -> None:
        routed.add(refuses(500))
        routed.add(answers("second"))
        call = routed.admit(streamed=streamed)
        call.has_left = lambda: True
        with unwatched(), pytest.raises(Problem):
            stream(call) if streamed else complete(call)
        assert routed.asked == [1, 0]
        assert UsageRecord.objects.get().input_tokens == 0

    def test_a_whole_answer_is_read_on_beyond_its_share_of_the_time(
        self, routed: Routed, settings
    ) -> None:
        settings.LLM_MAX_SECONDS = 1.0 * SHARES
        said = answers("first")

        def script(peer: Peer, request: bytes) -> None:
            call.has_left = lambda: True
            watch.end_disconnected()
            release_connection()
            time.sleep(1.5)
            said(peer, request)

        routed.add(script)
        # Each has a second.
        for _ in range(SHARES - 1):
            routed.add(None)
        call = routed.admit(streamed=False)
        with unwatched():
            complete(call)
        record = UsageRecord.objects.get()
        assert (record.provider, record.end, record.source) == (
            "number-1",
            "client_gone",
            "provider",
        )
        assert (record.input_tokens, record.output_tokens) == (9, 5)

    def test_a_client_who_leaves_at_the_second_is_charged_once_for_it(self, routed: Routed) -> None:
        def script(peer: Peer, _: bytes) -> None:
            peer.send(CHUNKED)
            peer.chunk(event("one"))
            peer.wait_until_gone()

        routed.add(hangs, read_timeout=SECONDS)
        routed.add(script)
        answer = stream(routed.admit())
        assert b"one" in next(answer)
        answer.close()
        record = UsageRecord.objects.get()
        assert (record.provider, record.end) == ("number-2", "client_gone")
        assert record.input_tokens == record.reserved_input
        # The silence of the first is not theirs.
        assert 1 <= record.output_tokens < 10
        assert abandoned()[0].output >= 1


def test_an_abandoned_attempt_is_in_nobodys_usage(routed: Routed) -> None:
    routed.add(hangs, read_timeout=SECONDS)
    routed.add(answers("second"))
    routed.ask()
    plan = PlanCaps.of(routed.caller)
    found = summary(user_id=routed.caller.user_id, plan=plan, now=timezone.now())
    assert (found.calls, found.input.used, found.output.used) == (1, 9, 5)
    assert (found.input.in_flight, found.day.used) == (0, 14)
    assert abandoned()[0].input > 0


def test_a_call_goes_on_while_the_database_is_away_and_its_settlement_says_so(
    routed: Routed,
) -> None:
    routed.add(hangs, read_timeout=SECONDS)
    routed.add(refuses(500))
    routed.add(answers("third"))
    with mock.patch.object(watch, "checkpoint", side_effect=OperationalError):
        assert b"third" in routed.ask()
    record = UsageRecord.objects.get()
    assert (record.provider, record.end, record.cost) == ("number-3", "done", 3 * 14)
    assert [each.provider for each in abandoned()] == ["number-1"]


def test_a_checkpoint_records_the_asked_provider_and_the_abandoned_one(routed: Routed) -> None:
    goes_on = Event()

    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(event("one"))
        goes_on.wait(30)
        peer.chunk(event(None) + DONE)
        peer.chunk(b"")

    routed.add(hangs, read_timeout=SECONDS)
    routed.add(script)
    with unwatched():
        answer = stream(routed.admit())
        assert b"one" in next(answer)
        assert UsageRecord.objects.get().provider == "number-1"
        assert race(*[watch.save_checkpoints] * 4) == [None] * 4
        # A kill from now on leaves the right name and price.
        record = UsageRecord.objects.get()
        assert (record.state, record.provider, record.input_price) == (
            "open",
            "number-2",
            2_000_000,
        )
        assert [each.provider for each in abandoned()] == ["number-1"]
        goes_on.set()
        assert b"".join(answer).endswith(DONE)
        answer.close()
    assert UsageRecord.objects.get().end == "done"
    assert len(abandoned()) == 1


FAILED = {"error": {"message": "no", "code": 500}}


@pytest.mark.parametrize(
    ("told", "streamed"),
    [
        ([FAILED], False),
        ([{}], False),
        ([{"choices": None}], False),
        ([{"choices": []}], False),
        ([{"choices": []}, FAILED], True),
        ([FAILED], True),
    ],
)
def test_the_report_of_a_failed_attempt_is_on_the_record_and_in_no_persons_tokens(
    routed: Routed, told: list[dict[str, Any]], streamed: bool
) -> None:
    usage = {"usage": {**USAGE, "prompt_tokens": 4_050}}
    events = [{**usage, **each} for each in told]

    def script(peer: Peer, _: bytes) -> None:
        if streamed:
            peer.send(CHUNKED)
            peer.chunk(b"".join(b"data: %s\n\n" % dumps(each).encode() for each in events))
            peer.chunk(b"")
        else:
            peer.answer(dumps(events[0]).encode())

    routed.add(script)
    routed.add(answers("second"))
    assert b"second" in routed.ask(streamed=streamed)
    record = UsageRecord.objects.get()
    assert (record.input_tokens, record.output_tokens) == (9, 5)
    (left,) = abandoned()
    assert (left.provider, left.input, left.output, left.is_reported) == (
        "number-1",
        4_050,
        5,
        True,
    )
    assert left.cost == 4_055


def test_operators_see_the_answers_and_failures_of_each_provider(
    routed: Routed, caplog: pytest.LogCaptureFixture
) -> None:
    routed.add(refuses(500))
    routed.add(answers("second"))
    with unwatched():
        routed.ask()
        routed.ask(streamed=False)
    health.write_counts(now=timezone.now())
    found = health.health_of(["number-1", "number-2"], now=timezone.now())
    assert found["number-1"][:2] == (0, 2)
    assert found["number-2"][:2] == (2, 0)
    lines = [each for each in caplog.records if each.message == "call_goes_on"]
    assert [(each.provider, each.reason) for each in lines] == [  # type: ignore[attr-defined]
        ("number-1", "ProviderError")
    ] * 2
