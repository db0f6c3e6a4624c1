"""Requests in clear: refused below /v1/, redirected with their method elsewhere (rails/rails#23941)."""

from ipaddress import ip_network

import pytest
from django.test import Client
from pytest_django import Settings

PROXY = "10.0.0.1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "address",
    ["/v1/auth/login", "/v1/auth/refresh", "/v1/llm/messages", "/v1/license/status", "/v1/none"],
)
def test_a_plain_http_call_is_refused_and_not_redirected(
    client: Client, method: str, address: str
) -> None:
    response = client.generic(method, address, "{}", content_type="application/json")
    assert (response.status_code, response["Content-Type"]) == (403, "application/problem+json")
    assert response.json()["code"] == "permission_denied"
    assert "only answers over HTTPS" in response.json()["detail"]
    assert "Location" not in response.headers


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("POST", "/admin/login/?next=/admin/", 308),
        ("PUT", "/docs/", 308),
        ("DELETE", "/chat/completions", 308),
        ("GET", "/admin/login/?next=/admin/", 301),
        ("HEAD", "/docs/", 301),
    ],
)
def test_elsewhere_a_request_goes_on_as_it_was(
    client: Client, method: str, address: str, status: int
) -> None:
    response = client.generic(method, address)
    assert response.status_code == status
    assert response["Location"] == f"https://testserver{address}"


@pytest.mark.django_db
@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https", " HTTPS , http"])
def test_a_scheme_that_a_trusted_proxy_says_has_no_case(
    client: Client, settings: Settings, scheme: str
) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/24")]
    given = {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_PROTO": scheme}
    assert client.get("/v1/license/status", **given).status_code == 401
    given["REMOTE_ADDR"] = "203.0.113.7"
    assert client.get("/v1/license/status", **given).status_code == 403


def test_a_stranger_s_host_is_led_nowhere(client: Client) -> None:
    assert client.post("/admin/login/", HTTP_HOST="elsewhere.example").status_code == 400


def test_plain_http_is_served_where_the_service_has_no_https(
    client: Client, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = False
    assert client.post("/v1/none").status_code == 404
