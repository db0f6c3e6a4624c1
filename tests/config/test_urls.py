"""Addresses that lead on to others."""

import pytest
from django.test import Client


@pytest.mark.parametrize(
    ("path", "to"), [("/", "/docs/"), ("/docs", "/docs/"), ("/admin", "/admin/")]
)
def test_the_addresses_that_people_type_lead_on(client: Client, path: str, to: str) -> None:
    for method in ("GET", "HEAD"):
        response = client.generic(method, path, secure=True)
        assert (response.status_code, response["Location"]) == (302, to)
    refused = client.post(path, secure=True)
    assert (refused.status_code, refused["Content-Type"]) == (405, "application/problem+json")
    assert refused["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/v1/llm/models/", "/account", "/docs/x", "/v1"])
def test_no_other_address_is_guessed(client: Client, path: str) -> None:
    response = client.get(path, secure=True)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
