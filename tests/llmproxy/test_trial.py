"""An operator tries a route: one question, answered or not, and written down."""

import json
from datetime import datetime

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent
from llmproxy.catalogue.providers import ProviderTerms, add_provider
from llmproxy.catalogue.routing import RouteTerms, add_route
from llmproxy.catalogue.trial import try_route
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.models import LanguageModel, Provider, Route
from tests.standins.anthropic_server import message, messages_server, text
from tests.standins.raw_server import Peer, playing
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db
KEY = "sk-theirs-0123456789"


def route_to(url: str, *, dialect: str, by: Actor, now: datetime) -> Route:
    terms = ProviderTerms(name="second", dialect=dialect, base_url=url)
    provider = add_provider(terms=terms, key=KEY, by=by, now=now)
    model = LanguageModel.objects.create(name="large", provider_name="large")
    way = RouteTerms(provider_name="theirs", order=1, surfaces=[])
    return add_route(model=model, provider=provider, terms=way, by=by, now=now)


def test_a_provider_of_either_dialect_is_asked_with_its_own_key(by: Actor, now: datetime) -> None:
    with messages_server(message(text("yes")), api_key=KEY) as server:
        route = route_to(server.base_url, dialect="anthropic", by=by, now=now)
        trial = try_route(route_id=route.pk, by=by, now=now)
    assert (trial.failure, trial.usage) == ("", TokenUsage(30, 42, 15, cache_write=4))
    assert server.bodies[0]["model"] == "theirs"
    event = AuditEvent.objects.get(action="route:tried")
    assert event.after is not None
    assert event.after["failed"] is False
    assert not UsageRecord.objects.exists()


def test_a_model_of_embeddings_is_asked_for_one(by: Actor, now: datetime) -> None:
    made = {"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 6}}

    def answer(peer: Peer) -> None:
        peer.request()
        peer.answer(json.dumps(made).encode())

    with playing(answer) as server:
        url = server.url.removesuffix("/chat")
        route = route_to(url, dialect="openai", by=by, now=now)
        Route.objects.filter(pk=route.pk).update(surfaces=["embeddings"])
        trial = try_route(route_id=route.pk, by=by, now=now)
    assert (trial.failure, trial.usage) == ("", TokenUsage(6, 0))


def test_a_refusal_is_shown_without_the_key(by: Actor, now: datetime) -> None:
    def refuse(peer: Peer) -> None:
        peer.request()
        body = json.dumps({"error": {"message": f"no such key: {KEY}"}}).encode()
        head = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\n\r\n"
        peer.send(head % len(body) + body)

    with playing(refuse) as server:
        url = server.url.removesuffix("/chat")
        route = route_to(url, dialect="openai", by=by, now=now)
        trial = try_route(route_id=route.pk, by=by, now=now)
    assert "refuses the key" in trial.failure
    assert "401" in trial.failure
    assert KEY not in trial.failure + str(AuditEvent.objects.values())


def test_a_provider_that_is_away_or_without_a_readable_key_is_reported(
    by: Actor, now: datetime
) -> None:
    route = route_to("http://127.0.0.1:9/v1", dialect="openai", by=by, now=now)
    assert "Unreachable" in try_route(route_id=route.pk, by=by, now=now).failure
    Provider.objects.filter(name="second").update(api_key=b"\x01altered")
    assert "decrypted" in try_route(route_id=route.pk, by=by, now=now).failure
