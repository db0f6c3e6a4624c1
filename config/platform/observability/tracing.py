"""Sends traces of requests, jobs and their calls to other services to a collector, by OTLP over HTTP.

It is loaded only where a collector is set. OpenTelemetry instruments WSGI, psycopg, redis and sessions of ``requests``;
the service's own client works below those and gets its span here. An allow-list filters the exported attributes, so
that no text of a caller is exported.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.propagators.textmap import default_getter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, Status
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from requests import PreparedRequest, Response

from config.platform.edge import request_log
from config.platform.http import client
from config.platform.request import request_id
from config.platform.request.routes import route_of
from config.platform.runtime import serving

# Encoding a batch blocks the event loop.
BATCH = 64
# Seconds that an exiting process waits for a collector.
LAST_SECONDS = 2.0
_HTTP = ("http.request.method", "http.response.status_code", "error.type")
# Exported attributes by the kind of span. A caller chooses the server's name in a request.
ALLOWED = {
    SpanKind.SERVER: (*_HTTP, "http.route", "shell.request_id"),
    SpanKind.CLIENT: (*_HTTP, "server.address", "db.system.name", "db.query.text"),
}

log = logging.getLogger(__name__)
_tracer = trace.get_tracer("shell-backend")


def register() -> None:
    """Makes this process, and those forked from it, record spans; ``start`` begins to send them."""
    os.environ.setdefault("OTEL_SERVICE_NAME", "shell-backend")
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "http,database"
    propagate.set_global_textmap(_Traceparent())
    for each in (PsycopgInstrumentor, RedisInstrumentor, RequestsInstrumentor):
        each().instrument()
    serving.around_requests.append(OpenTelemetryMiddleware)
    serving.around_jobs.append(run_job)
    client.around.append(send)
    request_log.begun.append(name_request)
    serving.started.append(start)
    serving.worker_started.append(start)


def start() -> None:
    """Starts the sending thread. Call it after the fork, which no thread survives."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = _Exporter(f"{settings.OTLP_ENDPOINT.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=BATCH))
    trace.set_tracer_provider(provider)
    serving.exits.append(partial(stop, provider))


def stop(provider: TracerProvider) -> None:
    last = Thread(target=provider.shutdown, daemon=True)
    last.start()
    last.join(LAST_SECONDS)


def name_request(request: HttpRequest) -> None:
    span = trace.get_current_span()
    span.set_attribute("http.route", route_of(request))
    span.set_attribute("shell.request_id", request_id.id_of(request))


def run_job(do: Callable[[], Any], context: Any, worker: object) -> Any:
    with _tracer.start_as_current_span(context.job.task_name, kind=SpanKind.CONSUMER):
        return do()


def send(request: PreparedRequest, sent: Callable[[], Response]) -> Response:
    with _tracer.start_as_current_span(str(request.method), kind=SpanKind.CLIENT) as span:
        span.set_attribute("server.address", str(urlsplit(request.url).hostname))
        propagate.inject(request.headers)
        response = sent()
        span.set_attribute("http.response.status_code", response.status_code)
        return response


class _Traceparent(TraceContextTextMapPropagator):
    """Propagates neither ``baggage`` nor ``tracestate``: providers must not receive callers' values."""

    def extract(self, carrier: Any, context: Any = None, getter: Any = default_getter) -> Any:
        return super().extract({"traceparent": getter.get(carrier, "traceparent") or ()}, context)


class _Exporter(OTLPSpanExporter):
    _loses = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        # Queries outside requests and jobs are dropped.
        exported = [_allowed(each) for each in spans if each.parent or each.kind != SpanKind.CLIENT]
        result = super().export(exported) if exported else SpanExportResult.SUCCESS
        if self._loses != (result is not SpanExportResult.SUCCESS):
            self._loses = not self._loses
            log.warning("traces_lost" if self._loses else "traces_sent_again")
        return result


def _allowed(span: ReadableSpan) -> ReadableSpan:
    """Drops the events and the text of the status, which repeat errors."""
    attributes = span.attributes or {}
    kept = {name: attributes[name] for name in ALLOWED.get(span.kind, ()) if name in attributes}
    # The library's name of a request ends in its path.
    name = f"{span.name.partition(' ')[0]} {kept.get('http.route', '')}".rstrip()
    return ReadableSpan(
        name, span.context, span.parent, span.resource, kept, kind=span.kind,
        status=Status(span.status.status_code), start_time=span.start_time,
        end_time=span.end_time, instrumentation_scope=span.instrumentation_scope,
    )  # fmt: skip
