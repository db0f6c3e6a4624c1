"""Telemetry over HTTP: status, code and shape."""

import json
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, transaction
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from accounts.models import Client, User
from licensing.models import Licence
from telemetry import events
from telemetry.models import Event
from tests.races import race
from tests.telemetry.reports import event

pytestmark = pytest.mark.django_db
ADDRESS = "/v1/telemetry"


@pytest.fixture
def fresh(now: datetime) -> str:
    return now.isoformat()


def test_a_batch_is_answered_when_it_is_kept(
    signed_in: APIClient, fresh: str, organisation: Client, user: User
) -> None:
    bad = event(occurred_at=fresh, name="")
    batch = {"events": [event(occurred_at=fresh), bad], "sent_by": "a shell"}
    response = signed_in.post(ADDRESS, batch, format="json")
    assert response.status_code == 202
    assert response.json() == {
        "accepted": 1,
        "duplicates": 0,
        "rejected": [
            {
                "pointer": "/events/1/name",
                "code": "invalid",
                "detail": "This must be 1 to 100 letters, digits, spaces or any of _.:/$-.",
            }
        ],
    }
    assert response["Cache-Control"] == "no-store"
    kept = Event.objects.get()
    assert (kept.client_id, kept.user_id) == (organisation.pk, user.pk)
    again = signed_in.post(ADDRESS, batch, format="json")
    assert (again.json()["accepted"], again.json()["duplicates"]) == (0, 1)


def test_an_empty_batch_is_fine(signed_in: APIClient) -> None:
    response = signed_in.post(ADDRESS, {"events": []}, format="json")
    assert (response.status_code, response.json()) == (
        202,
        {"accepted": 0, "duplicates": 0, "rejected": []},
    )


def test_half_a_character_or_a_huge_number_costs_one_event(
    signed_in: APIClient, fresh: str
) -> None:
    good = json.dumps(event(occurred_at=fresh))
    half = json.dumps(event(occurred_at=fresh, properties={"a": "\ud800"}))
    name = json.dumps(event(occurred_at=fresh, properties={"\ud800": {"b": "\0"}}))
    huge = json.dumps(event(occurred_at=fresh, properties={"a": 1})).replace('"a": 1', '"a": 1e400')
    body = f'{{"events": [{half}, {good}, {huge}, {name}]}}'
    response = signed_in.post(ADDRESS, body, content_type="application/json")
    assert response.status_code == 202
    answer = response.json()
    assert answer["accepted"] == 1
    assert [(each["pointer"], each["code"]) for each in answer["rejected"]] == [
        ("/events/0/properties/a", "invalid_characters"),
        ("/events/2/properties/a", "out_of_range"),
        ("/events/3/properties", "invalid_characters"),
    ]


@pytest.mark.parametrize("body", ["", "[]", "{", '{"events": NaN}'])
def test_what_is_no_object_is_malformed(signed_in: APIClient, body: str) -> None:
    response = signed_in.post(ADDRESS, body, content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_without_a_list_the_request_is_invalid(signed_in: APIClient) -> None:
    response = signed_in.post(ADDRESS, {"events": "none"}, format="json")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
    assert response.json()["errors"][0]["pointer"] == "/events"


def test_what_is_too_large_says_what_would_not_be(signed_in: APIClient, fresh: str) -> None:
    many = signed_in.post(ADDRESS, {"events": [{}] * 501}, format="json")
    assert (many.status_code, many.json()["code"]) == (413, "request_too_large")
    assert many.json()["max_events"] == 500
    padding = " " * (1024 * 1024 - len('{"events":[]}'))
    whole = signed_in.post(ADDRESS, f'{{"events":[]}}{padding}', content_type="application/json")
    assert whole.status_code == 202
    long = signed_in.post(ADDRESS, f'{{"events":[]}}{padding} ', content_type="application/json")
    assert (long.status_code, long.json()["limit"]) == (413, 1024 * 1024)


def test_one_needs_to_be_signed_in(api: APIClient) -> None:
    response = api.post(ADDRESS, {"events": []}, format="json")
    assert (response.status_code, response.json()["code"]) == (401, "not_authenticated")


def test_a_suspended_client_goes_on_reporting(signed_in: APIClient) -> None:
    Licence.objects.update(operator_status="suspended", operator_reason="test")
    assert signed_in.post(ADDRESS, {"events": []}, format="json").status_code == 202


def test_the_address_has_no_slash_and_takes_nothing_but_batches(signed_in: APIClient) -> None:
    assert signed_in.post(f"{ADDRESS}/", {"events": []}, format="json").status_code == 404
    assert signed_in.get(ADDRESS).status_code == 405


def test_batches_of_a_person_are_limited(signed_in: APIClient, settings) -> None:
    settings.RATE_LIMITS = {"telemetry.user": "2/h"}
    codes = [signed_in.post(ADDRESS, {"events": []}, format="json") for _ in range(3)]
    assert [each.status_code for each in codes] == [202, 202, 429]
    assert codes[2].json()["code"] == "rate_limited"
    assert "Retry-After" in codes[2]


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_kept_now_is_not_acknowledged_and_may_be_sent_again(
    signed_in: APIClient, fresh: str
) -> None:
    batch = {"events": [event(occurred_at=fresh) for _ in range(3)]}

    def post_in_vain() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'")
        return signed_in.post(ADDRESS, batch, format="json")

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE telemetry_event IN EXCLUSIVE MODE")
        (refused,) = race(post_in_vain)
    assert not isinstance(refused, Exception)
    assert (refused.status_code, refused.json()["code"]) == (503, "service_unavailable")
    assert "Retry-After" in refused
    assert not Event.objects.exists()
    assert signed_in.post(ADDRESS, batch, format="json").json()["accepted"] == 3


def test_the_schema_says_the_limits() -> None:
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    call = generator.get_schema(request=None, public=True)["paths"][ADDRESS]["post"]
    batch = call["requestBody"]["content"]["application/json"]["schema"]
    assert batch["properties"]["events"]["maxItems"] == 500
    assert "16,384 bytes" in str(batch["properties"]["events"]["items"])
    assert call["responses"].keys() >= {"202", "400", "401", "413", "415", "429", "503"}
    assert events.PROPERTIES_BYTES == 16_384
