"""Attempts that failed are on the record: who refused with what, and what the caller was told."""

from json import dumps, loads
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.utils import timezone

from config.platform.problems.problem import Problem
from llmproxy.calls import attempt as attempts_module
from llmproxy.calls import watch
from llmproxy.calls.call import Call
from llmproxy.calls.relay import complete, stream
from llmproxy.calls.stop import StopReason
from llmproxy.models import Provider as ProviderRow
from llmproxy.requests import embeddings, messages, responses
from tests.llmproxy.calling import admit
from tests.llmproxy.test_failover import (
    SECONDS,
    Routed,
    Script,
    answers,
    event,
    hangs,
    read,
    refuses,
    resets,
    routed,
    sends,
    unwatched,
)
from tests.standins.raw_server import CHUNKED, Peer
from usage.admin.attempts import cause
from usage.caps import checkpoint
from usage.models import UsageRecord
from usage.models.failures import MOST_ATTEMPTS, MOST_WORDS, FailedAttempt, Failures
from usage.settlement import settle_abandoned
from usage.stops import ModelCallsStopped

__all__ = ("routed",)
pytestmark = pytest.mark.django_db(transaction=True)
CASES = [
    loads(line)
    for line in Path(__file__).with_name("failed_attempts.ndjson").read_text().splitlines()
]
TEXT = {"model": "house", "input": "hello"}
TURN = {"model": "house", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
UNREADABLE = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {[\n\n"


def says(status: int, body: Any) -> Script:
    raw = body.encode() if isinstance(body, str) else dumps(body).encode()
    return sends(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(raw), raw))


def breaks_off(peer: Peer, _: bytes) -> None:
    peer.send(UNREADABLE)
    peer.close()


def asked(routed: Routed, surface: str, *, streamed: bool) -> Call:
    """An admitted call on a surface."""
    if surface == "chat":
        return routed.admit(streamed=streamed)
    request: Any = {
        "messages": lambda: messages.parse({**TURN, "stream": streamed}, headers={}),
        "responses": lambda: responses.parse({**TEXT, "stream": streamed}),
        "embeddings": lambda: embeddings.parse(dict(TEXT)),
    }[surface]()
    return admit(caller=routed.caller, request=request, request_id="r", now=timezone.now())


def ends(call: Call) -> Problem | None:
    """Plays a call; returns the problem that its caller gets in place of an answer."""
    try:
        if call.admission.request.stream:
            answer = stream(call)
            read(answer)
            return answer.failure
        complete(call)
    except Problem as problem:
        return problem
    return None


def recorded() -> tuple[UsageRecord, Failures]:
    record = UsageRecord.objects.get()
    return record, Failures.read(record.failures)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['from']} {case['status']}")
def test_a_refusal_is_on_the_record_on_every_surface(routed: Routed, case: dict[str, Any]) -> None:
    spoken = {"dialect": "anthropic"} if case["surface"] == "messages" else {}
    routed.add(says(case["status"], case["body"]), **spoken)
    if case["has_next"]:
        routed.add(answers("second") if case["surface"] == "chat" else refuses(500), **spoken)
    if case["surface"] == "embeddings":
        routed.model.routes.update(surfaces=["embeddings"])
    problem = ends(asked(routed, case["surface"], streamed=case["streamed"]))
    record, failures = recorded()
    first = failures.attempts[0]
    assert (first.provider, first.model, first.what) == ("number-1", "m-1", "refused")
    assert (first.status, first.words) == (case["status"], case["words"])
    assert first.asked_at <= first.ended_at
    assert record.error_code == (problem and problem.code)
    if case["told"] or case["surface"] != "chat":
        assert problem is not None
        assert failures.problem is not None
        assert failures.problem == (problem.code, problem.status, problem.detail[:MOST_WORDS])
    if case["told"]:
        assert record.error_code == case["told"]
        said = f": {case['words'].rstrip('.')}" if case["words"] else ""
        assert cause(record) == f"number-1 answered {case['status']}{said}"


@pytest.mark.parametrize("has_next", [True, False])
def test_words_that_no_column_can_hold_do_not_keep_a_call_from_its_settlement(
    routed: Routed, has_next: bool
) -> None:
    routed.add(says(400, {"error": {"message": "No \0 such \ud800 model"}}))
    if has_next:
        routed.add(refuses(500))
    call = asked(routed, "chat", streamed=False)
    ends(call)
    record, failures = recorded()
    assert record.state == UsageRecord.State.SETTLED
    assert failures.attempts[0].words == "No  such ? model"
    assert failures.problem is not None
    # A running call writes the same with those of its whole process.
    assert "\\u0000" not in (call.so_far().failures.as_json() or "")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("script", "what"),
    [
        (refuses(500), "refused"),
        (None, "unreachable"),
        (hangs, "timed_out"),
        (resets, "broken"),
        (breaks_off, "unreadable"),
    ],
)
def test_failures_without_a_status_are_named(
    routed: Routed, script: Script | None, what: str, streamed: bool
) -> None:
    routed.add(script, **({"read_timeout": SECONDS} if script is hangs else {}))
    routed.add(answers("second"))
    routed.ask(streamed=streamed, max_tokens=50)
    record, failures = recorded()
    (first,) = failures.attempts
    assert (first.what, first.status) == (what, 500 if what == "refused" else None)
    assert (record.provider, record.end, record.error_code, failures.problem) == (
        "number-2",
        "done",
        None,
        None,
    )
    assert cause(record) == ""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (None, "could not be reached: it refused the connection"),
        (resets, "broke off: it closed the connection"),
        (breaks_off, "sent an answer that could not be read"),
    ],
)
def test_the_cause_of_a_broken_connection_is_shown_in_words(
    routed: Routed, script: Script | None, told: str
) -> None:
    routed.add(script)
    assert ends(routed.admit()) is not None
    assert cause(UsageRecord.objects.get()) == f"number-1 {told}"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_that_succeeds_at_once_has_no_failures(routed: Routed, streamed: bool) -> None:
    routed.add(answers("first"))
    routed.ask(streamed=streamed)
    record = UsageRecord.objects.get()
    assert (record.failures, record.error_code) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        b"<html>Sorry</html>",
        b'data: {"error": {"message": "busy", "type": "overloaded_error"}}\n\n',
    ],
)
def test_an_error_in_place_of_the_first_event_is_a_refusal(routed: Routed, text: bytes) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(text)
        peer.chunk(b"")

    routed.add(script)
    assert ends(routed.admit()) is not None
    record, failures = recorded()
    (only,) = failures.attempts
    is_page = text.startswith(b"<")
    assert (only.what, only.status, only.words) == (
        ("failed", None, "") if is_page else ("refused", 529, "busy")
    )
    assert record.error_code == ("provider_error" if is_page else "provider_unavailable")


def test_an_error_without_a_status_has_none(routed: Routed) -> None:
    routed.add(says(200, {"error": {"message": "It did not work."}}))
    ends(routed.admit(streamed=False))
    record, failures = recorded()
    assert failures.attempts[0][2:5] == ("refused", None, "It did not work.")
    assert cause(record) == "number-1 reported an error: It did not work"


def test_nine_attempts_leave_eight(routed: Routed) -> None:
    for number in range(9):
        routed.add(says(500, {"error": {"message": f"number {number}"}}))
    ends(routed.admit(streamed=False))
    record, failures = recorded()
    assert [each.words for each in failures.attempts] == [f"number {n}" for n in (*range(7), 8)]
    assert (len(failures.attempts), failures.left_out) == (MOST_ATTEMPTS, 1)
    assert cause(record) == "number-9 answered 500: number 8"


def test_long_words_are_cut(routed: Routed) -> None:
    routed.add(says(500, {"error": {"message": "word " * 200}}))
    ends(routed.admit())
    _, failures = recorded()
    assert failures.attempts[0].words == ("word " * 200)[:MOST_WORDS]


def test_an_answer_that_breaks_after_output_has_its_cause(routed: Routed) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(event("one"))
        peer.chunk(b'data: {"error": {"message": "gone", "code": 500}}\n\n')
        peer.chunk(b"")

    routed.add(script)
    assert ends(routed.admit()) is not None
    record, failures = recorded()
    assert failures.attempts[0][2:5] == ("refused", 500, "gone")
    assert (record.end, record.error_code) == ("provider_failed", "provider_error")
    assert record.first_output_at is not None


def test_a_provider_whose_key_cannot_be_read_was_not_asked(routed: Routed) -> None:
    attempts_module._unreadable.clear()
    row = routed.add(answers("first"))
    moved = ProviderRow(name=row.name, base_url="https://elsewhere.example")
    moved.seal("api_key", b"secret")
    ProviderRow.objects.filter(pk=row.pk).update(api_key=moved.api_key)
    ends(routed.admit())
    record, failures = recorded()
    assert [each.what for each in failures.attempts] == ["no_key"]
    assert "decrypted" in cause(record)


def test_an_operators_stop_is_shown_and_is_no_providers_failure(routed: Routed) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.send(CHUNKED)
        peer.chunk(event("one"))
        peer.wait_until_gone()

    routed.add(script)
    with unwatched():
        call = routed.admit()
        answer = stream(call)
        assert b"one" in next(answer)
        call.cut(StopReason.OPERATOR, ModelCallsStopped())
        b"".join(answer)
        answer.close()
    record, failures = recorded()
    assert (record.end, record.error_code) == ("stopped", ModelCallsStopped.code)
    assert failures.attempts == ()
    assert cause(record) == ModelCallsStopped.default_detail.rstrip(".")


def test_a_disconnected_caller_received_no_problem(routed: Routed) -> None:
    routed.add(
        lambda peer, _: (peer.send(CHUNKED), peer.chunk(event("one")), peer.wait_until_gone())
    )
    answer = stream(routed.admit())
    next(answer)
    answer.close()
    record = UsageRecord.objects.get()
    assert (record.end, record.error_code, record.failures) == ("client_gone", None, None)


class TestFirstOutput:
    def test_the_first_output_is_measured_after_the_first_byte_of_a_stream(
        self, routed: Routed
    ) -> None:
        goes_on = Event()

        def script(peer: Peer, _: bytes) -> None:
            peer.send(CHUNKED)
            # The first event has a role and no text.
            peer.chunk(b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n')
            goes_on.wait(30)
            peer.chunk(event("one") + event(None) + b"data: [DONE]\n\n")
            peer.chunk(b"")

        routed.add(script)
        call = routed.admit()
        answer = stream(call)
        meter = call.attempt.meter  # type: ignore[union-attr]
        assert (meter.first_byte_at is not None, meter.first_output_at) == (True, None)
        goes_on.set()
        read(answer)
        record = UsageRecord.objects.get()
        assert record.first_byte_at < record.first_output_at <= record.settled_at

    def test_a_whole_answer_has_none(self, routed: Routed) -> None:
        # Others gave the whole time as the first token's (BerriAI/litellm#9210, langfuse/langfuse#3046).
        routed.add(answers("first"))
        routed.ask(streamed=False)
        record = UsageRecord.objects.get()
        assert (record.first_byte_at is not None, record.first_output_at) == (True, None)


class TestCheckpoints:
    def test_a_killed_process_leaves_what_the_checkpoint_knows(self, routed: Routed) -> None:
        def script(peer: Peer, _: bytes) -> None:
            peer.send(CHUNKED)
            peer.chunk(event("one"))
            peer.wait_until_gone()

        routed.add(refuses(429))
        routed.add(script)
        with unwatched():
            call = routed.admit()
            answer = stream(call)
            assert b"one" in next(answer)
            watch.save_checkpoints()
            # As for a process that a kill has ended.
            UsageRecord.objects.update(expires_at=timezone.now())
            assert settle_abandoned(now=timezone.now()) == 1
            record, failures = recorded()
            assert (record.end, record.error_code, failures.problem) == ("crashed", None, None)
            assert [each.status for each in failures.attempts] == [429]
            assert record.first_output_at is not None
            answer.close()
        assert recorded()[1] == failures

    def test_a_process_of_the_release_before_leaves_them_as_they_are(self, routed: Routed) -> None:
        """Its sweep and its checkpoints name none of the new columns."""
        routed.add(refuses(500))
        call = routed.admit(streamed=False)
        call.note_failed(
            FailedAttempt("p", "m", "broken", None, "", timezone.now(), timezone.now())
        )
        assert checkpoint([call.so_far()]) == {call.id}
        before = recorded()[1]
        UsageRecord.objects.update(
            state="settled", settled_at=timezone.now(), source="estimated", end="crashed"
        )
        assert recorded()[1] == before
        record = UsageRecord.objects.get()
        assert cause(record) == ""


def test_a_record_of_before_says_nothing() -> None:
    assert Failures.read(None) == Failures()
    assert Failures().as_json() is None


def test_a_failure_that_a_later_release_names_is_one() -> None:
    at = "2026-11-28T12:00:00Z"
    entry = {
        "provider": "p", "model": "m", "what": "melted", "status": None, "words": "",
        "asked_at": at, "ended_at": at,
    }  # fmt: skip
    column = {"attempts": [entry], "left_out": 0, "problem": None}
    call = UsageRecord(provider="p", end="provider_failed", failures=column)
    assert cause(call) == "p failed"
