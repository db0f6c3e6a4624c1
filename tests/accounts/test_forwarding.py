"""Events reach a syslog server by every transport, in order, and none is lost while it is away."""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from django.db import IntegrityError, connection, transaction

from accounts import forwarding
from accounts.audit import Actor, record
from accounts.forwarding import forward, waiting
from accounts.models import AuditEvent, AuditPosition
from config.platform.db import advisory_locks
from config.platform.observability.syslog import Receiver
from tests.races import race
from tests.standins.raw_server import Authority
from tests.standins.syslog_server import SyslogServer, listening
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
HEADER = re.compile(rb"<110>1 (\S+)Z shell\.test shell-backend - (\S+) - (\{.*\})")
TCP = Receiver("tcp", "127.0.0.1", 0)


def write(*targets: str, by: Actor, now: datetime) -> None:
    for target in targets:
        record("client:created", by=by, now=now, target=target, after={"name": target})


def taken(server: SyslogServer) -> list[dict[str, Any]]:
    return [json.loads(parts[3]) for each in server.messages if (parts := HEADER.fullmatch(each))]


def targets(server: SyslogServer) -> list[str]:
    return [each["target"] for each in taken(server)]


@pytest.fixture(params=["udp", "tcp", "tls", "unix"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SyslogServer]:
    context: ssl.SSLContext | None = None
    to = Receiver(request.param, "127.0.0.1", 0)
    if request.param == "unix":
        to = Receiver("unix", path=str(tmp_path / "log"))
    if request.param == "tls":
        authority = Authority(tmp_path)
        context = authority.server(x509.IPAddress(IPv4Address("127.0.0.1")))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with listening(to, context) as started:
        yield started


def soon(server: SyslogServer, number: int) -> None:
    """A datagram is sent before it is read."""
    eventually(lambda: len(server.messages) >= number)


def test_events_arrive_once_and_in_order_by_every_transport(
    server: SyslogServer, by: Actor, now: datetime
) -> None:
    write("Acme", "Ä & Söhne", by=by, now=now)
    assert forward(to=server.receiver, now=now) == 2
    write("Third", by=by, now=now)
    assert forward(to=server.receiver, now=now) == 1
    assert forward(to=server.receiver, now=now) == 0
    soon(server, 3)
    assert targets(server) == ["Acme", "Ä & Söhne", "Third"]
    assert waiting() is None
    assert AuditPosition.objects.get().at == now


def test_a_message_has_every_field_of_the_event_in_one_line(by: Actor, now: datetime) -> None:
    reason = "first\nsecond\x1b<110>1 forged"
    with listening(TCP) as server:
        record("user:disabled", by=by, now=now, target="a@b.test", reason=reason, before={"x": 1})
        forward(to=server.receiver, now=now)
    (line,) = server.messages
    when, kind, _ = HEADER.fullmatch(line).groups()  # type: ignore[union-attr]
    assert datetime.fromisoformat(when.decode()).replace(tzinfo=UTC) == now
    assert kind == b"user:disabled"
    assert not any(byte < 32 or byte > 126 for byte in line)
    (event,) = taken(server)
    row = AuditEvent.objects.values().get()
    assert event.keys() == row.keys()
    assert (event["id"], event["reason"], event["before"]) == (row["id"], reason, {"x": 1})
    assert (event["actor"], event["address"]) == (by.name, row["address"])


def test_a_long_event_goes_without_its_change_and_fits_a_datagram(by: Actor, now: datetime) -> None:
    with listening(Receiver("udp", "127.0.0.1", 0)) as server:
        record(
            "client:created", by=by, now=now, target="ä" * 254, reason="ü" * 9_000, after={"x": "y"}
        )
        forward(to=server.receiver, now=now)
        soon(server, 1)
    assert len(server.messages[0]) < 8_200
    (event,) = taken(server)
    assert (event["cut"], event["after"], event["reason"]) == (True, None, "ü" * 500)


def test_nothing_is_lost_while_the_server_is_away(by: Actor, now: datetime) -> None:
    with listening(TCP) as server:
        write("before", by=by, now=now)
        forward(to=server.receiver, now=now)
    to = server.receiver
    write("while away", by=by, now=now)
    with pytest.raises(OSError):
        forward(to=to, now=now)
    write("later", by=by, now=now)
    assert waiting().target == "while away"  # type: ignore[union-attr]
    with listening(to) as again:
        assert forward(to=to, now=now) == 2
    assert targets(again) == ["while away", "later"]


def test_a_server_that_breaks_off_is_sent_the_same_again(by: Actor, now: datetime) -> None:
    write("one", "two", by=by, now=now)
    with listening(TCP) as server:
        server.breaks = True
        with pytest.raises(OSError):
            forward(to=server.receiver, now=now)
        server.breaks = False
        assert forward(to=server.receiver, now=now) == 2
    assert targets(server) == ["one", "two"]


def test_a_server_of_another_authority_receives_nothing(
    tmp_path: Path, by: Actor, now: datetime
) -> None:
    write("Acme", by=by, now=now)
    context = Authority(tmp_path).server(x509.IPAddress(IPv4Address("127.0.0.1")))
    with (
        listening(Receiver("tls", "127.0.0.1", 0), context) as server,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        forward(to=server.receiver, now=now)
    assert server.messages == []


def test_a_table_longer_than_a_batch_goes_in_one_run(
    by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "AT_A_TIME", 2)
    write(*"abcde", by=by, now=now)
    with listening(TCP) as server:
        assert forward(to=server.receiver, now=now) == 5
    assert targets(server) == list("abcde")


class TestEventThatCommitsLate:
    """Its id is lower than that of an event which is there already."""

    def late(self, begun: threading.Event, may_end: threading.Event, **event: Any) -> None:
        try:
            with transaction.atomic():
                write("late", **event)
                begun.set()
                may_end.wait(60)
        finally:
            connection.close()

    @pytest.fixture
    def held(self, by: Actor, now: datetime) -> Iterator[threading.Event]:
        begun, may_end = threading.Event(), threading.Event()
        writer = threading.Thread(
            target=self.late, args=(begun, may_end), kwargs={"by": by, "now": now}, daemon=True
        )
        writer.start()
        assert begun.wait(30)
        write("early", by=by, now=now)
        yield may_end
        may_end.set()
        writer.join(30)

    def test_is_waited_for(
        self, held: threading.Event, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(advisory_locks, "WRITERS_SECONDS", 60.0)
        with listening(TCP) as server:
            threading.Timer(0.3, held.set).start()
            assert forward(to=server.receiver, now=now) == 2
        assert targets(server) == ["late", "early"]

    def test_holds_up_those_behind_it_and_no_request(
        self,
        held: threading.Event,
        by: Actor,
        now: datetime,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(advisory_locks, "WRITERS_SECONDS", 0.2)
        with listening(TCP) as server:
            assert forward(to=server.receiver, now=now) == 0
            write("meanwhile", by=by, now=now)
            held.set()
            monkeypatch.undo()
            assert forward(to=server.receiver, now=now) == 3
        assert targets(server) == ["late", "early", "meanwhile"]


def test_two_workers_at_once_send_each_event_once(by: Actor, now: datetime) -> None:
    write(*"abcdef", by=by, now=now)
    with listening(TCP) as server:
        sent = race(*[lambda: forward(to=server.receiver, now=now)] * 4)
        forward(to=server.receiver, now=now)
    assert sum(each for each in sent if isinstance(each, int)) == 6
    assert targets(server) == list("abcdef")


def test_the_table_of_positions_has_one_row(now: datetime) -> None:
    with pytest.raises(IntegrityError, match="audit_position_is_one"):
        AuditPosition.objects.create(id=2, event_id=1, at=now + timedelta(days=1))
