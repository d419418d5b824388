"""Traces of requests for OpenTelemetry (`--tracing`): a span for each request, sent to an OTLP/HTTP receiver.

A span is made when its request is answered, from what was counted anyway: while tracing is off, requests pay nothing.
The W3C context of the client's `traceparent` header is its parent. The packages are an extra, `armillary[tracing]`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from armillary import __version__
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.net.requests.request_watch import Answered
from armillary.tools.serving.request_log import fields_of
from armillary.tools.serving.runtime import Runtime
from armillary.tools.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger("armillary")

# Read by the packages of OpenTelemetry themselves.
_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SYSTEMS: Final = {"sql": "azure.cosmosdb", "table": "azure.cosmosdb", "mongo": "mongodb", "gremlin": "gremlin"}
_CONTEXT_HEADERS: Final = (b"traceparent", b"tracestate")
_NANOSECONDS: Final = 1_000_000_000
_CLOSING_MS: Final = 2_000  # for spans that are not sent yet when the server stops


def begin_tracing(settings: Settings, runtime: Runtime, opened: ExitStack) -> None:
    """Trace from now on, if the settings or the variables of OpenTelemetry ask for it, until `opened` is closed."""
    if not is_wanted(settings, os.environ):
        return
    try:
        traces = Traces(settings.tracing, settings.tracing_share)
    except ImportError:
        raise bad_request("Tracing needs packages of OpenTelemetry: pip install 'armillary[tracing]'.") from None
    opened.callback(traces.close)
    runtime.trace(traces)
    log.info("a span of each request is sent to %s", settings.tracing or "the receiver of OTEL_EXPORTER_OTLP_ENDPOINT")


def is_wanted(settings: Settings, environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return settings.tracing is not None
    return settings.tracing is not None or any(environment.get(name) for name in _VARIABLES)


class Traces:
    def __init__(self, url: str | None, share: float) -> None:
        """`url`: None: the variables of OpenTelemetry name it."""
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.share = share
        self._due = 0.0
        clock = SystemClock()
        self._epoch_s = clock.now_s() - clock.elapsed_s()
        named = {"service.name": "armillary"} if "OTEL_SERVICE_NAME" not in os.environ else {}
        resource = Resource.create({**named, "service.version": __version__})
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        self._tracer = self._provider.get_tracer("armillary", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace

    def report(self, answered: Answered) -> None:
        """A span of a request that is answered. The client decides whether its own traces are sampled."""
        context = self._context(answered.headers or {})
        given = self._trace.get_current_span(context).get_span_context()
        if given.is_valid:
            if not given.trace_flags.sampled:
                return
        elif not self._is_sampled():
            return
        begun_s = self._epoch_s + answered.begun_s
        span = self._tracer.start_span(
            f"{answered.door} {answered.operation}",
            context=context,
            kind=self._trace.SpanKind.SERVER,
            attributes=_attributes(answered),
            start_time=int(begun_s * _NANOSECONDS),
        )
        if answered.kind is not None:
            span.set_status(self._trace.StatusCode.ERROR, answered.kind.name.lower())
        span.end(int((begun_s + answered.elapsed_s) * _NANOSECONDS))

    def _context(self, headers: Mapping[bytes, bytes]) -> Context:
        carrier = {name.decode(): headers[name].decode("latin-1") for name in _CONTEXT_HEADERS if name in headers}
        from opentelemetry.context import Context

        return self._propagator.extract(carrier, Context())

    def _is_sampled(self) -> bool:
        self._due += self.share
        if self._due < 1:
            return False
        self._due -= 1
        return True

    def close(self) -> None:
        """Send what is left, for a moment."""
        self._provider.force_flush(_CLOSING_MS)
        self._provider.shutdown()


def _attributes(answered: Answered) -> dict[str, Any]:
    fields = fields_of(answered)
    named = {
        "db.system.name": _SYSTEMS.get(answered.door, ""),
        "db.namespace": answered.database,
        "db.collection.name": answered.container,
        "db.operation.name": answered.operation,
        "db.response.status_code": str(answered.status),
        "client.address": answered.peer,
        "error.type": answered.kind.name.lower() if answered.kind is not None else "",
    }
    own = ("door", "ru", "partitions", "rows", "loaded", "query", "activity")
    shown = {f"armillary.{name}": fields[name] for name in own if name in fields}
    return {name: value for name, value in (named | shown).items() if value != ""}
