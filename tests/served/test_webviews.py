"""SDKs in a shell's webview, which calls from an origin of its own: WebKit and Chromium, with real bundles."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.served.conftest import Ground, SignIn, unexpected
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.webviews import in_chromium, in_webkit, page_of_a_shell

pytestmark = pytest.mark.wire

SDKS = (
    "openai whole",
    "openai stream",
    "openai helper",
    "ai compatible whole",
    "ai compatible stream",
    "ai openai stream",
    "langchain whole",
    "langchain stream",
)

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
        assert unexpected(service.errors()) == []


@pytest.fixture(params=[in_webkit, in_chromium], ids=["webkit", "chromium"])
def look(request: pytest.FixtureRequest, page: str, person: Person, sign_in: SignIn) -> Look:
    """Opens the page, which calls a service as the person."""

    def look(service: Service) -> dict[str, Any]:
        query = {"base": service.url, "token": sign_in(service, person).access}
        results: dict[str, Any] = request.param(f"{page}/?{urlencode(query)}")
        return results

    return look


def test_every_sdk_gets_its_answers(look: Look, allowing: Service) -> None:
    found = look(allowing)
    assert {sdk: "haiku" in found[sdk].get("text", "") for sdk in SDKS} == dict.fromkeys(
        SDKS, True
    ), found
    assert found["openai models"] == {"text": "stand-in-embedding,stand-in-large,stand-in-small"}
    # Its headers pass, whatever the service answers.
    assert "Connection error" not in str([found["anthropic whole"], found["anthropic stream"]])
    # What it may read beside the body: headers, refusals, and whether the service is there.
    assert found["openai whole"]["left"] == "unlimited"
    assert found["a refusal"] == {"text": "invalid_request"}
    assert found["health"] == {"text": "200 ok 204"}


def test_a_page_that_nobody_allowed_gets_nothing(look: Look, service: Service) -> None:
    found = look(service)
    assert {name for name, result in found.items() if "error" not in result} == {"a refusal"}
    assert found["a refusal"].get("text") is None
