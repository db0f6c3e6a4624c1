"""A further provider is a file and a line of settings."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.api.problems import InvalidRequest
from licensing.callers import Caller, load_caller
from llmproxy import relay
from llmproxy.calls import Call, admit
from llmproxy.chat import parse
from llmproxy.providers import provider, refusals
from llmproxy.providers.anthropic import Anthropic
from llmproxy.providers.openai import OpenAI
from llmproxy.providers.protocol import ProviderError
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


@pytest.mark.django_db
class TestAThird:
    @pytest.fixture(autouse=True)
    def plain(self, settings) -> Iterator[None]:
        with playing(says) as server:
            settings.LLM_PROVIDERS = {
                **settings.LLM_PROVIDERS,
                "plain": "tests.standins.plain_provider.Plain",
            }
            settings.LLM_PROVIDER = "plain"
            settings.LLM_BASE_URL = server.url.removesuffix("/v1/chat")
            provider.cache_clear()
            yield
        provider.cache_clear()

    @pytest.fixture
    def caller(self, pair: TokenPair, user: User) -> Caller:
        caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
        assert caller is not None
        return caller

    def call(self, caller: Caller, now: datetime, **members: Any) -> Call:
        messages = [{"role": "user", "content": "Good"}, {"role": "user", "content": "morning"}]
        chat = parse({"messages": messages, **members}, stream=None)
        return admit(caller=caller, chat=chat, request_id="req", now=now)

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
            ("plain", 5, 7),
            ("plain", 5, 2),
        ]

    def test_refuses_unsupported_calls(self, caller: Caller, now: datetime) -> None:
        tool = {"type": "function", "function": {"name": "f"}}
        with pytest.raises(InvalidRequest):
            self.call(caller, now, tools=[tool])
        assert not UsageRecord.objects.exists()


class TestARefusedCredential:
    @pytest.fixture(autouse=True)
    def unsaid(self) -> Iterator[None]:
        refusals._last_logged.update(key="", at=0.0)
        yield
        refusals._last_logged.update(key="", at=0.0)

    @pytest.mark.parametrize("dialect", [OpenAI(), Anthropic()])
    @pytest.mark.parametrize("status", [401, 402, 403])
    def test_is_logged_once_and_not_shown_to_callers(
        self, caplog: pytest.LogCaptureFixture, settings, dialect: Any, status: int
    ) -> None:
        body = json.dumps({"error": {"message": f"no such key: {settings.LLM_API_KEY()}"}})
        for _ in range(5):
            problem = dialect.refusal(status, {}, body.encode())
            assert isinstance(problem, ProviderError)
            assert problem.detail == ProviderError.default_detail
        assert [record.message for record in caplog.records] == ["provider_refuses_credential"]
        assert settings.LLM_API_KEY() not in str(caplog.records[0].__dict__)

    def test_is_logged_again_for_a_new_credential_and_after_an_hour(
        self, caplog: pytest.LogCaptureFixture, settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        OpenAI().refusal(401, {}, b"")
        settings.LLM_API_KEY = lambda: "sk-another"
        OpenAI().refusal(401, {}, b"")
        OpenAI().refusal(401, {}, b"")
        assert len(caplog.records) == 2
        monkeypatch.setattr(refusals, "LOG_AGAIN_AFTER", 0.0)
        OpenAI().refusal(401, {}, b"")
        assert len(caplog.records) == 3

    def test_is_also_logged_from_a_stream(self, caplog: pytest.LogCaptureFixture) -> None:
        asked = parse({"messages": [{"role": "user", "content": "x"}], "stream": True}, stream=None)
        event = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
        data = json.dumps(event).encode()
        piece = (
            Anthropic()
            .translator(asked)
            .piece(relay.EventParser().feed(b"event: error\ndata: " + data + b"\n\n")[0])
        )
        assert isinstance(piece.failed, ProviderError)
        assert [record.message for record in caplog.records] == ["provider_refuses_credential"]
