"""Images and files by URL go to providers that fetch from the public internet alone."""

from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.urls import reverse
from rest_framework.test import APIClient

from accounts.models import User
from config.composition.attention.listing import items
from llmproxy.catalogue.vendors import fetches
from llmproxy.models import LanguageModel, Provider
from tests.conftest import Browser

pytestmark = pytest.mark.django_db
OWNER = User(is_superuser=True)
OURS = "https://models.corp.example/v1"
INSIDE = "https://vault.service.consul/v1/secret"


def warned(now: datetime) -> str:
    return " ".join(str(each) for each in items(operator=OWNER, now=now))


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": INSIDE}}]}]},
            "/messages/0/content/0/image_url/url",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": INSIDE}]}]},
            "/input/0/content/0/image_url",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "assistant", "content": "b", "media": [{"url": INSIDE}]}]},
            "/messages/0/media",
        ),
    ],
)  # fmt: skip
def test_a_server_of_ones_own_at_a_public_name_is_sent_none(
    signed_in: APIClient, settings: Any, path: str, body: dict[str, Any], pointer: str
) -> None:
    settings.LLM_BASE_URL = OURS
    answer = signed_in.post(f"/v1/llm/{path}", body, format="json")
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["code"], fault["pointer"]) == (400, "data_only", pointer)


def test_a_document_by_url_is_sent_to_no_such_server(signed_in: APIClient, settings: Any) -> None:
    settings.LLM_BASE_URL, settings.LLM_PROVIDER = OURS, "anthropic"
    source = {"type": "url", "url": INSIDE}
    message = {"role": "user", "content": [{"type": "document", "source": source}]}
    body = {"max_tokens": 16, "messages": [message]}
    answer = signed_in.post("/v1/llm/messages", body, format="json")
    assert answer.status_code == 400
    assert "only as data: URLs" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("address", "said", "expected"),
    [
        ("https://api.openai.com/v1", "address", True),
        ("https://EU.api.openai.com.:8443/v1", "address", True),
        ("https://myapi.openai.com/v1", "address", False),
        ("https://api.openai.com@corp.example/v1", "address", False),
        ("https://api.anthropic.com", "address", True),
        ("https://acme.openai.azure.com/openai/v1", "address", True),
        ("https://acme.services.ai.azure.com/openai/v1", "address", True),
        ("https://api.openai.com.corp.example/v1", "address", False),
        (OURS, "address", False),
        (OURS, "yes", True),
        (OURS, "before", True),
        ("https://10.0.0.7/v1", "before", False),
        # A proxy in one's own network may pass addresses on to those who fetch them.
        ("https://10.0.0.7/v1", "yes", True),
        ("https://api.openai.com/v1", "no", False),
    ],
)
def test_the_address_decides_unless_an_operator_does(
    settings: Any, address: str, said: str, expected: bool
) -> None:
    row = Provider(name="second", base_url=address, fetches=said)
    assert fetches(row) == expected
    settings.LLM_BASE_URL = address
    assert fetches(Provider(name="default", fetches=said)) == expected
    if said in {"yes", "no"}:
        settings.LLM_FETCHES = said
        assert fetches(Provider(name="default")) == expected


class TestAnUpgrade:
    """Rows of the release before, which fetched at every public address."""

    @pytest.fixture
    def before(self, operator: User, settings: Any) -> None:
        settings.LLM_BASE_URL = OURS
        Provider.objects.get_or_create(name="default")
        for name, address in (
            ("public", OURS),
            ("private", "https://10.0.0.7/v1"),
            ("known", "https://api.openai.com/v1"),
        ):
            Provider.objects.create(name=name, base_url=address)
        self.migrate()

    def migrate(self) -> None:
        import_module("llmproxy.migrations.0012_providers_that_fetch").leave_on(apps, None)

    def test_leaves_it_on_for_public_addresses_and_names_them(
        self, before: None, settings: Any, now: datetime
    ) -> None:
        said = dict(Provider.objects.values_list("name", "fetches"))
        assert said == {
            "default": "before",
            "public": "before",
            "private": "address",
            "known": "address",
        }
        assert "as before the upgrade: default, public." in warned(now)
        settings.LLM_FETCHES = "no"
        Provider.objects.filter(name="public").update(fetches="yes")
        assert "before the upgrade" not in warned(now)

    def test_leaves_it_on_for_a_default_model_without_a_row(
        self, before: None, signed_in: APIClient
    ) -> None:
        assert not LanguageModel.objects.exists()
        image = {"type": "image_url", "image_url": {"url": "https://10.0.0.1/"}}
        body = {"messages": [{"role": "user", "content": [image]}]}
        answer = signed_in.post("/v1/llm/chat/completions", body, format="json")
        assert answer.json()["errors"][0]["code"] == "literal_address"

    def test_is_decided_in_the_console(self, before: None, console: Browser, now: datetime) -> None:
        row = Provider.objects.get(name="public")
        page = reverse("admin:llmproxy_provider_terms", args=[row.pk])
        assert b'value="before" selected' in console.get(page).content
        given = {"name": "public", "dialect": "openai", "base_url": OURS, "members": "listed"}
        given["limit_name"] = "address"
        given |= {"fetches": "no", "reason": "It reaches our network."}
        assert console.post(page, given).status_code == 302
        row.refresh_from_db()
        assert row.fetches == "no"
        assert "as before the upgrade: default." in warned(now)

    def test_an_empty_installation_leaves_nothing_on(self, settings: Any) -> None:
        settings.LLM_BASE_URL = OURS
        Provider.objects.get_or_create(name="default")
        self.migrate()
        assert not Provider.objects.exclude(fetches="address").exists()
