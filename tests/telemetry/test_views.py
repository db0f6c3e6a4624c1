"""Telemetry over HTTP: status, code and shape."""

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from gzip import compress
from typing import Any

import pytest
from django.db import connection, transaction
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from accounts.models import Client, User
from config.platform.db.connections import close_pool
from config.platform.edge.body_limits import limit_of
from licensing.models import Licence
from telemetry import events
from telemetry.models import Event
from tests.races import race
from tests.telemetry.reports import event

pytestmark = pytest.mark.django_db
ADDRESS = "/v1/telemetry"
OFFSETS = ((0, 0), (14, 0), (-12, 0), (5, 45), (-9, -30), (23, 59), (-23, -59))


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
    long = huge.replace("1e400", "9" * 5000)
    body = f'{{"events": [{half}, {good}, {huge}, {name}, {long}]}}'
    response = signed_in.post(ADDRESS, body, content_type="application/json")
    assert response.status_code == 202
    answer = response.json()
    assert answer["accepted"] == 1
    assert [(each["pointer"], each["code"]) for each in answer["rejected"]] == [
        ("/events/0/properties/a", "invalid_characters"),
        ("/events/2/properties/a", "out_of_range"),
        ("/events/3/properties", "invalid_characters"),
        ("/events/4/properties/a", "out_of_range"),
    ]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_costs_one_event(
    signed_in: APIClient, fresh: str, number: str
) -> None:
    # A gauge without a value (sensebox/openSenseMap-API#190, openenergymonitor/emonhub#45).
    good, flat, deep = (
        json.dumps(event(occurred_at=fresh, properties=properties))
        for properties in ({"a": 1}, {"a": "?"}, {"a": [1, {"b": "?"}]})
    )
    events = f"{flat}, {good}, {deep}, {number}".replace('"?"', number)
    body = f'{{"events": [{events}], "sent_at": {number}}}'
    response = signed_in.post(ADDRESS, body, content_type="application/json")
    assert response.status_code == 202, response.content
    answer = response.json()
    assert (answer["accepted"], Event.objects.count()) == (1, 1)
    assert [(each["pointer"], each["code"]) for each in answer["rejected"]] == [
        ("/events/0/properties/a", "out_of_range"),
        ("/events/2/properties/a/1/b", "out_of_range"),
        ("/events/3", "invalid"),
    ]


def test_a_text_that_reads_like_a_number_is_kept(signed_in: APIClient, fresh: str) -> None:
    given = event(occurred_at=fresh, properties={"said": "NaN, Infinity"})
    response = signed_in.post(ADDRESS, {"events": [given]}, format="json")
    assert response.json()["accepted"] == 1
    assert Event.objects.get().properties == {"said": "NaN, Infinity"}


def test_an_id_is_one_whatever_its_letters_and_however_often_it_comes(
    signed_in: APIClient, fresh: str
) -> None:
    given = event(occurred_at=fresh)
    loud = {**given, "id": given["id"].upper()}
    first = signed_in.post(ADDRESS, {"events": [loud, given, loud]}, format="json")
    assert (first.json()["accepted"], first.json()["duplicates"]) == (1, 2)
    assert str(Event.objects.get().event_id) == given["id"]
    again = signed_in.post(ADDRESS, {"events": [given]}, format="json")
    assert (again.json()["accepted"], again.json()["duplicates"]) == (0, 1)


def test_an_instant_may_have_any_offset_and_any_number_of_digits(
    signed_in: APIClient, now: datetime
) -> None:
    zones = [timezone(timedelta(hours=hours, minutes=minutes)) for hours, minutes in OFFSETS]
    written = [now.astimezone(zone).isoformat() for zone in zones]
    written.append(f"{now:%Y-%m-%dT%H:%M:%S}.{'1' * 400}Z")
    batch = {"events": [event(occurred_at=each) for each in written]}
    response = signed_in.post(ADDRESS, batch, format="json")
    assert response.json() == {"accepted": len(written), "duplicates": 0, "rejected": []}
    kept = Event.objects.order_by("id").values_list("occurred_at", flat=True)
    assert all(abs(each - now) < timedelta(seconds=1) for each in kept)


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (timedelta(days=-30, minutes=-1), "too_old"),
        (timedelta(days=-30, minutes=1), None),
        (timedelta(minutes=59), None),
        (timedelta(minutes=61), "too_new"),
    ],
)
def test_an_instant_is_held_to_its_limits_in_any_zone(
    signed_in: APIClient, now: datetime, offset: timedelta, code: str | None
) -> None:
    at = (now + offset).astimezone(timezone(timedelta(hours=-11, minutes=-30)))
    response = signed_in.post(
        ADDRESS, {"events": [event(occurred_at=at.isoformat())]}, format="json"
    )
    assert [each["code"] for each in response.json()["rejected"]] == ([code] if code else [])


def test_a_deep_event_rejects_only_itself(signed_in: APIClient, fresh: str) -> None:
    good, deep = event(occurred_at=fresh), event(occurred_at=fresh)
    for _ in range(40):
        deep["properties"] = {"in": deep["properties"]}
    response = signed_in.post(ADDRESS, {"events": [deep, good]}, format="json")
    (rejected,) = response.json()["rejected"]
    assert (response.json()["accepted"], rejected["code"]) == (1, "too_deep")


def test_a_compressed_batch_is_told_what_to_send(signed_in: APIClient, fresh: str) -> None:
    body = compress(json.dumps({"events": [event(occurred_at=fresh)]}).encode())
    response = signed_in.post(
        ADDRESS, body, content_type="application/json", HTTP_CONTENT_ENCODING="gzip"
    )
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert not Event.objects.exists()


@pytest.mark.parametrize("body", ["", "[]", "{", '{"events": nan}'])
def test_a_body_that_is_no_object_is_malformed(signed_in: APIClient, body: str) -> None:
    response = signed_in.post(ADDRESS, body, content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_a_request_without_a_list_is_invalid(signed_in: APIClient) -> None:
    for body in ('{"events": "none"}', '{"events": NaN}', "{}"):
        response = signed_in.post(ADDRESS, body, content_type="application/json")
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
        assert response.json()["errors"][0]["pointer"] == "/events"


def test_a_too_large_batch_names_the_limits(signed_in: APIClient, fresh: str) -> None:
    many = signed_in.post(ADDRESS, {"events": [{}] * 501}, format="json")
    assert (many.status_code, many.json()["code"]) == (413, "request_too_large")
    assert (many.json()["max_events"], many.json()["max_bytes"]) == (500, 1024 * 1024)
    assert signed_in.post(ADDRESS, {"events": [{}] * 500}, format="json").status_code == 202
    padding = " " * (1024 * 1024 - len('{"events":[]}'))
    whole = signed_in.post(ADDRESS, f'{{"events":[]}}{padding}', content_type="application/json")
    assert whole.status_code == 202
    long = signed_in.post(ADDRESS, f'{{"events":[]}}{padding} ', content_type="application/json")
    assert (long.status_code, long.json()["code"]) == (413, "request_too_large")
    assert long.json()["max_bytes"] == long.json()["limit"] == limit_of(ADDRESS) == 1024 * 1024


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


def test_a_full_day_says_until_when(signed_in: APIClient, settings, now: datetime) -> None:
    settings.TELEMETRY_DAILY_MB = 1
    many = [event(occurred_at=now.isoformat(), properties={"a": "b " * 7_500}) for _ in range(20)]
    assert signed_in.post(ADDRESS, {"events": many}, format="json").json()["accepted"] == 20
    again = signed_in.post(ADDRESS, {"events": many}, format="json")
    assert (again.status_code, again.json()["duplicates"]) == (202, 20)
    more = [event(occurred_at=now.isoformat())]
    refused = signed_in.post(ADDRESS, {"events": more}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (429, "telemetry_full")
    assert 1 <= int(refused["Retry-After"]) <= 86_400
    assert refused.json()["retry_after_iso"].endswith("T00:00:00Z")


@pytest.fixture
def impatient() -> Iterator[None]:
    """Every connection of the pool gives up soon where it waits for a lock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGOPTIONS", f"{os.environ.get('PGOPTIONS', '')} -c lock_timeout=200ms")
        close_pool()
        yield
    close_pool()


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_fails_in_the_database_can_be_sent_again(
    signed_in: APIClient, fresh: str, impatient: None
) -> None:
    batch = {"events": [event(occurred_at=fresh) for _ in range(3)]}

    def post_in_vain() -> Any:
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
    document = generator.get_schema(request=None, public=True)
    call = document["paths"][ADDRESS]["post"]
    batch = call["requestBody"]["content"]["application/json"]["schema"]
    assert batch["properties"]["events"]["maxItems"] == 500
    assert "16,384 bytes" in str(batch["properties"]["events"]["items"])
    assert "1,048,576 bytes" in batch["description"]
    (_, told) = document["components"]["schemas"]["RequestTooLargeProblem"]["allOf"]
    assert told["properties"].keys() >= {"max_bytes", "max_events"}
    assert call["responses"].keys() >= {"202", "400", "401", "413", "415", "429", "503"}
    assert events.PROPERTIES_BYTES == 16_384
