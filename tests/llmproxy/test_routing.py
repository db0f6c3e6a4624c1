"""Providers and routes of operators: rules, audit and keys."""

from dataclasses import replace
from datetime import datetime
from unittest import mock

import pytest
from cryptography.fernet import Fernet

from accounts.audit import Actor
from accounts.connections.reencrypting import reencrypt
from accounts.models import AuditEvent
from config.platform.encryption import CannotDecrypt
from config.platform.problems.problem import InvalidRequest
from llmproxy.catalogue.choosing import target_of
from llmproxy.catalogue.offering import ModelTerms, add_model, change_model
from llmproxy.catalogue.prices import set_prices
from llmproxy.catalogue.providers import (
    ProviderTerms,
    add_provider,
    change_provider,
    switch_provider,
)
from llmproxy.catalogue.routing import RouteTerms, add_route, change_route, remove_route
from llmproxy.models import LanguageModel, Provider, Route
from usage.costs import Prices

pytestmark = pytest.mark.django_db

KEY = "sk-theirs-0123456789"
TERMS = ProviderTerms(name="second", dialect="anthropic", base_url="https://second.test/")
WAY = RouteTerms(provider_name="theirs", order=1, surfaces=[])


@pytest.fixture
def second(by: Actor, now: datetime) -> Provider:
    return add_provider(terms=TERMS, key=KEY, by=by, now=now)


@pytest.fixture
def model(by: Actor, now: datetime) -> LanguageModel:
    offer = ModelTerms(
        name="large", provider_name="gpt-4o", output_limit=4096, is_on=True, plans=[]
    )
    return add_model(terms=offer, by=by, now=now)


@pytest.fixture
def route(second: Provider, model: LanguageModel, by: Actor, now: datetime) -> Route:
    return add_route(model=model, provider=second, terms=WAY, by=by, now=now)


def faults(refused: pytest.ExceptionInfo[InvalidRequest]) -> list[str]:
    return [fault.pointer for fault in refused.value.errors]


class TestProviders:
    def test_a_key_is_encrypted_and_in_no_event(self, route: Route, second: Provider) -> None:
        assert KEY.encode() not in bytes(second.api_key)
        assert target_of(route).key() == KEY
        assert target_of(route).base_url == "https://second.test"
        told = str(list(AuditEvent.objects.values()))
        assert "provider:added" in told
        assert KEY not in told

    @pytest.mark.parametrize(
        "change", [{"name": "third"}, {"base_url": "https://elsewhere.test"}], ids=str
    )
    def test_a_provider_with_a_new_name_or_address_needs_its_key_again(
        self, second: Provider, change: dict[str, str], by: Actor, now: datetime
    ) -> None:
        terms = replace(TERMS, **{"base_url": "https://second.test", **change})
        given = {"provider_id": second.pk, "reason": "moved", "by": by, "now": now}
        with pytest.raises(InvalidRequest) as refused:
            change_provider(terms=terms, key="", **given)
        assert faults(refused) == ["/api_key"]
        changed = change_provider(terms=terms, key="sk-new-0123456789", **given)
        route = Route.objects.create(
            model=LanguageModel.objects.create(name="m", provider_name="m"),
            provider=changed,
            provider_name="m",
        )
        assert target_of(route).key() == "sk-new-0123456789"

    def test_a_key_is_of_no_use_at_an_address_that_a_row_was_given_otherwise(
        self, route: Route
    ) -> None:
        Provider.objects.filter(name="second").update(base_url="https://thief.test")
        route = Route.objects.select_related("provider").get(pk=route.pk)
        with pytest.raises(CannotDecrypt):
            target_of(route).key()

    def test_a_key_is_renewed_under_a_newer_encryption_key(self, route: Route, settings) -> None:
        newer = Fernet.generate_key().decode()
        older = settings.ENCRYPTION_KEYS.listed()
        settings.ENCRYPTION_KEYS = mock.Mock(listed=lambda: [newer, *older])
        assert reencrypt() == (1, 0)
        settings.ENCRYPTION_KEYS = mock.Mock(listed=lambda: [newer])
        assert target_of(Route.objects.get(pk=route.pk)).key() == KEY
        assert reencrypt() == (0, 0)

    def test_a_change_without_a_key_keeps_the_key(
        self, route: Route, by: Actor, now: datetime
    ) -> None:
        terms = replace(
            TERMS, base_url="https://second.test", members="top_k, min_p", fetches="yes"
        )
        change_provider(
            provider_id=route.provider_id, terms=terms, key="", reason="x", by=by, now=now
        )
        target = target_of(Route.objects.get(pk=route.pk))
        assert (target.key(), target.passes_all, target.fetches) == (KEY, False, True)
        assert target.members == {"top_k", "min_p"}

    @pytest.mark.parametrize(
        ("members", "names"),
        [("listed", set()), ("all", set()), ("top_k,min_p", {"top_k", "min_p"})],
    )
    def test_the_settings_say_which_members_their_provider_takes(
        self, model: LanguageModel, settings, members: str, names: set[str]
    ) -> None:
        settings.LLM_MEMBERS = members
        target = target_of(model.routes.get())
        assert (target.passes_all, target.members) == (members == "all", names)

    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"name": "default"}, "/name"),
            ({"name": "second"}, "/name"),
            ({"base_url": ""}, "/base_url"),
            ({"base_url": "http://second.test"}, "/base_url"),
            ({"base_url": "https://somebody@second.test"}, "/base_url"),
            ({"base_url": "https://second.test/v1?key=1"}, "/base_url"),
            ({"base_url": "ftp://second.test"}, "/base_url"),
            ({"base_url": "https://["}, "/base_url"),
            ({"calls_per_minute": 0}, "/calls_per_minute"),
            ({"read_timeout": 0}, "/read_timeout"),
        ],
    )
    def test_terms_that_are_not_possible_are_refused(
        self, second: Provider, change: dict[str, object], pointer: str, by: Actor, now: datetime
    ) -> None:
        terms = replace(TERMS, **{"name": "third", **change})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest) as refused:
            add_provider(terms=terms, key=KEY, by=by, now=now)
        assert faults(refused) == [pointer]
        assert Provider.objects.count() == 2

    def test_the_provider_of_the_settings_is_not_changed(self, by: Actor, now: datetime) -> None:
        default = Provider.objects.get()
        with pytest.raises(InvalidRequest):
            change_provider(
                provider_id=default.pk, terms=TERMS, key=KEY, reason="x", by=by, now=now
            )

    def test_switching_is_audited_with_its_reason(
        self, second: Provider, by: Actor, now: datetime
    ) -> None:
        for on in (False, True):
            switch_provider(provider_id=second.pk, on=on, reason="an outage", by=by, now=now)
            second.refresh_from_db()
            assert second.is_on is on
        events = AuditEvent.objects.filter(action__startswith="provider:switched").order_by("pk")
        assert [(event.action, event.reason) for event in events] == [
            ("provider:switched_off", "an outage"),
            ("provider:switched_on", "an outage"),
        ]


class TestRoutes:
    def test_one_model_has_one_route_to_a_provider(
        self, route: Route, by: Actor, now: datetime
    ) -> None:
        with pytest.raises(InvalidRequest) as refused:
            add_route(model=route.model, provider=route.provider, terms=WAY, by=by, now=now)
        assert faults(refused) == ["/provider"]

    def test_surfaces_are_those_of_the_dialect(
        self, second: Provider, model: LanguageModel, by: Actor, now: datetime
    ) -> None:
        way = replace(WAY, surfaces=["embeddings"])
        with pytest.raises(InvalidRequest) as refused:
            add_route(model=model, provider=second, terms=way, by=by, now=now)
        assert faults(refused) == ["/surfaces"]

    def test_a_route_with_a_new_model_name_has_no_counts_and_no_prices(
        self, route: Route, by: Actor, now: datetime
    ) -> None:
        Route.objects.update(token_factor=2, input_price=1, output_price=1, learns_since=None)
        way = replace(WAY, provider_name="gpt-4o", order=7, surfaces=["chat"])
        changed = change_route(route_id=route.pk, terms=way, reason="x", by=by, now=now)
        assert (changed.tokenizer, changed.token_factor) == ("o200k_base", Route.FIRST_FACTOR)
        assert (changed.input_price, changed.learns_since) == (None, now)
        assert (changed.order, changed.surfaces) == (7, ["chat"])
        prices = Prices(1, None, 2)
        set_prices(route_id=route.pk, prices=prices, reason="x", by=by, now=now)
        same = change_route(
            route_id=route.pk, terms=replace(way, order=8), reason="x", by=by, now=now
        )
        assert (same.order, same.input_price) == (8, 1)

    def test_the_models_page_says_the_name_at_the_settings_provider(
        self, model: LanguageModel, by: Actor, now: datetime
    ) -> None:
        route = model.routes.get()
        with pytest.raises(InvalidRequest) as refused:
            change_route(route_id=route.pk, terms=WAY, reason="x", by=by, now=now)
        assert faults(refused) == ["/provider_name"]
        way = RouteTerms(provider_name="gpt-4o", order=9, surfaces=["chat"])
        assert change_route(route_id=route.pk, terms=way, reason="x", by=by, now=now).order == 9

    def test_the_last_route_stays_and_others_go_for_good(
        self, route: Route, by: Actor, now: datetime
    ) -> None:
        model = route.model
        default = model.routes.get(provider__name=Provider.DEFAULT)
        remove_route(route_id=default.pk, reason="x", by=by, now=now)
        with pytest.raises(InvalidRequest):
            remove_route(route_id=route.pk, reason="x", by=by, now=now)
        offer = ModelTerms(
            name="large", provider_name="gpt-4o", output_limit=99, is_on=True, plans=[]
        )
        change_model(model_id=model.pk, terms=offer, by=by, now=now)
        assert list(model.routes.all()) == [route]
