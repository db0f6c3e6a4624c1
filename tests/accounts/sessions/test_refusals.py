"""Guessing shows in the console, and tells a guesser nothing."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.models import AuditEvent, Client, User
from accounts.sessions.refusals import ACTION, record_refusal
from accounts.sessions.sign_in import Device, InvalidCredentials, sign_in
from accounts.worker import tasks
from licensing.models import Licence
from tests.conftest import PASSWORD, Browser
from tests.races import race

pytestmark = pytest.mark.django_db
HERE = Device(fingerprint="desk", address="192.0.2.7", request_id="request-of-a-guess")


def guess(email: str, now: datetime, password: str = "a guess") -> None:
    with pytest.raises(InvalidCredentials):
        sign_in(email=email, password=password, device=HERE, now=now)


def queued() -> list[dict[str, Any]]:
    jobs = ProcrastinateJob.objects.filter(task_name="accounts.record_refusal").order_by("id")
    return [job.args for job in jobs]


def worked_off() -> None:
    """Runs what was queued, as the worker does."""
    for args in queued():
        tasks.record_refusal(**args)
    ProcrastinateJob.objects.all().delete()


def events() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(action=ACTION))


def test_a_refusal_is_an_event_of_the_account(user: User, now: datetime) -> None:
    guess("Ada@ACME.test", now)
    worked_off()
    (event,) = events()
    assert (event.target, event.target_id) == (user.email, str(user.pk))
    assert (event.actor, event.actor_id) == ("unknown caller", None)
    assert (event.address, event.request_id) == (HERE.address, HERE.request_id)
    assert event.at == now


OPENS_NOTHING: dict[str, Callable[[], object]] = {
    "disabled": lambda: User.objects.update(is_active=False),
    "without a licence": lambda: Licence.objects.all().delete(),
    "without a client": lambda: User.objects.update(client=None),
}


@pytest.mark.parametrize("case", OPENS_NOTHING)
def test_a_right_password_that_opens_nothing_is_a_refusal_too(
    user: User, now: datetime, case: str
) -> None:
    OPENS_NOTHING[case]()
    guess(user.email, now, PASSWORD)
    worked_off()
    assert len(events()) == 1


def test_no_refusal_asks_the_database_more_than_another(user: User, now: datetime) -> None:
    def asked(email: str, password: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            guess(email, now, password)
        return len(queries)

    numbers = {
        "wrong": asked(user.email, "a guess"),
        "unknown": asked("nobody@acme.test", "a guess"),
    }
    for case, change in OPENS_NOTHING.items():
        change()
        User.objects.update(is_active=case != "disabled")
        numbers[case] = asked(user.email, PASSWORD)
    assert len(set(numbers.values())) == 1, numbers


def test_a_minute_has_one_for_each_account(user: User, organisation: Client, now: datetime) -> None:
    other = User.objects.create_user("bob@acme.test", client=organisation)
    for seconds in (0, 1, 59):
        guess(user.email, now + timedelta(seconds=seconds))
    guess(other.email, now)
    worked_off()
    assert sorted(event.target for event in events()) == [user.email, other.email]
    guess(user.email, now + timedelta(seconds=60))
    worked_off()
    assert len(events()) == 3


@pytest.mark.django_db(transaction=True)
def test_one_of_several_workers_writes_a_refusal(user: User, now: datetime) -> None:
    given = {"email": user.email, "address": "192.0.2.7", "request_id": "", "at": now}
    ended = race(*[lambda: record_refusal(**given) for _ in range(4)])
    assert sorted(ended) == [False, False, False, True]


def test_an_email_that_nobody_has_leaves_nothing(user: User, now: datetime) -> None:
    guess("nobody@acme.test", now)
    assert len(queued()) == 1
    worked_off()
    assert events() == []


def test_a_text_that_is_no_email_is_not_even_queued(user: User, now: datetime) -> None:
    guess("my password in the wrong field", now)
    assert queued() == []


def test_a_sign_in_that_succeeds_leaves_none(user: User, signing_key: None, now: datetime) -> None:
    sign_in(email=user.email, password=PASSWORD, device=HERE, now=now)
    assert queued() == []


def test_a_known_and_an_unknown_account_cost_the_same(
    user: User, now: datetime, api: APIClient
) -> None:
    asked = {}
    for email in (user.email, "bob@acme.test"):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            body = {"email": email, "password": "a guess"}
            answer = api.post("/v1/auth/login", body, format="json", HTTP_X_REQUEST_ID="r" * 20)
        statements = [each["sql"].partition("'")[0][:60] for each in queries.captured_queries]
        asked[email] = (answer.status_code, answer.content, statements)
    assert asked[user.email] == asked["bob@acme.test"]
    assert [args["email"] for args in queued()] == [user.email, "bob@acme.test"]


def test_no_job_is_queued_while_too_many_wait(
    user: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.platform.jobs.queue.MAY_WAIT", 2)
    for number in range(4):
        guess(f"nobody-{number}@acme.test", now)
    assert len(queued()) == 2


def test_the_console_shows_it_with_the_person(console: Browser, user: User, now: datetime) -> None:
    guess(user.email, now)
    worked_off()
    page = reverse("admin:accounts_user_change", args=[user.pk])
    assert "was refused a sign-in" in console.get(page).content.decode()
    event = events()[0]
    detail = reverse("admin:accounts_auditevent_change", args=[event.pk])
    assert page in console.get(detail).content.decode()
    listed = console.get(reverse("admin:accounts_auditevent_changelist"), {"q": user.email})
    assert "was refused a sign-in" in listed.content.decode()
