"""A further dialect is a module and an entry in the table."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.problems.problem import InvalidRequest
from licensing.callers import Caller, load_caller
from llmproxy.calls import relay
from llmproxy.calls.call import Call
from llmproxy.catalogue.setting_readers import DIALECT
from llmproxy.dialects import by_name, refusals
from llmproxy.dialects.protocol import ProviderError
from llmproxy.dialects.sse import EventParser
from llmproxy.models import Provider
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit
from tests.llmproxy.targets import refusal_of, target
from tests.standins.plain_provider import OBJECTS, PLAIN, Objects
from tests.standins.raw_server import CHUNKED, Peer, playing
from usage.models import UsageRecord


def says(peer: Peer) -> None:
    while request := peer.request():
        head, _, body = request.partition(b"\r\n\r\n")
        assert b"X-Key: " in head
        line, *lines = body.decode().split("\n")
        if line.endswith("True"):
            peer.send(CHUNKED)
            for word in (*lines, "END"):
                peer.chunk(f"data: {word}\n\n".encode())
            peer.chunk(b"")
        else:
            peer.answer(f"7 You said: {lines[-1]}".encode())


def test_every_dialect_may_be_named_by_settings_and_rows() -> None:
    field = Provider._meta.get_field("dialect")
    assert {name for name, _ in field.flatchoices} == set(by_name.DIALECTS)
    assert max(map(len, by_name.DIALECTS)) <= field.max_length
    for name in by_name.DIALECTS:
        assert DIALECT(name) == name


@pytest.mark.django_db
class TestAThird:
    @pytest.fixture(autouse=True)
    def plain(self, settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(by_name.DIALECTS, "plain", PLAIN)
        settings.LLM_PROVIDER = "plain"
        with playing(says) as server:
            settings.LLM_BASE_URL = server.url.removesuffix("/v1/chat")
            yield

    @pytest.fixture
    def caller(self, pair: TokenPair, user: User) -> Caller:
        caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
        assert caller is not None
        return caller

    def call(self, caller: Caller, now: datetime, **members: Any) -> Call:
        messages = [{"role": "user", "content": "Good"}, {"role": "user", "content": "morning"}]
        chat = parse({"messages": messages, **members}, stream=None)
        return admit(caller=caller, request=chat, request_id="req", now=now)

    def test_answers_whole_and_in_streams(self, caller: Caller, now: datetime) -> None:
        answer = relay.complete(self.call(caller, now))
        assert answer["choices"][0]["message"]["content"] == "You said: morning"
        stream = relay.stream(self.call(caller, now, stream=True))
        events = b"".join(stream).split(b"\n\n")
        stream.close()
        words = [json.loads(each[6:])["choices"][0]["delta"]["content"] for each in events[:-2]]
        assert (words, events[-2:]) == (["Good", "morning"], [b"data: [DONE]", b""])
        records = UsageRecord.objects.order_by("opened_at")
        assert [(each.provider, each.input_tokens, each.output_tokens) for each in records] == [
            ("default", 5, 7),
            ("default", 5, 2),
        ]

    def test_refuses_unsupported_calls(self, caller: Caller, now: datetime) -> None:
        tool = {"type": "function", "function": {"name": "f"}}
        with pytest.raises(InvalidRequest):
            self.call(caller, now, tools=[tool])
        assert not UsageRecord.objects.exists()


def says_in_objects(peer: Peer) -> None:
    """Lines of JSON in pieces of a few bytes, and no last event."""
    while request := peer.request():
        lines = request.partition(b"\r\n\r\n")[2].decode().split("\n")[1:]
        assert b"Accept: application/x-ndjson" in request
        peer.send(CHUNKED)
        for word in lines:
            line = json.dumps({"word": word}).encode() + b"\n"
            peer.chunk(line[:5])
            peer.chunk(line[5:])
        peer.chunk(b"")


@pytest.mark.django_db
class TestAFourthOfObjects(TestAThird):
    """Its streams are lines that begin like an answer in one piece, and end with their connection."""

    @pytest.fixture(autouse=True)
    def plain(self, settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(by_name.DIALECTS, "objects", OBJECTS)
        settings.LLM_PROVIDER = "objects"
        with playing(says_in_objects) as server:
            settings.LLM_BASE_URL = server.url.removesuffix("/v1/chat")
            yield

    def test_answers_whole_and_in_streams(self, caller: Caller, now: datetime) -> None:
        stream = relay.stream(self.call(caller, now, stream=True))
        events = b"".join(stream).split(b"\n\n")
        stream.close()
        words = [json.loads(each[6:])["choices"][0]["delta"]["content"] for each in events[:-2]]
        assert (words, events[-2:]) == (["Good", "morning"], [b"data: [DONE]", b""])
        assert UsageRecord.objects.get().end == "done"

    def test_a_stream_without_its_last_event_fails_unless_its_dialect_has_none(
        self, caller: Caller, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Objects, "ends_by_closing", False)
        stream = relay.stream(self.call(caller, now, stream=True))
        assert b'"error"' in b"".join(stream)
        stream.close()
        assert UsageRecord.objects.get().end == "provider_failed"

    def test_a_stream_that_ends_without_having_finished_fails(
        self, caller: Caller, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Objects, "ends_by_closing", False)
        monkeypatch.setattr(Objects, "last", "morning")
        stream = relay.stream(self.call(caller, now, stream=True))
        assert b'"error"' in b"".join(stream)
        stream.close()
        assert UsageRecord.objects.get().end == "provider_failed"


class TestARefusedCredential:
    @pytest.fixture(autouse=True)
    def unsaid(self) -> Iterator[None]:
        refusals._last_logged.update(key="", at=0.0)
        yield
        refusals._last_logged.update(key="", at=0.0)

    @pytest.mark.parametrize("status", [401, 402, 403])
    def test_is_logged_once_and_not_shown_to_callers(
        self, caplog: pytest.LogCaptureFixture, settings, status: int
    ) -> None:
        body = json.dumps({"error": {"message": f"no such key: {settings.LLM_API_KEY()}"}})
        for _ in range(5):
            problem = refusal_of(status, {}, body.encode())
            assert isinstance(problem, ProviderError)
            assert problem.detail == ProviderError.default_detail
        assert [record.message for record in caplog.records] == ["provider_refuses_credential"]
        assert settings.LLM_API_KEY() not in str(caplog.records[0].__dict__)

    def test_is_logged_again_for_a_new_credential_and_after_an_hour(
        self, caplog: pytest.LogCaptureFixture, settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refusal_of(401, {}, b"")
        settings.LLM_API_KEY = lambda: "sk-another"
        refusal_of(401, {}, b"")
        refusal_of(401, {}, b"")
        assert len(caplog.records) == 2
        monkeypatch.setattr(refusals, "LOG_AGAIN_AFTER", 0.0)
        refusal_of(401, {}, b"")
        assert len(caplog.records) == 3

    def test_is_also_logged_from_a_stream(self, caplog: pytest.LogCaptureFixture) -> None:
        asked = parse({"messages": [{"role": "user", "content": "x"}], "stream": True}, stream=None)
        event = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
        data = json.dumps(event).encode()
        given, at = EventParser().feed(b"data: %b\n\n" % data), target("anthropic")
        codec = at.codec(asked.surface)
        piece = codec.translator(asked, target=at, called=None).piece(given[0])
        assert isinstance(piece.failed, ProviderError)
        assert [record.message for record in caplog.records] == ["provider_refuses_credential"]
