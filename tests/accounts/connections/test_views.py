"""Connections over HTTP: status, code and shape. What the rules do is tested beside them."""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rest_framework.test import APIClient

from accounts.models import Connection, User
from tests.accounts.connections.conftest import REDIRECT, configure
from tests.accounts.connections.party import Party, says, tokens

pytestmark = pytest.mark.django_db
BASE = "/v1/connections"


@pytest.fixture
def shell(signed_in: APIClient, party: Party) -> APIClient:
    return signed_in


def post(shell: APIClient, action: str, body: Any = None, provider: str = "sheets") -> Any:
    return shell.post(f"{BASE}/{provider}/{action}", body, format="json")


def connect(shell: APIClient) -> Any:
    begun = post(shell, "authorize", {"redirect_uri": REDIRECT}).json()
    return post(shell, "complete", {"code": "c", "state": begun["state"]})


def test_the_way_from_nothing_to_nothing(shell: APIClient, party: Party) -> None:
    assert shell.get(BASE).json() == {"connections": [], "providers": ["sheets"]}
    begun = post(shell, "authorize", {"redirect_uri": REDIRECT})
    assert begun.status_code == 200
    assert begun.headers["Cache-Control"] == "no-store"
    assert begun.json().keys() == {"authorization_url", "state", "expires_at"}
    assert begun.json()["expires_at"].endswith("Z")
    query = parse_qs(urlsplit(begun.json()["authorization_url"]).query)
    assert query["state"] == [begun.json()["state"]]

    done = post(shell, "complete", {"code": "c", "state": begun.json()["state"], "iss": None})
    assert done.status_code == 201
    assert done.json().keys() == {"provider", "state", "scopes", "connected_at", "refreshed_at"}
    listed = shell.get(BASE)
    assert listed.json()["connections"] == [done.json()]
    assert listed.headers["Cache-Control"] == "private, no-cache"

    given = post(shell, "token")
    assert given.status_code == 200
    assert given.headers["Cache-Control"] == "no-store"
    assert given.json().keys() == {"access_token", "expires_at"}
    assert post(shell, "token", {"refused": None, "else": 1}).json() == given.json()

    assert shell.delete(f"{BASE}/sheets").status_code == 204
    assert shell.get(BASE).json()["connections"] == []


@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_the_endpoints_require_an_access_token(api: APIClient, method: str) -> None:
    path = BASE if method == "get" else f"{BASE}/sheets"
    path = f"{path}/token" if method == "post" else path
    assert getattr(api, method)(path).status_code == 401


def test_connections_are_listed_by_provider_with_their_state(
    shell: APIClient, party: Party, user: User, now: datetime, settings: Any
) -> None:
    for name in ("b", "a", "sheets", "d"):
        Connection.objects.create(
            user=user, provider=name, access_token=b"-", connected_at=now, refreshed_at=now
        )
    Connection.objects.filter(provider="b").update(failure="failed", failed_at=now)
    Connection.objects.filter(provider="d").update(lapse="refused", lapsed_at=now)
    listed = shell.get(BASE).json()["connections"]
    assert [(each["provider"], each["state"]) for each in listed] == [
        ("a", "unavailable"),
        ("b", "unavailable"),
        ("d", "reauthorisation_needed"),
        ("sheets", "healthy"),
    ]


def test_nobody_sees_or_uses_those_of_another(
    shell: APIClient, organisation: Any, now: datetime
) -> None:
    other = User.objects.create_user("bob@acme.test", client=organisation)
    Connection.objects.create(
        user=other, provider="sheets", access_token=b"-", connected_at=now, refreshed_at=now
    )
    assert shell.get(BASE).json()["connections"] == []
    assert post(shell, "token").json()["code"] == "connection_not_found"
    assert shell.delete(f"{BASE}/sheets").json()["code"] == "connection_not_found"
    assert Connection.objects.count() == 1


@pytest.mark.parametrize(
    ("action", "body", "pointer"),
    [
        ("authorize", {}, "/redirect_uri"),
        ("authorize", {"redirect_uri": 5}, "/redirect_uri"),
        (
            "authorize",
            {"redirect_uri": "http://localhost:80/oauth/sheets/callback"},
            "/redirect_uri",
        ),
        ("complete", {"state": "s"}, "/code"),
        ("complete", {"code": "c"}, "/state"),
        ("complete", {"code": "c" * 5000, "state": "s"}, "/code"),
        ("token", {"refused": 5}, "/refused"),
    ],
)
def test_a_bad_body_is_refused_by_its_member(
    shell: APIClient, action: str, body: Any, pointer: str
) -> None:
    answer = post(shell, action, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


def test_each_refusal_has_its_code(
    shell: APIClient, party: Party, now: datetime, settings: Any
) -> None:
    def code_of(answer: Any) -> tuple[int, str]:
        return answer.status_code, answer.json()["code"]

    assert code_of(post(shell, "token")) == (404, "connection_not_found")
    assert code_of(post(shell, "complete", {"code": "c", "state": "s"})) == (400, "state_invalid")
    assert connect(shell).status_code == 201
    past = now - timedelta(hours=2)
    Connection.objects.update(refreshed_at=past, expires_at=past + timedelta(hours=1))
    party.answers = [says(503)]
    answer = post(shell, "token")
    assert code_of(answer) == (503, "provider_unavailable")
    assert answer.headers["Retry-After"]
    Connection.objects.update(ask_again_at=None)
    party.answers = [says(400, error="invalid_grant")]
    assert code_of(post(shell, "token")) == (409, "reauthorisation_needed")
    configure(settings)
    assert code_of(post(shell, "token")) == (503, "not_configured")
    assert shell.get(BASE).json()["providers"] == []
    # Ending it needs nothing of the provider's settings.
    assert shell.delete(f"{BASE}/sheets").status_code == 204


def test_a_code_that_comes_back_with_tokens_is_not_repeated_anywhere(
    shell: APIClient, party: Party, caplog: pytest.LogCaptureFixture
) -> None:
    party.answers = [tokens(1)]
    begun = post(shell, "authorize", {"redirect_uri": REDIRECT}).json()
    done = post(shell, "complete", {"code": "canary-code", "state": begun["state"]})
    for secret in ("canary-code", begun["state"], "access-1", "refresh-1"):
        assert secret not in done.content.decode()
        assert secret not in caplog.text


class TestLimits:
    """A loop of one person must not have the third party throttle or ban the client that all share."""

    @pytest.fixture(autouse=True)
    def two(self, settings: Any) -> None:
        settings.RATE_LIMITS = {"connections.user": "2/h"}

    def test_completions_that_fail_are_counted(self, shell: APIClient, party: Party) -> None:
        party.answers = [says(400, error="invalid_grant")] * 3
        codes = [connect(shell).status_code for _ in range(5)]
        assert codes == [400, 400, 429, 429, 429]
        assert len(party.forms) == 2

    def test_tokens_are_counted_where_they_are_renewed(
        self, shell: APIClient, party: Party, connection: Connection
    ) -> None:
        party.answers = [tokens(2)]
        assert [post(shell, "token").status_code for _ in range(5)] == [200] * 5
        Connection.objects.update(expires_at=connection.connected_at)
        party.answers = [says(500)] * 3
        codes = []
        for _ in range(3):
            Connection.objects.update(ask_again_at=None)
            codes.append(post(shell, "token").status_code)
        assert codes == [502, 429, 429]

    def test_a_token_that_still_works_is_given_all_the_same(
        self, shell: APIClient, party: Party, settings: Any
    ) -> None:
        assert connect(shell).status_code == 201
        settings.RATE_LIMITS = {"connections.user": "1/h"}
        # Due to be renewed, and good for some more seconds.
        soon = Connection.objects.get().refreshed_at + timedelta(seconds=30)
        Connection.objects.update(expires_at=soon)
        assert post(shell, "token").status_code == 200

    def test_the_rest_is_not_counted(self, shell: APIClient, party: Party) -> None:
        for _ in range(5):
            assert post(shell, "authorize", {"redirect_uri": REDIRECT}).status_code == 200
            assert shell.get(BASE).status_code == 200


def test_a_grant_that_is_dead_in_other_words_needs_the_person(
    shell: APIClient, party: Party, now: datetime
) -> None:
    """getsentry/junior#620: with status 200, in the body."""
    connect(shell)
    Connection.objects.update(expires_at=now - timedelta(hours=1))
    party.answers = [says(200, error="bad_refresh_token")]
    answer = post(shell, "token")
    assert (answer.status_code, answer.json()["code"]) == (409, "reauthorisation_needed")
    (listed,) = shell.get(BASE).json()["connections"]
    assert listed["state"] == "reauthorisation_needed"


def test_a_code_that_is_dead_in_other_words_is_refused(shell: APIClient, party: Party) -> None:
    """togetherly#95."""
    party.answers = [says(200, error="bad_verification_code")]
    answer = connect(shell)
    assert (answer.status_code, answer.json()["code"]) == (400, "provider_rejected")
    assert shell.get(BASE).json()["connections"] == []


def test_scopes_are_words_whatever_separates_them(shell: APIClient, party: Party) -> None:
    party.answers = [tokens(1, scope="write,read")]
    assert connect(shell).json()["scopes"] == ["read", "write"]
