"""OAUTH_PROVIDERS: what is read, and what stops the start without repeating a secret."""

import json
from typing import Any

import pytest
from environs import ValidationError

from accounts.connections.provider_settings import read

ONE: dict[str, Any] = {
    "client_id": "c",
    "client_secret": "canary",
    "authorization_endpoint": "https://a.test/authorize",
    "token_endpoint": "https://a.test/token",
}


def one(**members: Any) -> str:
    return json.dumps({"a": {**ONE, **members}})


@pytest.mark.parametrize("value", ["", "  ", "{}"])
def test_none_is_fine(value: str) -> None:
    assert read(value) == {}


def test_any_provider_needs_a_client_and_two_endpoints() -> None:
    provider = read(one(scopes="y x"))["a"]
    assert (provider.token_endpoint_auth_method, provider.scopes) == (
        "client_secret_basic",
        ("y", "x"),
    )
    assert "canary" not in repr(provider)
    public = read(one(client_secret=""))["a"]
    assert public.token_endpoint_auth_method == "none"


def test_an_issuer_has_to_be_named_only_where_that_is_said() -> None:
    assert not read(one(issuer="https://a.test"))["a"].iss_required
    assert not read(one())["a"].iss_required
    assert read(one(issuer="https://a.test", iss_required=True))["a"].iss_required


def test_google_needs_a_client_and_can_be_changed_in_everything() -> None:
    mine = {"client_id": "c", "client_secret": "s"}
    google = read(json.dumps({"google": mine}))["google"]
    assert google.token_endpoint == "https://oauth2.googleapis.com/token"
    assert google.one_grant
    other = read(json.dumps({"google": {**mine, "scopes": ["openid"]}}))["google"]
    assert other.scopes == ("openid",)


@pytest.mark.parametrize(
    "address",
    ["https://a.test/x?y=1", "http://127.0.0.1:80/t", "http://[::1]/t", "http://localhost:9/t"],
)
def test_https_is_needed_but_on_this_machine(address: str) -> None:
    assert read(one(token_endpoint=address))["a"].token_endpoint == address


BAD = [
    "nonsense", "[]", "5", "[" * 9000, json.dumps({"A b": ONE}), json.dumps({"": ONE}),
    json.dumps({"a" * 41: ONE}), json.dumps({"a": "canary"}), json.dumps({"google": {}}),
    one(client_id=""), one(client_id=5), one(client_secret=["canary"]), one(canary="x"),
    one(token_endpoint=""), one(token_endpoint="http://a.test/t"), one(token_endpoint="/t"),
    one(token_endpoint="https://canary@a.test/t"), one(token_endpoint="https://a.test/#canary"),
    one(token_endpoint="https://a.test:port/"), one(token_endpoint="https://[canary/"),
    one(token_endpoint="https://ä.test/"), one(revocation_endpoint="ftp://a.test/"),
    one(scopes=5), one(scopes=["a b"]), one(scopes=[5]), one(authorization_params=[]),
    one(authorization_params={"x": 5}), one(authorization_params={"state": "x"}),
    one(token_endpoint_auth_method="private_key_jwt"), one(token_endpoint_auth_method="none"),
    one(client_secret="", token_endpoint_auth_method="client_secret_post"), one(one_grant="yes"),
    one(issuer=5), one(issuer="https://a.test", iss_required="yes"), one(iss_required=True),
    one(issuer="", iss_required=True),
]  # fmt: skip


@pytest.mark.parametrize("value", BAD)
def test_unusable_settings_are_refused_without_being_repeated(value: str) -> None:
    with pytest.raises(ValidationError) as raised:
        read(value)
    assert "canary" not in str(raised.value)
    assert raised.value.__cause__ is None
