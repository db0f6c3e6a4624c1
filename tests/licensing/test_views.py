"""The licence as shells poll it."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from rest_framework.test import APIClient

from accounts.models import Client, User
from accounts.sessions.sign_in import TokenPair
from licensing.models import Licence
from licensing.serializers import LicenceStatusSerializer
from llmproxy.calls import watch
from tests.conftest import PASSWORD
from tests.ended import ENDS, end_access

pytestmark = pytest.mark.django_db
STATUS = "/v1/license/status"
WHEN = datetime(2030, 1, 31, tzinfo=UTC)
MESSAGES = [{"role": "user", "content": "Hello"}]


def test_the_status_is_what_is_stored(signed_in: APIClient) -> None:
    response = signed_in.get(STATUS)
    assert response.status_code == 200
    assert response.json() == {"status": "active", "plan": "Starter", "entitlements": []}
    assert response["Cache-Control"] == "private, no-cache"


def test_grace_says_until_when(signed_in: APIClient) -> None:
    Licence.objects.update(
        billing_status="grace", billing_grace_until=datetime(2027, 1, 31, 12, 30, tzinfo=UTC)
    )
    assert signed_in.get(STATUS).json()["grace_until"] == "2027-01-31T12:30:00Z"


def test_the_status_takes_one_reading_query(
    signed_in: APIClient, django_assert_num_queries
) -> None:
    signed_in.get(STATUS)
    before = _rows_written()
    with django_assert_num_queries(1):
        assert signed_in.get(STATUS).status_code == 200
    assert _rows_written() == before


def _rows_written() -> int:
    """By this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables"
        )
        (rows,) = cursor.fetchone() or (0,)
    return int(rows)


def test_an_answer_that_has_not_changed_is_not_sent_again(signed_in: APIClient) -> None:
    etag = signed_in.get(STATUS)["ETag"]
    again = signed_in.get(STATUS, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", etag)
    Licence.objects.update(operator_status="suspended", operator_reason="test")
    changed = signed_in.get(STATUS, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["status"]) == (200, "suspended")


@pytest.mark.parametrize("told", ["W/{}", '"other", {}', "*"])
def test_tags_may_be_named_in_any_way(signed_in: APIClient, told: str) -> None:
    etag = signed_in.get(STATUS)["ETag"]
    headers = {"If-None-Match": told.format(etag)}
    assert signed_in.get(STATUS, headers=headers).status_code == 304


@pytest.mark.parametrize(
    "told",
    [
        {"If-Match": '"other"'},
        {"If-Unmodified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"},
        {"If-Modified-Since": "Sat, 01 Jan 2050 00:00:00 GMT"},
        {"If-None-Match": "no tag"},
        {"If-None-Match": ""},
    ],
)
def test_none_of_the_other_conditions_is_a_readers(
    signed_in: APIClient, told: dict[str, str]
) -> None:
    for address in (STATUS, "/.well-known/jwks.json", "/v1/schema"):
        answer = signed_in.get(address, headers=told)
        assert (answer.status_code, bool(answer.content)) == (200, True)


@pytest.mark.parametrize(
    "change", [{"entitlements": ["mail"]}, {"billing_status": "grace", "billing_grace_until": WHEN}]
)
def test_every_change_of_the_answer_changes_its_tag(
    signed_in: APIClient, change: dict[str, object]
) -> None:
    before = signed_in.get(STATUS)
    Licence.objects.update(**change)
    after = signed_in.get(STATUS, headers={"If-None-Match": before["ETag"]})
    assert after.status_code == 200
    assert after.json() != before.json()


def test_a_field_that_is_new_in_the_answer_changes_its_tag(
    signed_in: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = signed_in.get(STATUS)["ETag"]
    shown = LicenceStatusSerializer.to_representation
    monkeypatch.setattr(
        LicenceStatusSerializer,
        "to_representation",
        lambda self, caller: {**shown(self, caller), "seats": 5},
    )
    after = signed_in.get(STATUS, headers={"If-None-Match": etag})
    assert (after.status_code, after.json()["seats"]) == (200, 5)


def test_the_rows_decide_and_not_the_token(signed_in: APIClient, organisation: Client) -> None:
    Licence.objects.update(entitlements=["sheets", "mail"])
    assert signed_in.get(STATUS).json()["entitlements"] == ["mail", "sheets"]


@pytest.mark.parametrize("how", ENDS)
def test_ended_access_is_refused_at_once(signed_in: APIClient, how: str, user: User) -> None:
    end_access(how, user)
    response = signed_in.get(STATUS)
    assert (response.status_code, response.json()["code"]) == (401, "access_revoked")
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_a_grace_that_has_run_out_is_a_grace_to_every_reader(
    signed_in: APIClient, user: User, pair: TokenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the night makes a suspension of it."""
    # The watch over running calls has a thread, which sees nothing of a test's transaction.
    monkeypatch.setattr(watch, "end_refused", lambda: None)
    over = datetime(2020, 1, 31, tzinfo=UTC)
    Licence.objects.update(billing_status="grace", billing_grace_until=over)
    before = Licence.objects.values().get()
    version = _row_version()
    given = {"email": user.email, "password": PASSWORD}
    asked = [
        signed_in.get(STATUS),
        signed_in.get("/v1/auth/me"),
        signed_in.get("/v1/llm/models"),
        signed_in.get("/v1/usage/me"),
        signed_in.post("/v1/auth/login", given, format="json"),
        signed_in.post("/v1/auth/refresh", {"refresh": pair.refresh}, format="json"),
    ]
    assert [response.status_code for response in asked] == [200] * len(asked)
    assert asked[0].json()["grace_until"] == "2020-01-31T00:00:00Z"
    # Nobody is behind the provider's address here; that it was asked is what counts.
    called = signed_in.post("/v1/llm/complete", {"messages": MESSAGES}, format="json")
    assert called.json()["code"] in {"provider_unavailable", "provider_timeout"}
    assert Licence.objects.values().get() == before
    assert _row_version() == version


def _row_version() -> object:
    """Changes with every write to the row, also one that changes nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text, ctid::text FROM licensing_licence")
        return cursor.fetchall()
