"""Language models are changed by a rule."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.platform.problems.problem import InvalidRequest
from licensing.models import Plan
from llmproxy.catalogue.factors import set_factor
from llmproxy.catalogue.offering import ModelTerms, add_model, change_model
from llmproxy.models import LanguageModel, Route

pytestmark = pytest.mark.django_db

OFFER = ModelTerms(
    name="large", provider_name="large-2026", output_limit=8192, is_on=True, plans=[]
)


def test_adding_and_changing_a_model_is_audited_with_its_old_state(
    plan: Plan, by: Actor, now: datetime
) -> None:
    model = add_model(terms=OFFER, by=by, now=now)
    changed = replace(OFFER, is_on=False, plans=[plan])
    change_model(model_id=model.pk, terms=changed, by=by, now=now)
    model.refresh_from_db()
    assert (model.is_on, list(model.plans.all())) == (False, [plan])
    event = AuditEvent.objects.get(action="language_model:changed")
    assert event.before is not None
    assert event.after is not None
    assert (event.before["on"], event.after["on"]) == (True, False)
    assert (event.before["plans"], event.after["plans"]) == ([], ["Starter"])


def test_two_models_cannot_have_one_name(by: Actor, now: datetime) -> None:
    add_model(terms=OFFER, by=by, now=now)
    with pytest.raises(InvalidRequest) as refused:
        add_model(terms=OFFER, by=by, now=now)
    assert refused.value.errors[0].pointer == "/name"
    assert LanguageModel.objects.count() == 1
    assert AuditEvent.objects.count() == 1


def test_an_output_limit_leaves_room_for_an_answer(by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest) as refused:
        add_model(terms=replace(OFFER, output_limit=15), by=by, now=now)
    assert refused.value.errors[0].pointer == "/output_limit"
    assert add_model(terms=replace(OFFER, output_limit=16), by=by, now=now).pk


def test_the_default_model_is_neither_switched_off_nor_renamed(
    by: Actor, now: datetime, settings
) -> None:
    settings.LLM_DEFAULT_MODEL = "large"
    model = add_model(terms=OFFER, by=by, now=now)
    for change, pointer in (({"is_on": False}, "/is_on"), ({"name": "larger"}, "/name")):
        with pytest.raises(InvalidRequest) as refused:
            change_model(model_id=model.pk, terms=replace(OFFER, **change), by=by, now=now)
        assert refused.value.errors[0].pointer == pointer
    model.refresh_from_db()
    assert (model.name, model.is_on) == ("large", True)
    # Nothing else about it is fixed, and once it is not the default any more, that is not, either.
    change_model(model_id=model.pk, terms=replace(OFFER, output_limit=99), by=by, now=now)
    settings.LLM_DEFAULT_MODEL = "small"
    change_model(model_id=model.pk, terms=replace(OFFER, is_on=False), by=by, now=now)
    assert AuditEvent.objects.filter(action="language_model:changed").count() == 2


def test_a_model_cannot_be_added_as_a_default_that_is_off(
    by: Actor, now: datetime, settings
) -> None:
    settings.LLM_DEFAULT_MODEL = "large"
    with pytest.raises(InvalidRequest) as refused:
        add_model(terms=replace(OFFER, is_on=False), by=by, now=now)
    assert refused.value.errors[0].pointer == "/is_on"
    assert not LanguageModel.objects.exists()


def test_the_tokens_of_an_image_are_saved_and_audited(by: Actor, now: datetime) -> None:
    model = add_model(terms=replace(OFFER, image_tokens=36_835), by=by, now=now)
    model.refresh_from_db()
    assert model.image_tokens == 36_835
    event = AuditEvent.objects.get(action="language_model:added")
    assert event.after is not None
    assert event.after["image_tokens"] == 36_835


def test_a_model_is_added_with_its_route_and_a_new_name_at_the_provider_is_counted_anew(
    by: Actor, now: datetime
) -> None:
    model = add_model(terms=OFFER, by=by, now=now)
    route = model.routes.get()
    assert (route.provider.name, route.provider_name) == ("default", "large-2026")
    assert (route.tokenizer, route.token_factor) == ("factor", Route.FIRST_FACTOR)

    Route.objects.update(token_factor=Decimal("1.1"))
    change_model(model_id=model.pk, terms=replace(OFFER, output_limit=99), by=by, now=now)
    assert model.routes.get().token_factor == Decimal("1.1")
    change_model(model_id=model.pk, terms=replace(OFFER, provider_name="larger"), by=by, now=now)
    assert model.routes.get().token_factor == Route.FIRST_FACTOR
    change_model(model_id=model.pk, terms=replace(OFFER, provider_name="gpt-4o"), by=by, now=now)
    assert model.routes.get().tokenizer == "o200k_base"
    after = AuditEvent.objects.latest("id").after
    assert after is not None
    assert after["tokenizers"] == ["o200k_base"]


def test_a_route_learns_from_the_calls_since_its_model_was_renamed_here_or_at_the_provider(
    by: Actor, now: datetime
) -> None:
    def at(hour: int, **changes: Any) -> datetime | None:
        moment = now + timedelta(hours=hour)
        change_model(model_id=model.pk, terms=replace(OFFER, **changes), by=by, now=moment)
        return model.routes.get().learns_since

    model = add_model(terms=OFFER, by=by, now=now)
    assert model.routes.get().learns_since == now
    assert at(1, output_limit=99) == now
    assert at(2, provider_name="larger") == now + timedelta(hours=2)
    assert at(3, provider_name="larger", name="larger") == now + timedelta(hours=3)


def test_a_factor_that_an_operator_has_set_survives_a_new_name_at_the_provider(
    by: Actor, now: datetime
) -> None:
    model = add_model(terms=OFFER, by=by, now=now)
    set_factor(
        route_id=model.routes.get().pk, factor=Decimal("1.7"), reason="known", by=by, now=now
    )
    change_model(model_id=model.pk, terms=replace(OFFER, provider_name="larger"), by=by, now=now)
    assert model.routes.get().token_factor == Decimal("1.7")


def test_a_model_of_an_earlier_release_gets_its_route_when_it_is_changed(
    by: Actor, now: datetime
) -> None:
    model = LanguageModel.objects.create(name="large", provider_name="large-2026")
    change_model(model_id=model.pk, terms=OFFER, by=by, now=now)
    assert model.routes.get().provider_name == "large-2026"


def test_an_anthropic_sdk_is_told_where_a_model_answers_that_is_not_on_messages(
    signed_in: APIClient, by: Actor, now: datetime
) -> None:
    model = add_model(terms=replace(OFFER, name="embeds"), by=by, now=now)
    model.routes.update(surfaces=["embeddings"])
    version = {"anthropic-version": "2023-06-01"}
    refused = signed_in.get("/v1/llm/v1/models/embeds", headers=version)
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "not_found_error")
    assert refused.json()["detail"] == (
        "This model is not available at this address, but at: embeddings."
    )
    listed = signed_in.get("/v1/llm/v1/models", headers=version).json()["data"]
    assert "embeds" not in {each["id"] for each in listed}
    unknown = signed_in.get("/v1/llm/v1/models/none", headers=version)
    assert "There is no model 'none'" in unknown.json()["detail"]
    assert signed_in.get("/v1/llm/models/embeds").status_code == 200
