"""Settling although the database is away: with the same numbers, once it is back."""

import logging
from contextvars import copy_context
from datetime import datetime
from threading import Event
from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError
from django.http import HttpRequest

from accounts.models import User
from config.platform.problems.problem import ServiceUnavailable
from config.platform.request.request_id import begin, current
from llmproxy.calls import outbox
from llmproxy.calls.outbox import finish, settle_or_retry
from llmproxy.calls.relay import complete, stream
from tests.llmproxy.test_relay import Play, chunk, play, plays, read
from tests.usage.ledger import settlement
from tests.usage.test_caps import ROOMY, ask, assert_totals_are_the_ledger
from tests.waiting import eventually
from usage.costs import Spent
from usage.models import UsageRecord
from usage.settlement import After, Settlement, settle

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE = 60.0


class Database:
    """Stands before the real one: is away until it is let back, and refuses some records for good."""

    def __init__(self) -> None:
        self.is_back = Event()
        self.asked = 0
        self.error: Exception = OperationalError()
        self.refused: set[Any] = set()

    def settle(self, one: Settlement, *, now: datetime) -> After | None:
        self.asked += 1
        if not self.is_back.is_set():
            raise self.error
        if one.record_id in self.refused:
            raise DataError
        return settle(one, now=now)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()
    monkeypatch.setattr(outbox, "settle", database.settle)
    monkeypatch.setattr(outbox, "LONGEST_WAIT", 0.2)
    return database


def due(user: User, output: int = 20) -> Settlement:
    return settlement(
        record_id=ask(user, ROOMY).record_id,
        user_id=user.pk,
        spent=Spent(input=10, output=output),
        source=UsageRecord.Source.COUNTED,
        end=UsageRecord.End.DONE,
        first_byte_at=None,
    )


def test_a_call_is_settled_at_once_while_the_database_is_available(
    user: User, database: Database, now: datetime
) -> None:
    database.is_back.set()
    one = due(user)._replace(first_byte_at=now)
    assert settle_or_retry(one).is_set()
    record = UsageRecord.objects.get()
    assert (record.output_tokens, record.first_byte_at) == (20, now)
    assert (database.asked, finish(seconds=0)) == (1, True)


@pytest.mark.parametrize("error", [OperationalError(), InterfaceError()])
def test_a_call_is_settled_when_the_database_is_back(
    user: User, database: Database, error: Exception
) -> None:
    database.error = error
    settled = [settle_or_retry(due(user, output)) for output in (1, 2, 3)]
    assert not any(each.is_set() for each in settled)
    assert not finish(seconds=0.3)
    eventually(lambda: database.asked > 3), "it is tried again and again"
    assert UsageRecord.objects.open().count() == 3
    database.is_back.set()
    assert all(each.wait(DEADLINE) for each in settled)
    assert finish(seconds=DEADLINE)
    assert sorted(each.output_tokens for each in UsageRecord.objects.all()) == [1, 2, 3]
    assert_totals_are_the_ledger(user)
    # Another time, another thread.
    database.is_back.clear()
    again = settle_or_retry(due(user))
    database.is_back.set()
    assert again.wait(DEADLINE)


def test_a_refused_settlement_does_not_delay_the_others(
    user: User, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = due(user), due(user)
    database.refused = {bad.record_id}
    with caplog.at_level(logging.WARNING):
        refused, settled = settle_or_retry(bad), settle_or_retry(good)
        database.is_back.set()
        assert settled.wait(DEADLINE)
        assert finish(seconds=DEADLINE)
    assert (refused.is_set(), refused.is_refused, refused.after) == (True, True, None)
    assert not settled.is_refused
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
        "settlement_failed"
    ]
    assert UsageRecord.objects.open().get().pk == bad.record_id


@pytest.mark.parametrize("streamed", [True, False])
def test_the_caller_of_a_refused_settlement_is_informed_at_once(
    play: Play, database: Database, streamed: bool, settings
) -> None:
    """Nobody settles it soon, so that a wait would time out: here after an hour."""
    script = plays(chunk("one"), chunk(None), b"data: [DONE]\n\n")
    if not streamed:
        script = lambda peer: peer.answer(b'{"choices": [{"message": {"content": "one"}}]}')  # noqa: E731
    database.is_back.set()
    with play(script, streamed=streamed) as call:
        settings.LLM_KEEPALIVE_SECONDS = 3_600
        database.refused = {call.id}
        if streamed:
            answer = read(stream(call))
            assert b"one" in answer
            assert b"service_unavailable" in answer
            assert b"[DONE]" not in answer
        else:
            with pytest.raises(ServiceUnavailable):
                complete(call)
    assert finish(seconds=0)
    assert UsageRecord.objects.open().get().pk == call.id


def test_a_settlement_is_retried_under_the_id_of_its_own_request(
    user: User, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has settled for one request goes on to settle for another."""
    ids: list[str] = []

    def noting(one: Settlement, *, now: datetime) -> After | None:
        ids.append(current())
        return database.settle(one, now=now)

    def retried(request_id: str) -> str:
        request = HttpRequest()
        request.META["HTTP_X_REQUEST_ID"] = request_id
        begin(request)
        database.is_back.clear()
        waiting = settle_or_retry(due(user))
        database.is_back.set()
        assert waiting.wait(DEADLINE)
        return ids[-1]

    monkeypatch.setattr(outbox, "settle", noting)
    asked = ["the-first-request", "the-second-request"]
    assert [copy_context().run(retried, each) for each in asked] == asked


def test_a_call_settled_meanwhile_stays_unchanged(user: User, database: Database) -> None:
    one = due(user)
    waiting = settle_or_retry(one)
    assert settle(one._replace(spent=Spent(input=1, output=1)), now=_now(user))
    database.is_back.set()
    assert waiting.wait(DEADLINE)
    assert UsageRecord.objects.get().output_tokens == 1
    assert_totals_are_the_ledger(user)


def _now(user: User) -> datetime:
    return UsageRecord.objects.get(user=user).opened_at
