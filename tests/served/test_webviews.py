"""SDKs in a shell's webview, which calls from an origin of its own: WebKit and Chromium, with real bundles."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.served.conftest import Ground, SignIn
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.webviews import in_chromium, in_webkit, page_of_a_shell
from tests.standins.anthropic_server import message, messages_server, text

pytestmark = pytest.mark.wire

SDKS = {
    "openai whole",
    "openai stream",
    "openai helper",
    "ai compatible whole",
    "ai compatible stream",
    "ai openai stream",
    "langchain whole",
    "langchain stream",
}
# Requests of the AI SDK that a model at Anthropic's dialect does not answer.
RESPONSES = {"ai responses whole", "ai responses stream"}

Look = Callable[[Service], dict[str, Any]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with page_of_a_shell(tmp_path_factory.mktemp("page")) as url:
        yield url


@pytest.fixture(scope="module")
def allowing(ground: Ground, page: str) -> Iterator[Service]:
    """A service that knows the page's origin."""
    with running_service(ground.folder, {**ground.environ, "CORS_ORIGINS": page}) as service:
        yield service
        assert service.errors() == []


@pytest.fixture(scope="module")
def of_anthropic(ground: Ground, page: str) -> Iterator[Service]:
    """The same, whose models are at Anthropic's dialect."""
    reply = message(text("A haiku is a poem."))
    with messages_server(reply, api_key=os.environ["LLM_API_KEY"]) as provider:
        environ = {"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": provider.base_url}
        environ["CORS_ORIGINS"] = page
        with running_service(ground.folder, {**ground.environ, **environ}) as service:
            yield service
            assert service.errors() == []


@pytest.fixture(params=[in_webkit, in_chromium], ids=["webkit", "chromium"])
def look(request: pytest.FixtureRequest, page: str, person: Person, sign_in: SignIn) -> Look:
    """Opens the page, which calls a service as the person."""

    def look(service: Service) -> dict[str, Any]:
        query = {"base": service.url, "token": sign_in(service, person).access}
        results: dict[str, Any] = request.param(f"{page}/?{urlencode(query)}")
        return results

    return look


def heard(found: dict[str, Any]) -> set[str]:
    """The calls that brought the answer."""
    return {name for name, result in found.items() if "haiku" in (result.get("text") or "")}


def test_every_sdk_gets_its_answers(look: Look, allowing: Service) -> None:
    found = look(allowing)
    assert heard(found) == SDKS | RESPONSES, found
    # Tests of routes add models of their own to the service.
    listed = set(found["openai models"]["text"].split(","))
    assert listed >= {"stand-in-embedding", "stand-in-large", "stand-in-small"}
    # Its models are not at Anthropic's dialect, and it can read so.
    assert "NotFoundError: 404" in found["anthropic whole"]["error"]
    # A webview may read more than the body: headers, refusals, and the health of the service.
    assert found["openai whole"]["left"] == "unlimited"
    assert found["a refusal"] == {"text": "invalid_request"}
    assert found["health"] == {"text": "200 ok 204"}


def test_anthropics_sdk_gets_its_answers_at_its_dialect(look: Look, of_anthropic: Service) -> None:
    found = look(of_anthropic)
    assert heard(found) == SDKS | {"anthropic whole", "anthropic stream"}, found


def test_a_page_that_nobody_allowed_gets_nothing(look: Look, service: Service) -> None:
    found = look(service)
    assert {name for name, result in found.items() if "error" not in result} == {"a refusal"}
    assert found["a refusal"].get("text") is None
