"""Pages of other origins: what a webview may send, and what it may read of every answer."""

import pytest
from django.test import Client
from pytest_django import Settings

ORIGIN = "tauri://localhost"
STAINLESS = (
    "x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
    "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version"
)
# As WebKitGTK asked for them, with bundles of October and November 2026; and what the SDKs offer as an option.
ASKED = {
    "openai": f"authorization,content-type,openai-organization,openai-project,user-agent,{STAINLESS}",
    "openai's helper": f"authorization,content-type,x-stainless-helper-method,{STAINLESS}",
    "openai, polling": "openai-beta,x-stainless-poll-helper,x-stainless-custom-poll-interval",
    "openai, older": f"authorization,content-type,user-agent,x-stainless-async,{STAINLESS}",
    "AI SDK": "authorization,content-type,user-agent",
    "LangChain": f"authorization,content-type,user-agent,{STAINLESS}",
    "Anthropic": "anthropic-dangerous-direct-browser-access,anthropic-version,authorization,content-type,"
    f"x-stainless-helper-method,x-stainless-timeout,{STAINLESS}",
    "Anthropic, beta": "anthropic-beta,anthropic-version,x-api-key,x-stainless-helper",
    "tracing": "traceparent,tracestate,baggage,sentry-trace",
    "a shell": "authorization,content-type,idempotency-key,if-none-match,x-request-id",
}

# Headers of an answer that SDKs and shells read.
READ = (
    *("etag", "retry-after", "x-should-retry", "x-request-id", "request-id"),
    *("x-tokens-remaining-month", "x-tokens-remaining-day", "x-manifest-signature"),
    *(f"x-ratelimit-{what}-requests" for what in ("limit", "remaining", "reset")),
    *(f"x-ratelimit-{what}-tokens" for what in ("limit", "remaining", "reset")),
)


@pytest.fixture(autouse=True)
def _webview(settings: Settings) -> None:
    settings.CORS_ALLOWED_ORIGINS = [ORIGIN]


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_webview_may_send_what_sdks_send(client: Client, asked: str) -> None:
    response = client.options(
        "/v1/llm/chat/completions",
        headers={
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": asked,
        },
    )
    assert (response.status_code, response.content) == (200, b"")
    assert response["Access-Control-Allow-Origin"] == ORIGIN
    assert "POST" in response["Access-Control-Allow-Methods"]
    allowed = response["Access-Control-Allow-Headers"].split(", ")
    assert set(asked.split(",")) <= set(allowed)


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "tauri://evil", "file://"])
def test_no_other_page_may_send_or_read_anything(client: Client, origin: str) -> None:
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    for response in (
        client.options("/v1/llm/complete", headers=preflight),
        client.get("/livez", headers={"Origin": origin}),
    ):
        assert not [name for name in response.headers if name.startswith("Access-Control")]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz", 200), ("/livez", 204), ("/v1/license/status", 401), ("/nowhere", 404)],
)
def test_a_webview_may_read_health_and_refusals(client: Client, path: str, status: int) -> None:
    response = client.get(path, headers={"Origin": ORIGIN}, secure=True)
    assert response.status_code == status
    assert response["Access-Control-Allow-Origin"] == ORIGIN
    assert "origin" in response["Vary"].lower()
    exposed = response["Access-Control-Expose-Headers"].split(", ")
    assert set(READ) <= set(exposed)
