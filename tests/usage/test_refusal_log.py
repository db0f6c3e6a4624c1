"""The log of refusals."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
import time_machine
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.test import override_settings
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import User
from accounts.people.erasure import erase_user
from accounts.sessions.revocation import revoke_all
from accounts.sessions.sign_in import TokenPair
from config.platform.edge.request_log import Refused
from config.platform.problems.problem import (
    InvalidRequest,
    NotFound,
    Problem,
    ProviderTimeout,
    RefusedUntil,
)
from config.platform.runtime import serving
from licensing.licences import set_operator_status
from licensing.models import Licence, Standing
from llmproxy.models import LanguageModel
from usage import refusal_log
from usage.admin.refusals import said_of
from usage.models import Refusal
from usage.stops import stop_model_calls
from usage.tasks import prune_refusals

CALL = {"model": "m", "messages": [{"role": "user", "content": "A prompt that nobody may keep"}]}


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    refusal_log._waiting.clear()
    refusal_log._networks.clear()
    yield
    refusal_log._waiting.clear()


def refused(
    problem: Problem,
    *,
    now: datetime,
    user: UUID | None = None,
    address: str = "192.0.2.1",
    request_id: str = "request-1",
    path: str = "/v1/llm/complete",
) -> None:
    refusal_log.note(Refused(problem, path, "llmproxy:complete", user, address, request_id, now))


def too_many(now: datetime) -> Problem:
    return RefusedUntil(now=now, until=now + timedelta(minutes=1))


@pytest.fixture
def within_a_minute(signed_in: APIClient) -> Iterator[None]:
    """Refusals share a row for a minute of the clock: it stands still at the beginning of the next one."""
    begun = datetime.now(UTC).replace(second=0, microsecond=0)
    with time_machine.travel(begun + timedelta(minutes=1), tick=False):
        yield


def call(api: APIClient, **members: object) -> str:
    """Calls a model; the id of the request."""
    response = api.post("/v1/llm/complete", {**CALL, **members}, format="json")
    assert response.status_code >= 400
    return str(response["X-Request-ID"])


@pytest.mark.usefixtures("within_a_minute")
def test_a_refused_call_says_who_was_refused_what_when_and_by_which_request(
    signed_in: APIClient, user: User, by: Actor, now: datetime
) -> None:
    LanguageModel.objects.create(name="m", provider_name="m")
    stop_model_calls(user_id=user.pk, reason="x", ends_at=None, by=by, now=now)
    ids = [call(signed_in), call(signed_in)]
    assert refusal_log.flush() == 1
    row = Refusal.objects.get()
    assert (row.user, row.client_id, row.address) == (user, user.client_id, None)
    assert (row.code, row.status, row.model) == ("model_calls_stopped", 403, "m")
    assert (row.route, row.number, row.request_ids) == ("llmproxy:complete", 2, ids)
    assert now - timedelta(minutes=1) <= row.minute <= row.last_at


def test_a_refusal_by_a_cap_says_what_was_asked_and_left(signed_in: APIClient, user: User) -> None:
    LanguageModel.objects.create(name="m", provider_name="m")
    plan = user.client.licence.plan  # type: ignore[union-attr]
    plan.monthly_input_tokens = 3
    plan.save()
    call(signed_in)
    refusal_log.flush()
    row = Refusal.objects.get()
    assert row.code == "monthly_cap_exceeded"
    found = row.numbers
    assert (found["cap"], found["used"], found["dimension"]) == (3, 0, "input")
    assert found["requested"] > 3
    assert found["remaining_month"] == "3"


def test_a_suspended_client_and_an_ended_access_are_refusals_of_the_person(
    signed_in: APIClient, user: User, by: Actor, now: datetime
) -> None:
    licence = Licence.objects.get(client=user.client_id)
    set_operator_status(
        licence_id=licence.pk, status=Standing.SUSPENDED, reason="x", by=by, now=now
    )
    call(signed_in)
    revoke_all(user_id=user.pk, reason="x", by=by, now=now)
    call(signed_in)
    refusal_log.flush()
    found = set(Refusal.objects.values_list("user", "client_id", "code"))
    codes = ("licence_suspended", "access_revoked")
    assert found == {(user.pk, user.client_id, code) for code in codes}


def test_a_refused_sign_in_is_the_persons_or_of_an_address_alone(
    api: APIClient, user: User
) -> None:
    for email in (user.email, "nobody@elsewhere.test"):
        given = {"email": email, "password": "guessed wrongly"}
        assert api.post("/v1/auth/login", given, format="json").status_code == 401
    refusal_log.flush()
    known, unknown = Refusal.objects.order_by("user")
    assert (known.user, known.address, known.code) == (user, None, "invalid_credentials")
    assert (unknown.user, unknown.address) == (None, "127.0.0.1")
    assert "nobody" not in str(vars(unknown))


def test_refusals_that_concern_no_persons_work_are_not_noted(api: APIClient, now: datetime) -> None:
    api.get("/v1/nothing-here")
    api.get("/wp-login.php")
    api.get("/v1/license/status")
    refused(InvalidRequest(), now=now)
    refused(NotFound(), now=now, path="/v1/updates/manifest")
    refused(ProviderTimeout(), now=now, user=UUID(int=1), path="/v1/connections/google/token")
    refused(too_many(now), now=now, path="/v1/internal/manifest/publish")
    assert refusal_log._waiting == {}


@pytest.mark.parametrize(
    "name",
    [
        "ada@acme.test",
        "tell me a story",
        "openai/gpt-9:mini",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        f"sk-shell-{'aB3x' * 12}",
    ],
)
def test_a_name_that_is_no_models_is_not_kept(
    signed_in: APIClient, name: str, pair: TokenPair
) -> None:
    call(signed_in, model=name)
    refusal_log.flush()
    row = Refusal.objects.get()
    assert (row.code, row.model) == ("not_found", "")
    assert name not in str(vars(row))


@pytest.mark.usefixtures("within_a_minute")
def test_names_that_are_no_models_share_a_row_and_a_place(signed_in: APIClient) -> None:
    for name in ("no model", "and no other one"):
        call(signed_in, model=name)
    assert refusal_log.flush() == 1
    assert Refusal.objects.get().number == 2


@pytest.mark.django_db
def test_refusals_of_a_minute_share_a_row_whoever_writes_them(user: User, now: datetime) -> None:
    for number in range(30):
        refused(too_many(now), now=now, user=user.pk, request_id=f"request-{number}")
        if number % 10 == 9:
            refusal_log.flush()
    row = Refusal.objects.get()
    assert row.number == 30
    assert row.request_ids == [f"request-{number}" for number in range(20)]
    refused(too_many(now), now=now + timedelta(minutes=1), user=user.pk)
    refusal_log.flush()
    assert Refusal.objects.count() == 2


@pytest.mark.django_db
def test_a_flood_from_many_addresses_is_a_few_rows(now: datetime) -> None:
    for number in range(20_000):
        address = f"2001:db8:{number % 5_000:x}::{number:x}"
        refused(too_many(now), now=now, address=address)
    assert refusal_log.flush() == refusal_log.MOST_NETWORKS + 1
    rest = Refusal.objects.get(address=None)
    assert rest.number == 20_000 - 4 * refusal_log.MOST_NETWORKS
    assert sum(Refusal.objects.values_list("number", flat=True)) == 20_000


@pytest.mark.django_db(transaction=True)
def test_refusals_wait_while_the_database_takes_no_writes(user: User, now: datetime) -> None:
    refused(too_many(now), now=now, user=user.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION default_transaction_read_only = on")
    with pytest.raises(DatabaseError):
        refusal_log.flush()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION default_transaction_read_only = off")
    assert refusal_log.flush() == 1


@pytest.mark.django_db
def test_refusals_wait_while_the_database_is_away_and_no_more_than_so_many(
    user: User, now: datetime
) -> None:
    refused(too_many(now), now=now, user=user.pk)
    away = mock.patch.object(refusal_log.transaction, "atomic", side_effect=OperationalError)
    with away:
        refusal_log.finish()
        refused(too_many(now), now=now, user=user.pk)
        refusal_log.finish()
        for number in range(2 * refusal_log.MOST_WAITING):
            refused(too_many(now), now=now, user=UUID(int=number + 1))
            if not number % 100:
                refusal_log.finish()
    assert len(refusal_log._waiting) == refusal_log.MOST_WAITING
    # Those of people who are gone are left out.
    refusal_log.flush()
    assert Refusal.objects.get().number == 2


@pytest.mark.django_db
def test_refusals_go_after_two_weeks_and_the_oldest_beyond_the_bound(
    user: User, now: datetime
) -> None:
    for days in (15, 13, 2, 1):
        refused(too_many(now), now=now - timedelta(days=days), user=user.pk)
    refusal_log.flush()
    assert refusal_log.prune(now=now, dry_run=True) == 1
    assert Refusal.objects.count() == 4
    assert refusal_log.prune(now=now) == 1
    with mock.patch.object(refusal_log, "MOST_ROWS", 2):
        # Also between two nights.
        prune_refusals(timestamp=0)
    kept = Refusal.objects.values_list("minute", flat=True)
    assert [(now - each).days for each in kept] == [1, 2]


@pytest.mark.django_db
def test_refusals_go_with_an_erased_person(user: User, by: Actor, now: datetime) -> None:
    refused(too_many(now), now=now, user=user.pk)
    refusal_log.flush()
    erase_user(user_id=user.pk, email=user.email, reason="x", by=by, now=now)
    assert not Refusal.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [{"address": "192.0.2.1"}, {"number": 0}, {"request_ids": ["x"] * 21}],
)
def test_a_row_is_of_a_person_or_a_network_and_keeps_little(
    user: User, now: datetime, wrong: dict[str, object]
) -> None:
    kind = {"minute": now, "last_at": now, "user": user, "code": "rate_limited", "status": 429}
    with pytest.raises(IntegrityError), transaction.atomic():
        Refusal.objects.create(**{**kind, **wrong})
    Refusal.objects.create(**kind)
    with pytest.raises(IntegrityError), transaction.atomic():
        Refusal.objects.create(**kind)


@override_settings(RATE_LIMITS={"auth.ip": "1/d"})
def test_a_limit_names_itself_before_there_is_a_person(api: APIClient, db: None) -> None:
    for _ in range(2):
        api.post("/v1/auth/refresh", {"refresh": "x"}, format="json")
    refusal_log.flush()
    row = Refusal.objects.get(code="rate_limited")
    assert (row.address, row.numbers) == ("127.0.0.1", {"limit": "auth.ip"})


@pytest.mark.django_db
def test_waiting_refusals_are_written_as_their_process_ends(user: User, now: datetime) -> None:
    refused(too_many(now), now=now, user=user.pk)
    serving.run(serving.exits)
    assert Refusal.objects.get().user == user


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (
            {
                "cap": 6000, "used": 4852, "reserved": 0, "dimension": "input", "requested": 1641,
                "remaining": 1148, "remaining_month": "1148", "remaining_day": "90000",
            },
            "Needed 1,641 input tokens; 1,148 of 6,000 were left.",
        ),
        (
            {"cap": 100000, "used": 99990, "reserved": 0, "requested": 40, "remaining": 10},
            "Needed 40 tokens; 10 of 100,000 were left.",
        ),
        (
            {"cap": 500, "used": 300, "reserved": 190, "requested": 40, "remaining": 10},
            "Needed 40 tokens; 10 of 500 were left; running calls held 190.",
        ),
        (
            {"cap": 500, "used": 500, "dimension": "output"},
            "500 of 500 output tokens were used.",
        ),
        ({"remaining_day": "0"}, "0 tokens of the day were left."),
        ({"limit": "model_calls"}, "The rate limit model_calls was reached."),
        ({"cap": "none"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_refused_requests_need_is_shown_as_a_sentence(numbers: dict[str, Any], said: str) -> None:
    assert said_of(numbers) == said
