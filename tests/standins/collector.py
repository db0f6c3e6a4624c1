"""A collector of traces on loopback, which reads OTLP by OpenTelemetry's own definition of the format."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Span:
    """A span as it came: ids in hexadecimal digits, times in ns, and ``whole``, all that it says, as text."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    facts: dict[str, str | int]
    ended_at: int
    whole: str


class Collector:
    """``url`` is the value for ``OTEL_EXPORTER_OTLP_ENDPOINT``; ``asked``: somebody has begun to send."""

    def __init__(self) -> None:
        self.url = ""
        self.asked = threading.Event()
        self.spans: list[Span] = []
        self.services: set[str] = set()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            said = {fact.key: fact.value.string_value for fact in each.resource.attributes}
            self.services.add(said["service.name"])
            self.spans += [_read(span) for scope in each.scope_spans for span in scope.spans]


def _read(span: trace_pb2.Span) -> Span:
    facts = {each.key: each.value for each in span.attributes}
    return Span(
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        facts={name: each.string_value or each.int_value for name, each in facts.items()},
        ended_at=span.end_time_unix_nano,
        whole=str(span),
    )


@contextmanager
def running_collector(*, hangs: bool = False) -> Iterator[Collector]:
    """One that takes every span, or one that never answers."""
    collector, ends = Collector(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            if hangs:
                ends.wait()
                return
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing of requests."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    collector.url = f"http://{HOST}:{server.server_port}"
    try:
        yield collector
    finally:
        ends.set()
        server.shutdown()
        server.server_close()
