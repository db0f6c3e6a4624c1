"""Language models in the console."""

import pytest
from django.urls import reverse

from accounts.models import AuditEvent
from licensing.models import Plan
from llmproxy.models import LanguageModel
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
    assert AuditEvent.objects.get(action="language_model:added").address == Browser.address

    address = reverse("admin:llmproxy_languagemodel_offer", args=[model.pk])
    assert 'value="large-2026"' in console.get(address).content.decode()
    console.post(address, {**FORM, "is_on": ""})
    model.refresh_from_db()
    assert (model.is_on, list(model.plans.all())) == (False, [])
    assert AuditEvent.objects.filter(action="language_model:changed").count() == 1


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
    assert "which has no row here" in console.get(address).content.decode()
    model = LanguageModel.objects.create(name="usual", provider_name="x")
    assert "LLM_DEFAULT_MODEL" not in console.get(address).content.decode()
    assert "default model is off" not in console.get(front).content.decode()
    LanguageModel.objects.update(is_on=False)
    assert "which is off" in console.get(address).content.decode()
    assert "default model is off" in console.get(front).content.decode()
    LanguageModel.objects.update(is_on=True)
    model.plans.add(Plan.objects.create(name="Other"))
    assert "some plans only" in console.get(address).content.decode()
