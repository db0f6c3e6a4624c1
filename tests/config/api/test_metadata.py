"""What a call says of itself."""

import pytest
from rest_framework.test import APIClient


@pytest.mark.parametrize("path", ["/v1/auth/login", "/v1/auth/refresh", "/.well-known/jwks.json"])
def test_options_say_what_may_be_asked_and_not_how_it_is_done(api: APIClient, path: str) -> None:
    answer = api.options(path)
    assert (answer.status_code, answer.json()) == (200, {})
    assert "OPTIONS" in answer["Allow"]
