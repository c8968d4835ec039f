"""OpenTelemetry: spans and metrics, as the SDK's exporters in memory get them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import numpy.typing as npt
import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="it needs the extra otel, and the SDK")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from streamcodec.metrics.gauges import GAUGES
from streamcodec.metrics.otel import Telemetry
from streamcodec.server import ServerOptions
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collected:
    """An observer with exporters in memory."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of the SDK
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False, **options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        tracer = self.tracers.get_tracer("model")

        def inner(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
            with tracer.start_as_current_span("inner"):
                return request.inputs

        async def later(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
            with tracer.start_as_current_span("inner"):
                await anyio.lowlevel.checkpoint()
                return request.inputs

        self.gate = threading.Event()

        def wait(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
            assert self.gate.wait(60)
            return request.inputs

        def fail(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
            msg = "as it is meant to"
            raise ValueError(msg)

        self.models = ModelRegistry.of(
            [
                Model(name="quick", predict=inner, is_inline=True),
                Model(name="threaded", predict=inner),
                Model(name="later", predict=later),
                Model(name="waits", predict=wait),
                Model(name="fails", predict=fail),
            ]
        )
        self.observer = Telemetry(self.models, tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the spans whose names begin so."""
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()
        assert not self.observer._spans, "they would stay for ever"  # noqa: SLF001
        assert not self.observer._calls, "they would stay for ever"  # noqa: SLF001


@pytest.fixture
def collected() -> Iterator[Collected]:
    collected = Collected()
    yield collected
    collected.close()


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@BACKENDS
@pytest.mark.parametrize("model", ["quick", "threaded", "later"])
def test_spans_continue_the_trace_of_their_client(collected: Collected, backend: str, model: str) -> None:
    """Each request has its own, also when its head is known."""
    parents = [f"{number:016x}" for number in range(1, 4)]
    with (
        server_here(collected.models, backend=backend, observer=collected.observer) as (_, address),
        Wire(address) as wire,
    ):
        for parent in parents:
            answer = wire.send(infer_request(model, f"Traceparent: 00-{TRACE}-{parent}-01")).response()
            assert answer.status == 200
    served, calls, inner = (collected.spans(name) for name in ("POST", "call", "inner"))
    assert [f"{span.parent.span_id:016x}" for span in served if span.parent is not None] == parents
    for span, call, within in zip(served, calls, inner, strict=True):
        assert span.context is not None
        assert call.context is not None
        assert (span.name, span.kind) == ("POST /v2/models/{model}/infer", SpanKind.SERVER)
        assert f"{span.context.trace_id:032x}" == TRACE
        assert (call.name, call.parent) == (f"call {model}", span.context)
        assert within.parent == call.context
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= (call.start_time or 0)
        attributes = _attributes(span)
        assert (attributes["http.response.status_code"], attributes["streamcodec.model.name"]) == (200, model)
        assert (attributes["client.address"], attributes["url.path"]) == ("127.0.0.1", f"/v2/models/{model}/infer")
        parts = [attributes[f"streamcodec.{part}.duration"] for part in ("receive", "wait", "model", "send")]
        assert sum(parts) == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-5)


def test_nothing_of_a_call_stays_in_the_context(collected: Collected) -> None:
    with server_here(collected.models, observer=collected.observer) as (_, address), Wire(address) as wire:
        for model in ("quick", "later", "quick"):
            wire.send(infer_request(model)).response()
    assert len({span.context.trace_id for span in collected.spans("POST") if span.context is not None}) == 3
    assert not get_current_span().get_span_context().is_valid


def test_failures_and_refusals(collected: Collected, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with server_here(collected.models, observer=collected.observer) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("fails")).response().status == 500
        assert wire.send(infer_request("no-such-model")).response().status == 404
        assert wire.send(head("/nowhere?secret", method="BREW")).response().status == 404
        assert wire.send(b"\x16\r\n\r\n").response().status == 400
    failed, unknown, nowhere, broken = (
        span for span in collected.exporter.get_finished_spans() if span.name != "call fails"
    )
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]
    assert _attributes(failed)["error.type"] == "500"
    assert (unknown.name, _attributes(unknown)["error.type"]) == ("POST /v2/models/{model}/infer", "not-found")
    assert "streamcodec.model.name" not in _attributes(unknown)
    assert unknown.status.status_code is StatusCode.UNSET
    assert (nowhere.name, _attributes(nowhere)["url.path"]) == ("_OTHER", "/nowhere")
    assert (broken.name, _attributes(broken)["error.type"]) == ("_OTHER", "invalid-http")


def test_a_call_that_was_given_up_ends_after_its_request(collected: Collected) -> None:
    options = ServerOptions(model_timeout=0.05)
    with server_here(collected.models, options, observer=collected.observer) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("waits")).response().status == 504
        collected.gate.set()
    (served,) = collected.spans("POST")
    assert _attributes(served)["error.type"] == "504"
    end = threading.Event()
    for _ in range(500):
        if collected.spans("call"):
            break
        end.wait(0.01)
    (call,) = collected.spans("call")
    assert call.parent == served.context


def test_metrics(collected: Collected) -> None:
    options = ServerOptions()  # its default budget is what is free when it is made
    with server_here(collected.models, options, observer=collected.observer) as (_, address), Wire(address) as wire:
        for number in range(30):
            wire.send(infer_request("quick"), infer_request(f"unknown-{number}"))
            wire.send(head(f"/{number}", method=f"METHOD{number}"))
            assert [wire.response().status for _ in range(3)] == [200, 404, 404]
        wire.send(head("/v2", method="GET")).response()  # all before it have ended then
        points = collected.points()
    durations = {
        tuple(sorted(point.attributes.items())): point.count for point in points["http.server.request.duration"]
    }
    route = ("http.route", "/v2/models/{model}/infer")
    refused = (("error.type", "not-found"), ("http.request.method", "POST"), ("http.response.status_code", 404), route)
    other = (("error.type", "not-found"), ("http.request.method", "_OTHER"), ("http.response.status_code", 404))
    last = (("http.request.method", "GET"), ("http.response.status_code", 200), ("http.route", "/v2"))
    known = (
        *(("http.request.method", "POST"), ("http.response.status_code", 200), route),
        *(("streamcodec.model.name", "quick"), ("streamcodec.model.version", "1")),
    )
    assert durations.pop(last, 1) == 1, "perhaps it has not ended itself"
    assert durations == {refused: 30, known: 30, other: 30}
    assert {point.attributes["network.io.direction"] for point in points["streamcodec.io"]} == {"receive", "transmit"}
    assert min(point.value for point in points["streamcodec.io"]) > 1000
    assert {gauge.otel for gauge in GAUGES} <= set(points)
    assert points["streamcodec.connections"][0].value == 1
    assert points["streamcodec.memory.max"][0].value == options.max_memory_bytes


def test_what_is_not_sampled_is_not_described(caplog: pytest.LogCaptureFixture) -> None:
    collected = Collected(sampler=ALWAYS_OFF)
    with server_here(collected.models, observer=collected.observer) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("threaded"), GET_LIVE).response().status == 200
        assert wire.response().status == 200
    points = collected.points()
    assert collected.exporter.get_finished_spans() == ()
    assert sum(point.count for point in points["http.server.request.duration"]) == 2
    assert caplog.records == []
    collected.close()


def test_without_an_sdk_nothing_is_recorded() -> None:
    """The global providers do nothing as long as the program has not set its own."""
    models = ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs)])
    with server_here(models, observer=Telemetry(models)) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("m")).response().status == 200


@BACKENDS
def test_spans_tell_the_batch(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    def predict(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        return request.inputs

    models = ModelRegistry.of([Model(name="net", predict=predict, batch=Batch(max_rows=4, max_delay=30.0))])
    collected = Collected()
    observer = Telemetry(models, tracer_provider=collected.tracers, meter_provider=collected.meters)
    with (
        server_here(models, backend=backend, observer=observer) as (_, address),
        Wire(address) as one,
        Wire(address) as other,
    ):
        one.send(infer_request("net", count=2))
        other.send(infer_request("net", count=2))
        assert [wire.response().status for wire in (one, other)] == [200, 200]
    spans = [dict(span.attributes or {}) for span in collected.exporter.get_finished_spans()]
    told = [span for span in spans if "streamcodec.batch.rows" in span]
    names = ("streamcodec.batch.rows", "streamcodec.batch.requests", "streamcodec.batch.reason")
    assert [tuple(span[name] for name in names) for span in told] == [(4, 2, "full")] * 2
    first, second = [span for span in collected.exporter.get_finished_spans() if span.kind is SpanKind.SERVER]
    assert not first.links
    assert [link.context for link in second.links] == [first.context]
    assert not caplog.records
