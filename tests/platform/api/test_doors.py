"""Every address against every kind of credential: each kind is good for its own doors alone."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.sessions.sign_in import TokenPair
from config.platform.edge.ratelimits.table import DEFAULTS
from config.platform.env.secret_files import Secret
from licensing.models import Plan
from tests.addresses import addresses
from tests.conftest import Browser, SecureClient

pytestmark = pytest.mark.django_db

PUBLISH_SECRET = "a publish secret of more than thirty-two letters"
PUBLISH = "/v1/internal/manifest/publish"
CALLS = "/v1/llm/"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Of the API, what needs no credential.
PUBLIC = {
    "/v1/auth/login", "/v1/auth/refresh", "/v1/auth/logout", "/v1/auth/password/reset", "/v1/schema",
    "/v1/updates/manifest",
    # Any other address below says what there is.
    CALLS,
}  # fmt: skip
KINDS = ("access token", "refresh token", "personal key", "publish secret", "console")


def opens(kind: str, address: str) -> bool:
    """Returns whether a credential is good for an address of the API."""
    if address == PUBLISH:
        return kind == "publish secret"
    return kind == "access token" or (kind == "personal key" and address.startswith(CALLS))


Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(settings: Settings, plan: Plan, user: User, pair: TokenPair, console: Browser) -> Ask:
    """Asks with a credential as a bearer token or as ``x-api-key``; gives the status and where it leads."""
    settings.RATE_LIMITS = dict.fromkeys(DEFAULTS, "1000000/m")
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", PUBLISH_SECRET)
    Plan.objects.update(allows_keys=True)
    api = SecureClient()
    texts = {
        "access token": pair.access,
        "refresh token": pair.refresh,
        "personal key": new_key(pair),
        "publish secret": PUBLISH_SECRET,
    }

    def ask(kind: str, method: str, address: str, *, as_key: bool = False) -> tuple[int, str]:
        caller: Any = console if kind == "console" else api
        headers = {"HTTP_ACCEPT": "*/*"}
        if text := texts.get(kind):
            name, value = ("X_API_KEY", text) if as_key else ("AUTHORIZATION", f"Bearer {text}")
            headers[f"HTTP_{name}"] = value
        answer = caller.generic(method, address, b"{}", content_type="application/json", **headers)
        return answer.status_code, answer.headers.get("Location", "")

    return ask


def new_key(pair: TokenPair) -> str:
    api = SecureClient()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    made = api.post("/v1/keys", {"name": "Editor"}, format="json")
    return str(made.json()["key"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_opens_to_the_credential_of_each_door_alone(ask: Ask, kind: str) -> None:
    for address in [each for each in addresses() if each.startswith("/v1/") and each not in PUBLIC]:
        for method in METHODS:
            if not opens(kind, address):
                assert ask(kind, method, address)[0] == 401, (method, address)
                assert ask(kind, method, address, as_key=True)[0] == 401, (method, address)
            elif method in {"GET", "POST"}:
                assert ask(kind, method, address)[0] != 401, (method, address)
                # An API key is what a header of its own is for.
                assert (ask(kind, method, address, as_key=True)[0] == 401) == (
                    not address.startswith(CALLS)
                ), (method, address)


def test_the_addresses_that_need_no_credential_are_known(ask: Ask) -> None:
    for address in [each for each in addresses() if each.startswith("/v1/")]:
        refused = {ask("none", method, address)[0] == 401 for method in METHODS}
        assert refused == {address not in PUBLIC}, address


def test_no_credential_of_the_api_opens_a_page(ask: Ask) -> None:
    for address in [each for each in addresses() if each.startswith(("/admin/", "/account/"))]:
        for method in ("GET", "POST"):
            answers = {ask(kind, method, address) for kind in ("none", *KINDS[:-1])}
            assert len(answers) == 1, (method, address, answers)
