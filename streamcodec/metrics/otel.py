"""OpenTelemetry: a span for each request, one for the call of its model, and metrics. It needs the extra `otel`.

This uses the API of OpenTelemetry alone. The program chooses the SDK, its exporters and its sampling; without an SDK
nothing is recorded.

The span of a request continues the trace of its client (`traceparent`). The span of the call is the current one where
the model runs, in its thread or its task, so spans that the model makes are its children. The requests of a batch have
one call together. So each of their spans is linked to that of the request that has ended first.

Names of spans and attributes of metrics have few values: the route with `{model}` in it, and methods that HTTP knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from functools import lru_cache
from http import HTTPMethod, HTTPStatus
from typing import Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.metrics.counting import BOUNDS, is_inference
from streamcodec.metrics.gauges import GAUGES
from streamcodec.service import BatchPlace, Ending, ModelRegistry, Observer, RequestRecord, ServerLoad
from streamcodec.service.routes import find_route, without_secret

_SCOPE: Final = "streamcodec"
_OTHER_METHOD: Final = "_OTHER"
_METHODS: Final = frozenset(HTTPMethod)
_NANOSECONDS: Final = 1_000_000_000
Attributes = dict[str, str | int | float]
_Call = tuple[Span, Token[Context]]

_MAX_BATCHES: Final = 1024
"""Batches that are remembered until the spans of all of their requests have ended."""


class Telemetry(Observer):
    """An observer that makes spans and metrics.

    Example:
        >>> from streamcodec.service import Service, demo_models
        >>> service = Service(demo_models())
        >>> telemetry = Telemetry(service.models)  # for run(service, observer=telemetry)
    """

    def __init__(
        self,
        models: ModelRegistry,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Prepare the instruments.

        Args:
            models: of the service; only their names become attributes of metrics.
            tracer_provider: where spans go; None for the global one.
            meter_provider: the same for metrics.
        """
        self._models = models
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._spans: dict[RequestRecord, Span] = {}
        self._calls: dict[RequestRecord, _Call] = {}
        self._durations = self._meter.create_histogram(
            "http.server.request.duration",
            unit="s",
            description="Duration of requests",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._batches: dict[int, SpanContext] = {}
        self._waits = self._meter.create_histogram(
            "streamcodec.batch.wait",
            unit="s",
            description="How long requests have waited for their batches",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._rows = self._meter.create_histogram(
            "streamcodec.batch.rows", unit="{row}", description="Rows of each call of models with batches"
        )
        self._io = self._meter.create_counter(
            "streamcodec.io", unit="By", description="Bytes of requests and answers, with their heads"
        )

    def server_begun(self, load: Callable[[], ServerLoad]) -> None:
        """Make the gauges of this server."""
        for gauge in GAUGES:
            kind = self._meter.create_observable_counter if gauge.is_counter else self._meter.create_observable_gauge
            kind(gauge.otel, callbacks=[_reader(load, gauge.field)], unit=gauge.unit, description=gauge.text)

    def request_begun(self, request: RequestRecord) -> None:
        """Begin the span of a request."""
        method, route = _method(request), _route(request.target)
        self._spans[request] = self._tracer.start_span(
            f"{method} {route}" if route else method,
            context=propagate.extract(request, getter=_FIELDS),
            kind=SpanKind.SERVER,
            start_time=int(request.started * _NANOSECONDS),
        )

    def call_begun(self, request: RequestRecord) -> None:
        """Begin the span of the call, and make it the current one."""
        parent = self._spans.get(request)
        if parent is None:  # the request was given up
            return
        span = self._tracer.start_span(
            f"call {request.model}",
            context=trace.set_span_in_context(parent),
            # The time of day may have been set back, or corrected, since the request began.
            start_time=max(time.time_ns(), int(request.started * _NANOSECONDS)),
        )
        self._calls[request] = span, context.attach(trace.set_span_in_context(span))

    def call_ended(self, request: RequestRecord) -> None:
        """End the span of the call."""
        call = self._calls.pop(request, None)
        if call is not None:
            span, token = call
            context.detach(token)
            span.end()

    def request_ended(self, request: RequestRecord) -> None:
        """End the span of the request, and count it."""
        attributes = self._attributes(request)
        self._durations.record(request.seconds, attributes)
        self._io.add(request.bytes_in, {"network.io.direction": "receive"})
        self._io.add(request.bytes_out, {"network.io.direction": "transmit"})
        span = self._spans.pop(request)
        if request.batch is not None:
            self._count_batch(request, request.batch, span)
        if span.is_recording():
            span.set_attributes({**attributes, **_details(request)})
            if request.cause is not None:
                span.record_exception(request.cause)
            # The server has not done its part. For OpenTelemetry, status 4xx is no error of a server.
            if request.ending is not Ending.COMPLETE or (request.status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
                span.set_status(Status(StatusCode.ERROR))
        span.end(int((request.started + request.seconds) * _NANOSECONDS))

    def _count_batch(self, request: RequestRecord, place: BatchPlace, span: Span) -> None:
        """Count a request of a batch, and link its span to the first one of the batch that has ended."""
        attributes = {"streamcodec.model.name": str(request.model), "streamcodec.batch.reason": place.reason}
        self._waits.record(place.waited, attributes)
        if place.index == 0:
            self._rows.record(place.rows, attributes)
        if (first := self._batches.get(place.number)) is not None:
            span.add_link(first)
        elif place.requests > 1:
            self._batches[place.number] = span.get_span_context()
            if len(self._batches) > _MAX_BATCHES:
                del self._batches[next(iter(self._batches))]

    def _attributes(self, request: RequestRecord) -> Attributes:
        """Return what has few values."""
        attributes: Attributes = {"http.request.method": _method(request)}
        if route := _route(request.target):
            attributes["http.route"] = route
        if request.status is not None:
            attributes["http.response.status_code"] = request.status
        if (kind := _error_type(request)) is not None:
            attributes["error.type"] = kind
        if is_inference(request, self._models):
            attributes["streamcodec.model.name"] = str(request.model)
            attributes["streamcodec.model.version"] = str(request.version)
        return attributes


class _Fields(Getter[RequestRecord]):
    """Reads the fields of a request for the propagators."""

    def get(self, carrier: RequestRecord, key: str) -> list[str] | None:
        """Return the values of a field; None if there is none."""
        return [value.decode("latin-1") for value in carrier.field(key.lower().encode())] or None

    def keys(self, carrier: RequestRecord) -> list[str]:
        """Return nothing: the propagators of OpenTelemetry know the names that they look for."""
        del carrier
        return []


_FIELDS: Final = _Fields()


def _reader(load: Callable[[], ServerLoad], field: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        value = getattr(load(), field)
        return [] if value is None else [Observation(value)]

    return read


def _method(request: RequestRecord) -> str:
    method = request.method
    return method if method is not None and method in _METHODS else _OTHER_METHOD


@lru_cache(maxsize=256)
def _route(target: str | None) -> str:
    """Return the route of a target, with `{model}` for the model; empty if there is none."""
    if target is None:
        return ""
    try:
        return find_route(target).template
    except RemoteProtocolError:
        return ""


def _error_type(request: RequestRecord) -> str | None:
    """Return the code of a refusal, how the request ended without an answer, or the status of a failure."""
    if request.code is not None:
        return str(request.code)
    if request.ending is not Ending.COMPLETE:
        return str(request.ending.value)
    if request.status is not None and request.status >= HTTPStatus.BAD_REQUEST:
        return str(request.status)
    return None


def _details(request: RequestRecord) -> Mapping[str, str | int | float]:
    """Return what only spans have."""
    host, _, port = request.client.rpartition(":")
    details: Attributes = {
        "http.request.size": request.bytes_in,
        "http.response.size": request.bytes_out,
        "streamcodec.receive.duration": request.body_seconds,
        "streamcodec.wait.duration": request.waiting_seconds,
        "streamcodec.model.duration": request.model_seconds,
        "streamcodec.send.duration": request.send_seconds,
    }
    if request.target is not None:
        details["url.path"] = without_secret(request.target.partition("?")[0])
    if host and port.isdecimal():
        details["client.address"] = host.strip("[]")
        details["client.port"] = int(port)
    if (place := request.batch) is not None:
        details["streamcodec.batch.rows"] = place.rows
        details["streamcodec.batch.requests"] = place.requests
        details["streamcodec.batch.reason"] = place.reason
        details["streamcodec.batch.waited"] = place.waited
    if request.request_id is not None:
        details["streamcodec.request.id"] = request.request_id
    return details
