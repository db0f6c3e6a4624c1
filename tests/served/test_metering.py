"""Charges seen from outside on every surface: a provider counts its output, and reports as it likes."""

import json
import re
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from itertools import count
from threading import Event
from typing import Any

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import Role, User
from llmproxy.models import LanguageModel, Provider, Route
from tests.pairing import each_once
from tests.served.browser import Browser
from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import PASSWORD, Person, add_person
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell
from tests.standins import raw_server
from tests.standins.raw_server import CHUNKED, Peer
from tests.waiting import eventually
from usage.alerts import mail_waiting
from usage.models import Alert, UsageRecord
from usage.spending.statements import Statement, attempts_of

TEXTS = ("chat", "responses", "messages")
SURFACES = (*TEXTS, "embeddings")
PATHS = {
    "chat": "/v1/llm/chat/completions",
    "responses": "/v1/llm/responses",
    "messages": "/v1/llm/messages",
    "embeddings": "/v1/llm/embeddings",
}
LIMITS = {
    "chat": "max_completion_tokens",
    "responses": "max_output_tokens",
    "messages": "max_tokens",
}
INPUT_PRICE, OUTPUT_PRICE = 2_000_000, 8_000_000
WORDS = "A prompt of some length that a server may forget to count when it reports. " * 20
_numbers = count(1)


@dataclass
class Counting:
    """A provider of every surface. It ignores limits by names that it does not know, unless it ``refuses`` them."""

    input: int = 350
    output: int | None = None
    makes: int = 5
    knows: tuple[str, ...] = ("max_tokens", "max_output_tokens")
    refuses: str = ""
    fails: bool = False
    thinks: float = 0.0
    made: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def play(self, peer: Peer) -> None:
        while peer.sock.fileno() != -1 and (request := peer.request()):
            head, _, raw = request.partition(b"\r\n\r\n")
            body = json.loads(raw)
            self.bodies.append(body)
            if self.refuses and self.refuses in body:
                self.refuse(peer)
            elif body.get("stream"):
                self.stream(peer, head)
            else:
                peer.answer(json.dumps(self.answer(head, body)).encode())

    def refuse(self, peer: Peer) -> None:
        message = f"Unsupported parameter: '{self.refuses}' is not supported with this model."
        error = json.dumps({"error": {"message": message, "param": self.refuses}}).encode()
        head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(error)
        peer.send(head + error)

    def answer(self, head: bytes, body: dict[str, Any]) -> dict[str, Any]:
        limits = [body[name] for name in self.knows if name in body]
        self.made += (made := min([self.makes, *limits]))
        given, out = self.input, made if self.output is None else self.output
        told = {"input_tokens": given, "output_tokens": out, "total_tokens": given + out}
        old = {"prompt_tokens": given, "completion_tokens": out, "total_tokens": given + out}
        text = "word " * made
        failed = {"error": {"message": "overloaded", "code": 503}} if self.fails else {}
        if b"/embeddings " in head:
            del old["completion_tokens"]
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            return {"object": "list", "model": "m", "usage": old, **(failed or {"data": data})}
        if b"/chat/completions " in head:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            kept = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "usage": old,
            }
            return {**kept, **(failed or {"choices": [choice]})}
        if b"/responses " in head:
            part = {"type": "output_text", "text": text, "annotations": []}
            item = {"type": "message", "id": "1", "role": "assistant", "content": [part]}
            kept = {"id": "resp_1", "object": "response", "model": "m", "usage": told}
            return {**kept, "output": [item], "status": "completed", **failed}
        kept = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": told}
        content = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        return {**kept, **(failed or content)}

    def stream(self, peer: Peer, head: bytes) -> None:
        """Thinks unseen, says one word, and goes on without end."""
        peer.send(CHUNKED)
        time.sleep(self.thinks)
        for each in FIRST_WORDS[next(name for name in FIRST_WORDS if name in head)]:
            peer.chunk(
                b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode())
            )
        peer.wait_until_gone()


@dataclass
class Waiting(Counting):
    """Answers once it is told to, also those who have left by then."""

    may_answer: Event = field(default_factory=Event)

    def play(self, peer: Peer) -> None:
        with suppress(ConnectionError):
            super().play(peer)

    def answer(self, head: bytes, body: dict[str, Any]) -> dict[str, Any]:
        assert self.may_answer.wait(2 * PATIENCE)
        return super().answer(head, body)


_BEGUN = {"id": "resp_1", "object": "response", "model": "m", "output": [], "status": "in_progress"}
_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
FIRST_WORDS: dict[bytes, list[dict[str, Any]]] = {
    b"/chat/completions ": [
        {"type": "", "choices": [{"index": 0, "delta": {"content": "word"}, "finish_reason": None}]}
    ],
    b"/responses ": [
        {"type": "response.created", "response": _BEGUN},
        {"type": "response.output_text.delta", "item_id": "1", "output_index": 0, "content_index": 0, "delta": "word"},
    ],
    b"/messages ": [
        {"type": "message_start", "message": {**_MESSAGE, "usage": {"input_tokens": 40, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}},
    ],
}  # fmt: skip


@pytest.fixture
def offer(database: Database) -> Iterator[Callable[..., str]]:
    """Offers a model of a surface with a route to each of these providers, until the test ends; returns its name."""
    running: list[raw_server.Provider] = []
    offers: list[str] = []

    def offered(surface: str, *counting: Counting, thinks: bool = False, **columns: Any) -> str:
        name = f"metered-{next(_numbers)}"
        offers.append(name)
        kind = "text-embedding-x" if surface == "embeddings" else "gpt-4o"
        with database.rows():
            model = LanguageModel.objects.create(
                name=name, provider_name=kind, output_limit=4_000, context_length=None
            )
            for order, each in enumerate(counting):
                running.append(raw_server.Provider(each.play, None))
                address = f"http://127.0.0.1:{running[-1].port}"
                is_anthropic = surface == "messages"
                provider = Provider.objects.create(
                    name=f"{name}-{order}",
                    dialect="anthropic" if is_anthropic else "openai",
                    base_url=address if is_anthropic else f"{address}/v1",
                    **columns,
                )
                Route.objects.create(
                    model=model,
                    provider=provider,
                    provider_name=kind,
                    order=order,
                    tokenizer="o200k_base",
                    input_price=INPUT_PRICE,
                    output_price=OUTPUT_PRICE,
                    thinks=thinks,
                )
        return name

    yield offered
    with database.rows():
        LanguageModel.objects.filter(name__in=offers).update(is_on=False)
    for each in running:
        each.stop()
        assert each.errors == []


def body_of(surface: str, text: str = WORDS, *, pdf: str = "", limit: int | None = None) -> Any:
    body: dict[str, Any] = {}
    if limit is not None:
        body[LIMITS[surface]] = limit
    if surface == "embeddings":
        return {"input": text}
    if surface == "responses":
        file = {"type": "input_file", "filename": "a.pdf", "file_data": pdf}
        content = [{"type": "input_text", "text": text}, *([file] if pdf else [])]
        return {**body, "input": [{"role": "user", "content": content}]}
    content = [{"type": "text", "text": text}]
    if pdf and surface == "chat":
        content.append({"type": "file", "file": {"file_data": pdf, "filename": "a.pdf"}})  # type: ignore[dict-item]
    elif pdf:
        data = pdf.rpartition(",")[2]
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
        content.append({"type": "document", "source": source})  # type: ignore[dict-item]
    if surface == "messages":
        body.setdefault("max_tokens", 1_000)
    return {**body, "messages": [{"role": "user", "content": content}]}


def ask(shell: Shell, surface: str, model: str, **asked: Any) -> Any:
    members = asked.pop("members", {})
    body = {"model": model, **body_of(surface, **asked), **members}
    return shell.post(PATHS[surface], body, headers={"anthropic-version": "2023-06-01"})


def a_pdf_of_a_hundred_pages() -> str:
    """39 KB, and 1.2 million characters once inflated."""
    text = zlib.compress(b"BT /F1 9 Tf " + (b"(" + b"x" * 63 + b") Tj T* ") * 190 + b" ET")
    page = (
        b"1 0 obj <</Type /Page>> endobj\n2 0 obj <</Filter /FlateDecode>>\nstream\n%s\nendstream\n"
    )
    document = b"%PDF-1.7\n" + (page % text) * 100
    assert len(document) < 40_000
    return "data:application/pdf;base64," + b64encode(document).decode()


@pytest.mark.parametrize("surface", TEXTS)
def test_a_compressed_file_costs_what_its_provider_counts(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str], surface: str
) -> None:
    model = offer(surface, Counting(input=582_250, makes=1))
    response = ask(shell, surface, model, pdf=a_pdf_of_a_hundred_pages(), limit=16)
    assert response.status_code == 200, response.text
    record = the_record(database, person)
    assert (record.input_tokens, record.output_tokens) == (582_250, 1)
    assert (record.source, record.is_implausible) == ("provider", False)
    assert record.cost == (582_250 * INPUT_PRICE + OUTPUT_PRICE) // 10**6
    assert record.reserved_input >= 400_000
    assert shell.usage()["input"]["used"] == 582_250


@pytest.mark.parametrize("surface", TEXTS)
def test_a_compressed_file_is_held_to_the_day_before_it_is_sent(
    service: Service, database: Database, sign_in: SignIn, offer: Callable[..., str], surface: str
) -> None:
    counting = Counting(input=582_250)
    starter = add_person(
        database, {"monthly_input": 500_000, "monthly_output": 100_000, "daily": 100_000}
    )
    shell, model = sign_in(service, starter), offer(surface, counting)
    response = ask(shell, surface, model, pdf=a_pdf_of_a_hundred_pages(), limit=16)
    assert response.status_code == 429, response.text
    assert counting.bodies == []


def test_a_document_by_its_address_costs_what_its_provider_counts(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str]
) -> None:
    model = offer("messages", Counting(input=390_000), fetches="yes")
    source = {"type": "url", "url": "https://files.example.com/a.pdf"}
    content = [{"type": "document", "source": source}, {"type": "text", "text": "?"}]
    members = {"messages": [{"role": "user", "content": content}]}
    response = ask(shell, "messages", model, members=members)
    assert response.status_code == 200, response.text
    record = the_record(database, person)
    assert (record.input_tokens, record.is_implausible) == (390_000, True)


@pytest.mark.parametrize("surface", TEXTS)
def test_output_past_its_limit_is_charged_where_a_server_ignores_limits(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str], surface: str
) -> None:
    counting = Counting(makes=8_000, knows=())
    response = ask(shell, surface, offer(surface, counting), limit=16)
    assert response.status_code == 200, response.text
    record = the_record(database, person)
    assert counting.made == record.output_tokens == 8_000
    assert (record.source, record.is_implausible) == ("provider", True)


@pytest.mark.parametrize("asked", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("known", ["max_tokens", "max_completion_tokens"])
def test_a_limit_reaches_a_server_by_the_name_it_knows(
    shell: Shell,
    database: Database,
    person: Person,
    offer: Callable[..., str],
    asked: str,
    known: str,
) -> None:
    counting = Counting(makes=8_000, knows=(known,))
    columns = {} if known == "max_tokens" else {"limit_name": known}
    model = offer("chat", counting, **columns)
    response = ask(shell, "chat", model, members={asked: 16})
    assert response.status_code == 200, response.text
    [body] = counting.bodies
    assert body[known] == 16
    assert len(body.keys() & {"max_tokens", "max_completion_tokens"}) == 1
    assert counting.made == the_record(database, person).output_tokens == 16


def test_a_server_that_refuses_the_name_is_asked_once_more_by_the_other(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str]
) -> None:
    counting = Counting(makes=99, refuses="max_tokens", knows=("max_completion_tokens",))
    response = ask(shell, "chat", offer("chat", counting), limit=16)
    assert response.status_code == 200, response.text
    assert [each.get("max_tokens") for each in counting.bodies] == [16, None]
    record = the_record(database, person)
    assert (record.output_tokens, record.end, record.abandoned) == (16, "done", None)


@pytest.mark.parametrize("budget", [17, 150_000])
def test_a_thinking_budget_above_the_limit_is_refused(
    shell: Shell, offer: Callable[..., str], budget: int
) -> None:
    counting, thinking = Counting(), {"type": "enabled", "budget_tokens": max(budget, 1_024)}
    model = offer("messages", counting)
    beta = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
    body = {"model": model, **body_of("messages", limit=16), "thinking": thinking}
    response = shell.post(PATHS["messages"], body, headers=beta)
    assert response.status_code == 400
    assert "/thinking/budget_tokens" in response.text
    assert counting.bodies == []
    assert shell.usage()["input"]["used"] == 0


@pytest.mark.parametrize(
    ("surface", "members"),
    [
        ("chat", {"thinking": {"type": "enabled", "budget_tokens": 9_000}}),
        ("chat", {"reasoning": {"max_tokens": 9_000}}),
        ("chat", {"thinking_budget": 9_000}),
        ("responses", {"reasoning": {"max_tokens": 9_000}}),
    ],
)
def test_a_thinking_budget_is_refused_where_all_members_pass(
    shell: Shell, offer: Callable[..., str], surface: str, members: dict[str, Any]
) -> None:
    counting = Counting()
    model = offer(surface, counting, members="all")
    response = ask(shell, surface, model, members=members, limit=2_000)
    assert response.status_code == 400, response.text
    assert "above the call's output limit" in response.text
    assert counting.bodies == []


@pytest.mark.parametrize(("reported", "surface"), each_once([0, 1], SURFACES))
def test_a_prompt_that_is_reported_as_nearly_nothing_costs_what_was_counted(
    shell: Shell,
    database: Database,
    person: Person,
    offer: Callable[..., str],
    surface: str,
    reported: int,
) -> None:
    response = ask(shell, surface, offer(surface, Counting(input=reported)))
    assert response.status_code == 200, response.text
    record = the_record(database, person)
    assert record.input_tokens == record.reserved_input > 300
    assert record.source == "counted"


@pytest.mark.parametrize("surface", SURFACES)
def test_the_report_of_a_failed_attempt_is_on_the_record_and_in_the_clients_money(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str], surface: str
) -> None:
    failing, second = Counting(input=4_000, output=50, fails=True), Counting(input=350)
    response = ask(shell, surface, offer(surface, failing, second))
    assert response.status_code == 200, response.text
    record = the_record(database, person)
    made = 0 if surface == "embeddings" else 5
    assert (record.input_tokens, record.output_tokens) == (350, made)
    with database.rows():
        [left] = attempts_of([record])[record.pk]
        total = Statement(client_id=person.client_id, month=record.period).total()
    lost = 0 if surface == "embeddings" else 50
    assert (left.input, left.output, left.is_reported) == (4_000, lost, True)
    assert left.cost == (4_000 * INPUT_PRICE + lost * OUTPUT_PRICE) // 10**6
    assert total.cost == record.cost + left.cost
    assert (total.input, total.output) == (350, made)
    assert_nothing_is_reserved(database, person)


@pytest.mark.wall_time
@pytest.mark.wire
@pytest.mark.parametrize("surface", TEXTS)
def test_thought_before_the_first_word_is_paid_by_who_leaves_at_it(
    shell: Shell, database: Database, person: Person, offer: Callable[..., str], surface: str
) -> None:
    model = offer(surface, Counting(thinks=4.0), thinks=True)
    body = {"model": model, "stream": True, **body_of(surface, limit=30_000)}
    began = time.monotonic()
    with shell.post(PATHS[surface], body, stream=True) as response:
        assert response.status_code == 200
        next(each for each in response.iter_lines() if b"word" in each)
    record: UsageRecord = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", "counted")
    # A hundred tokens a second, also of the seconds until the cut.
    assert 400 <= record.output_tokens <= 100 * (time.monotonic() - began) + 10


@pytest.mark.parametrize(
    ("surface", "path"),
    [("chat", "complete"), ("responses", "responses"), ("messages", "messages")],
)
def test_whole_answers_that_are_left_at_once_are_all_charged(
    service: Service,
    shell: Shell,
    database: Database,
    person: Person,
    offer: Callable[..., str],
    surface: str,
    path: str,
) -> None:
    """Thirty of a person are read to their end at once; one more is cut and costs its reservation."""
    waiting = Waiting(input=400, makes=700)
    body = {"model": offer(surface, waiting), **body_of(surface, limit=900)}
    headers = {"Authorization": f"Bearer {shell.access}", "Content-Type": "application/json"}
    callers = [HTTPConnection(HOST, service.port, timeout=PATIENCE) for _ in range(31)]
    for caller in callers:
        caller.request("POST", f"/v1/llm/{path}", json.dumps(body), headers)
    eventually(lambda: len(waiting.bodies) == 31)
    for caller in callers:
        caller.close()
    try:
        # One that is cut: by then all others were seen to have left.
        eventually(lambda: any(record.end for record in records_of(database, person)))
    finally:
        waiting.may_answer.set()
    eventually(lambda: all(record.end for record in records_of(database, person)))
    records = records_of(database, person)
    assert [record.end for record in records] == ["client_gone"] * 31
    charged = [(record.source, record.output_tokens) for record in records]
    assert sorted(charged) == [("estimated", 900), *[("provider", 700)] * 30]
    [cut] = [record for record in records if record.source == "estimated"]
    assert cut.input_tokens == cut.reserved_input
    assert_nothing_is_reserved(database, person)


@pytest.fixture
def licensing(service: Service, database: Database) -> Iterator[Browser]:
    """The console, to an operator of the role licensing alone."""
    with database.rows():
        operator = User.objects.create_user("licensing@served.test", PASSWORD, is_staff=True)
        operator.put_roles({Role.LICENSING})
    browser = Browser(service.url)
    browser.submit("/admin/login/?next=/admin/", username=operator.email, password=PASSWORD)
    yield browser
    with database.rows():
        operator.delete()


def test_an_implausible_charge_is_lowered_where_its_alert_leads(
    service: Service,
    shell: Shell,
    database: Database,
    person: Person,
    offer: Callable[..., str],
    licensing: Browser,
) -> None:
    with database.rows():
        # Other tests left some, and of many at once there is one mail.
        Alert.objects.all().delete()
    response = ask(shell, "chat", offer("chat", Counting(input=100_000, makes=9)))
    assert response.status_code == 200, response.text
    assert the_record(database, person).is_implausible
    assert charged_of(shell, database, person) == (100_000, 9, 100_000 * 2 + 9 * 8)

    with database.rows():
        # As the worker does within a minute.
        assert mail_waiting(now=datetime.now(UTC)) == 1
        mails = [job.args for job in ProcrastinateJob.objects.filter(task_name="mail.send")]
    [text] = [mail["text"] for mail in mails if person.email in mail["subject"]]
    assert "100,009 tokens" in text
    *_, link = re.findall(r"https?://[^/]+(/\S+)", text)
    [lower] = re.findall(r'href="([^"]+)"[^>]*>\s*Lower charge', licensing.get(link).text)
    done = licensing.submit(lower, input_tokens="350", output_tokens="5", reason="The invoice.")
    assert "The call is now charged 350 tokens of input and 5 of output." in done.text
    assert "100,000 in, 9 out" in licensing.get(link).text
    assert charged_of(shell, database, person) == (350, 5, 350 * 2 + 5 * 8)
    assert_nothing_is_reserved(database, person)


def charged_of(shell: Shell, database: Database, person: Person) -> tuple[int, int, int | None]:
    """The tokens that a person sees and the cost of the person's client, in millionths of a dollar."""
    usage = shell.usage()
    given, made = usage["input"]["used"], usage["output"]["used"]
    assert usage["day"]["used"] == given + made
    period = the_record(database, person).period
    with database.rows():
        total = Statement(client_id=person.client_id, month=period).total()
    return given, made, total.cost
