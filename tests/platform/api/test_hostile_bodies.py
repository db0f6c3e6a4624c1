"""Hostile bodies at every address: each is refused, and none is an error of ours."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from accounts.models import User
from accounts.sessions.sign_in import TokenPair
from config.platform.edge.ratelimits.table import DEFAULTS
from config.platform.env.secret_files import Secret
from tests.addresses import NOWHERE, addresses
from tests.conftest import Browser
from tests.hostile import RAW, altered, encoded

pytestmark = pytest.mark.django_db

PUBLISH_SECRET = "a publish secret of more than thirty-two letters"
Send = Callable[[str, bytes], int]
PUBLISH = "/v1/internal/manifest/publish"
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
TOOL = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
# A good document of each door that takes JSON; each of its values is replaced in turn.
DOORS: dict[str, Any] = {
    "/v1/auth/login": {"email": "a@b.test", "password": "wrong", "device_fp": "d"},
    "/v1/auth/refresh": {"refresh": "k" * 43, "device_fp": "d"},
    "/v1/auth/logout": {"refresh": "k" * 43},
    "/v1/auth/password/change": {"current": "wrong", "new": "another"},
    "/v1/auth/password/reset": {"email": "a@b.test"},
    "/v1/keys": {"name": "Editor", "days": 30, "monthly_output_tokens": 100},
    "/v1/connections/google/authorize": {
        "redirect_uri": "http://127.0.0.1:1/oauth/google/callback"
    },
    "/v1/connections/google/complete": {"code": "c", "state": "s"},
    "/v1/telemetry": {
        "events": [
            {
                "id": NOWHERE,
                "name": "started",
                "occurred_at": "2026-01-01T00:00:00Z",
                "properties": {"a": {"b": [1]}},
                "app": "notes",
                "shell_version": "1.0.0",
            }
        ]
    },
    "/v1/llm/chat/completions": {
        "model": "none",
        "messages": MESSAGES,
        "max_tokens": 5,
        "stop": ["a"],
        "logit_bias": {"1": 2},
        "metadata": {"a": "b"},
        "response_format": {"type": "text"},
        "tools": [{"type": "function", "function": TOOL}],
        "stream_options": {"include_usage": True},
    },
    "/v1/llm/responses": {
        "model": "none",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "tools": [{"type": "function", **TOOL}],
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
    },
    "/v1/llm/embeddings": {"model": "none", "input": ["Hello"], "dimensions": 8},
    "/v1/llm/messages": {
        "model": "none",
        "max_tokens": 5,
        "messages": MESSAGES,
        "system": [{"type": "text", "text": "Be brief."}],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    },
    PUBLISH: {
        "version": "1.0.0",
        "channel": "stable",
        "pub_date": "2026-01-01T00:00:00Z",
        "notes": "New.",
        "platforms": {"darwin-aarch64": {"url": "https://cdn.shell.test/x", "signature": "s"}},
    },
}
DOORS["/v1/llm/messages/count_tokens"] = DOORS["/v1/llm/messages"]
DOORS["/v1/llm/responses/input_tokens"] = DOORS["/v1/llm/responses"]
# They read their bodies as one of those does.
SAME = {
    "/v1/llm/complete", "/v1/llm/stream", "/v1/llm/v1/messages", "/v1/llm/v1/messages/count_tokens",
}  # fmt: skip
WITHOUT_BODY = {"/v1/connections/google/token"}


@pytest.fixture(autouse=True)
def _no_limits(settings: Settings) -> None:
    settings.RATE_LIMITS = dict.fromkeys(DEFAULTS, "1000000/m")
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", PUBLISH_SECRET)


@pytest.fixture
def send(api: APIClient, pair: TokenPair) -> Send:
    """Posts a body as somebody who may; gives the status."""
    api.raise_request_exception = False

    def send(address: str, body: bytes) -> int:
        token = PUBLISH_SECRET if address == PUBLISH else pair.access
        headers = {"HTTP_AUTHORIZATION": f"Bearer {token}"}
        status: int = api.generic(
            "POST", address, body, content_type="application/json", **headers
        ).status_code
        return status

    return send


def under(prefix: str) -> list[str]:
    return [each for each in addresses() if each.startswith(prefix)]


def test_no_door_is_missing_here(send: Send) -> None:
    known = {*DOORS, *SAME, *WITHOUT_BODY}
    for address in under("/v1/"):
        if send(address, b"[]") not in {404, 405}:
            assert address.replace("notes", "google") in known


@pytest.mark.parametrize("name", RAW)
def test_every_door_refuses_what_is_no_json_object(send: Send, name: str) -> None:
    for address in under("/v1/"):
        status = send(address, RAW[name])
        # Signing out answers the same to everything.
        wanted = {400, 413, 204} if address in {*DOORS, *SAME} else range(400, 500)
        assert status in wanted, (address, status)


@pytest.mark.parametrize("door", DOORS)
def test_one_hostile_value_is_no_error_of_ours(send: Send, door: str) -> None:
    for what, document in altered(DOORS[door]):
        # No provider is there: 503 where a value is as good as any.
        assert send(door, encoded(document)) != 500, what


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", RAW["a deep member"]),
        ("application/x-www-form-urlencoded", RAW["a form"]),
        ("application/x-www-form-urlencoded", b"next=%00&reason=%00&once=%00&name=%00&end=%00"),
    ],
)
def test_no_page_fails_at_a_hostile_body(
    console: Browser, operator: User, kind: str, body: bytes
) -> None:
    console.raise_request_exception = False
    for address in under("/admin/"):
        status = console.post(address, body, content_type=kind).status_code
        assert status < 500, (address, status)
        if status == 200 and "logout" in address:
            console.force_login(operator)
