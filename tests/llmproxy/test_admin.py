"""Language models in the console."""

import re
from datetime import datetime

import pytest
from django.urls import reverse

from accounts.models import AuditEvent
from licensing.models import Plan
from llmproxy.catalogue import health, readiness
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from tests.conftest import Browser

pytestmark = pytest.mark.django_db

FORM = {"name": "large", "provider_name": "large-2026", "output_limit": "8192", "is_on": "on"}


def test_a_model_is_added_for_some_plans_and_switched_off(
    console: Browser,
    plan: Plan,
) -> None:
    console.post(reverse("admin:llmproxy_languagemodel_add"), {**FORM, "plans": [plan.pk]})
    model = LanguageModel.objects.get()
    assert (model.is_on, list(model.plans.all())) == (True, [plan])
    # A name has small and capital letters, also where a sentence begins with it.
    assert ">large has been added." in console.get("/admin/").content.decode()
    assert AuditEvent.objects.get(action="language_model:added").address == Browser.address

    address = reverse("admin:llmproxy_languagemodel_offer", args=[model.pk])
    assert 'value="large-2026"' in console.get(address).content.decode()
    console.post(address, {**FORM, "is_on": ""})
    model.refresh_from_db()
    # Switched by an action of its own, with a reason.
    assert model.is_on
    off = reverse("admin:llmproxy_languagemodel_off", args=[model.pk])
    console.post(off, {"reason": "Dear."})
    model.refresh_from_db()
    assert (model.is_on, list(model.plans.all())) == (False, [])
    assert AuditEvent.objects.filter(action="language_model:changed").count() == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "taken"}, "name"),
        ({"output_limit": "15"}, "output_limit"),
        ({"output_limit": "-1"}, "output_limit"),
        ({"image_tokens": "-1"}, "image_tokens"),
        ({"plans": ["0"]}, "plans"),
    ],
)
def test_a_fault_of_the_form_is_shown_beside_its_field(
    console: Browser,
    change: dict[str, str],
    field: str,
) -> None:
    LanguageModel.objects.create(name="taken", provider_name="x")
    response = console.post(reverse("admin:llmproxy_languagemodel_add"), {**FORM, **change})
    assert field in response.context["form"].errors or response.context["form"].non_field_errors()
    assert LanguageModel.objects.count() == 1


def test_the_list_warns_about_the_default_model(console: Browser, settings) -> None:
    settings.LLM_DEFAULT_MODEL = "usual"
    address = reverse("admin:llmproxy_languagemodel_changelist")
    front = reverse("admin:index")
    assert "which is not listed here" in console.get(address).content.decode()
    model = LanguageModel.objects.create(name="usual", provider_name="x")
    assert "LLM_DEFAULT_MODEL" not in console.get(address).content.decode()
    assert "calls that name no model are refused" not in console.get(front).content.decode()
    LanguageModel.objects.update(is_on=False)
    assert "which is off" in console.get(address).content.decode()
    assert "calls that name no model are refused" in console.get(front).content.decode()
    LanguageModel.objects.update(is_on=True)
    model.plans.add(Plan.objects.create(name="Other"))
    assert "which only some plans include" in console.get(address).content.decode()


def test_a_model_without_prices_is_named_where_models_are_changed(console: Browser) -> None:
    def warns(address: str, words: str) -> bool:
        return words in console.get(address).content.decode()

    listed = reverse("admin:llmproxy_languagemodel_changelist")
    assert warns(
        reverse("admin:llmproxy_languagemodel_add"), "its calls do not count towards budgets"
    )
    console.post(reverse("admin:llmproxy_languagemodel_add"), FORM)
    change = reverse("admin:llmproxy_languagemodel_offer", args=[LanguageModel.objects.get().pk])
    assert warns(change, "its calls do not count towards budgets")
    assert warns(listed, "models without prices: large, ")
    Route.objects.update(input_price=1, output_price=2)
    assert not warns(change, "its calls do not count towards budgets")
    assert not warns(listed, "models without prices: large, ")


def test_a_models_page_leads_to_its_route_whose_factor_is_set_and_freed(console: Browser) -> None:
    console.post(reverse("admin:llmproxy_languagemodel_add"), FORM)
    model, route = LanguageModel.objects.get(), Route.objects.get()
    page = reverse("admin:llmproxy_route_change", args=[route.pk])
    shown = console.get(reverse("admin:llmproxy_languagemodel_change", args=[model.pk]))
    assert page in shown.content.decode()
    assert "× 1.350 (learned)" in shown.content.decode()

    console.post(f"{page.removesuffix('change/')}factor/", {"factor": "1.5", "reason": "measured"})
    assert "1.500 (set by an operator)" in console.get(page).content.decode()
    event = AuditEvent.objects.get(action="route:factor_set")
    assert event.reason == "measured"
    log = console.get(reverse("admin:accounts_auditevent_change", args=[event.pk]))
    assert page in log.content.decode()
    console.post(f"{page.removesuffix('change/')}learn/", {"reason": "enough reports"})
    assert "1.500 (learned)" in console.get(page).content.decode()


def test_a_route_with_its_models_tokenizer_offers_no_factor(console: Browser) -> None:
    console.post(reverse("admin:llmproxy_languagemodel_add"), {**FORM, "provider_name": "gpt-4o"})
    page = console.get(reverse("admin:llmproxy_route_change", args=[Route.objects.get().pk]))
    assert "o200k_base (exact" in page.content.decode()
    assert "Set token factor" not in page.content.decode()


def test_the_provider_of_the_settings_is_shown_and_cannot_be_changed(
    console: Browser, settings
) -> None:
    provider = Provider.objects.get(name="default")
    page = console.get(reverse("admin:llmproxy_provider_change", args=[provider.pk]))
    assert settings.LLM_BASE_URL in page.content.decode()
    assert [each["label"] for each in page.context["buttons"]] == ["Switch off…"]
    assert settings.LLM_API_KEY() not in page.content.decode()


def test_a_providers_page_tells_its_health_and_spend(console: Browser, now: datetime) -> None:
    provider = Provider.objects.create(name="second", base_url="https://second.test")
    page = reverse("admin:llmproxy_provider_change", args=[provider.pk])
    assert "0 answered, 0 failed" in console.get(page).content.decode()
    health.note("second", failed=True)
    health.note("second", failed=False)
    health.write_counts(now=now)
    model = LanguageModel.objects.create(name="large", provider_name="large")
    Route.objects.create(model=model, provider=provider, provider_name="theirs")
    readiness.note_failure(RouteKey("second", "theirs"), wait=60, now=now)
    shown = console.get(page).content.decode()
    assert "1 answered, 1 failed" in shown
    assert re.search(r"no calls for theirs until \d\d:\d\d UTC, at its request", shown)
    assert "0 calls, $0.00" in shown


def test_a_provider_is_added_given_a_route_and_switched_off(console: Browser) -> None:
    terms = {
        "name": "second",
        "dialect": "openai",
        "base_url": "https://second.test/v1",
        "members": "listed",
        "fetches": "address",
        "limit_name": "address",
        "api_key": "sk-theirs-0123456789",
    }
    console.post(reverse("admin:llmproxy_provider_add"), terms)
    provider = Provider.objects.get(name="second")
    page = console.get(reverse("admin:llmproxy_provider_change", args=[provider.pk]))
    assert "sk-theirs" not in page.content.decode()
    model = LanguageModel.objects.create(name="large", provider_name="large")
    way = {"model": model.pk, "provider": provider.pk, "provider_name": "theirs", "order": 1}
    console.post(reverse("admin:llmproxy_route_add"), {**way, "surfaces": ["chat"]})
    route = Route.objects.get(provider=provider)
    assert (route.surfaces, route.order) == (["chat"], 1)
    off = reverse("admin:llmproxy_provider_off", args=[provider.pk])
    assert "large has no other route" in console.get(off).content.decode()
    console.post(off, {"reason": "an outage"})
    provider.refresh_from_db()
    assert not provider.is_on
