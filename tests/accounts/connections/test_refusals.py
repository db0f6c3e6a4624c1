"""The words of providers: which only the person can mend, which pass, and which nobody knows.

Rows with a number are public reports of other projects.
"""

from datetime import datetime
from typing import Any

import pytest

from accounts.connections import oauth
from accounts.connections.oauth import GrantRefused, ProviderFailed
from tests.accounts.connections.party import Party, Said, says
from tests.accounts.connections.test_oauth import ASKED, provider, renewed

THE_PERSONS: list[tuple[int, dict[str, Any]]] = [
    # getsentry/junior#620
    (200, {"error": "bad_refresh_token", "error_description": "incorrect or expired"}),
    (400, {"error": "bad_refresh_token"}),
    (200, {"error": "bad_verification_code"}),  # togetherly#95
    (200, {"ok": False, "error": "invalid_refresh_token"}),  # CogniQ/CogniQ#72
    (200, {"ok": False, "error": "token_revoked"}),  # CogniQ/CogniQ#72
    (200, {"ok": False, "error": "code_already_used"}),
    (400, {"status": "BAD_REFRESH_TOKEN", "message": "missing or unknown"}),  # HGData/mk-node-hubspot#64
    (400, {"status": "BAD_AUTH_CODE", "message": "missing or unknown"}),
    (401, {"error": {"type": "invalid_request_error", "code": "refresh_token_reused"}}),  # vm0-ai/vm0#27947
    (400, {"code": 400, "error_code": "refresh_token_not_found", "msg": "Invalid Refresh Token"}),
    (400, {"error": "invalid_grant", "error_description": "Token is not active"}),  # p2/OAuth2#367
    (400, {"error": "INVALID_GRANT"}),
    (403, {"error": "InvalidGrant"}),
    (400, {"error": "invalid-grant"}),
    (400, {"error": " Invalid grant "}),
    (400, {"error": {"code": "invalid_grant"}}),
    (400, {"error": "interaction_required", "suberror": "basic_action"}),
    (400, {"error": "consent_required"}),
    (400, {"error": "login_required"}),
    (401, {"error": "invalid_token"}),
    (403, {"error": "access_denied"}),
    (400, {"error": "mfa_required"}),
]  # fmt: skip
PASSING: list[tuple[int, dict[str, Any]]] = [
    (500, {"error": "bad_refresh_token"}),
    (502, {"error": "invalid_grant"}),
    (503, {"error": "invalid_grant"}),
    (429, {"error": "interaction_required"}),
    (400, {"error": "temporarily_unavailable"}),
    (200, {"ok": False, "error": "ratelimited"}),
    (400, {"error": "slow_down"}),
    (401, {"error": "invalid_client"}),
    (400, {"error": "INVALID_CLIENT"}),
    (200, {"error": "incorrect_client_credentials"}),
    (200, {"ok": False, "error": "bad_client_secret"}),
    (403, {"error": "unauthorized_client"}),
    (400, {"error": "invalid_request"}),
    (400, {"error": "invalid_request_error"}),
    (400, {"error": "invalid_request", "error_description": "Missing parameter: refresh_token"}),
    (401, {"error": "invalid_client", "error_description": "Client secret expired"}),
    (500, {"error": "invalid_request", "error_description": "refresh token expired"}),
    (200, {"error": "redirect_uri_mismatch"}),
    (400, {"error": "unsupported_grant_type"}),
    (400, {"error": "server_error"}),
    (404, {"error": "Not Found"}),
    (405, {"detail": "Method not allowed."}),
]
UNKNOWN: list[tuple[int, dict[str, Any]]] = [
    (400, {"error": "bad_moon_rising"}),
    (200, {"error": "bad_moon_rising"}),
    (400, {"message": "no error"}),
    (400, {"error": "Bad Request", "status": 400, "message": "Invalid refresh token"}),
    (200, {"errcode": 40030, "errmsg": "invalid refresh_token"}),
    (400, {"error": {"type": "OAuthException", "code": 190}}),
    (401, {"error": "Unauthorized", "message": "no such account"}),
    (403, {"message": "forbidden"}),
    (410, {"error": "gone"}),
    (
        400,
        {"error": "invalid_request", "error_description": "Refresh token expired"},
    ),  # FlowFuse/flowfuse#8547
    (
        400,
        {"error": "invalid_request", "error_description": "invalid refresh_token"},
    ),  # better-auth/better-auth#8103
    (403, {"error": "unauthorized_client", "error_description": "refresh_token is invalid"}),
]


@pytest.mark.parametrize(("status", "members"), THE_PERSONS)
def test_errors_that_only_the_person_can_fix_refuse_grant_and_code(
    party: Party, now: datetime, status: int, members: dict[str, Any]
) -> None:
    party.answers = [says(status, **members)]
    with pytest.raises(GrantRefused):
        renewed(party, now)
    with pytest.raises(GrantRefused):
        oauth.redeem(provider(party), code="c", asked=ASKED, now=now)


def failure(party: Party, now: datetime, said: Said) -> ProviderFailed:
    party.answers = [said]
    with pytest.raises(ProviderFailed) as raised:
        renewed(party, now)
    return raised.value


@pytest.mark.parametrize(("status", "members"), PASSING)
def test_temporary_errors_say_nothing_about_the_grant(
    party: Party, now: datetime, status: int, members: dict[str, Any]
) -> None:
    assert not failure(party, now, says(status, **members)).unknown


@pytest.mark.parametrize(("status", "members"), UNKNOWN)
def test_unknown_refusals_are_distinguished_from_temporary_ones(
    party: Party, now: datetime, status: int, members: dict[str, Any]
) -> None:
    assert failure(party, now, says(status, **members)).unknown


@pytest.mark.parametrize(
    ("said", "unknown"),
    [
        (Said(400, b"<html>"), True),
        (Said(401, b"Unknown Basecamp ID."), True),  # basecamp/bc-api#247
        (Said(401), False),
        (Said(302, headers={"Location": "/elsewhere"}), False),
        (Said(404, b"<html>"), False),
        (Said(200, b"<html>"), False),
        (Said(200, b"{}"), False),
        (says(200, access_token=""), False),
    ],
)
def test_only_a_refusal_counts_as_one(
    party: Party, now: datetime, said: Said, unknown: bool
) -> None:
    assert failure(party, now, said).unknown == unknown


@pytest.mark.parametrize("more", [{"status": "expired_token"}, {"code": "0"}, {"error": ""}])
def test_tokens_with_words_beside_them_are_tokens(
    party: Party, now: datetime, more: dict[str, str]
) -> None:
    party.answers = [says(200, access_token="a", **more)]
    assert renewed(party, now).access == "a"


@pytest.mark.parametrize("error", ["token_revoked", "interaction_required"])
def test_only_the_words_of_its_standard_confirm_a_revocation(party: Party, error: str) -> None:
    party.answers = [says(400, error=error)]
    with pytest.raises(ProviderFailed):
        oauth.revoke(provider(party), token="t", hint="refresh_token")
