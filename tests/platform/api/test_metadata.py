"""Metadata of a call."""

import pytest
from rest_framework.test import APIClient


@pytest.mark.parametrize("path", ["/v1/auth/login", "/v1/auth/refresh", "/.well-known/jwks.json"])
def test_options_list_the_methods_and_no_internals(api: APIClient, path: str) -> None:
    answer = api.options(path)
    assert (answer.status_code, answer.json()) == (200, {})
    assert "OPTIONS" in answer["Allow"]
