"""Prometheus: the page of a server says what has happened, and strangers cannot make it longer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

import numpy.typing as npt
import pytest

pytest.importorskip("prometheus_client", reason="it needs the extra prometheus")

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from streamcodec.cli import main
from streamcodec.metrics.prometheus import PrometheusMetrics
from streamcodec.server import ServerOptions
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, Service, demo_models
from tests.metrics.reading import Samples, ask, scrape
from tests.server.programs import server_here, serving
from tests.server.wire import GET_LIVE, Wire, head, infer_request, post

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
REQUESTS = "streamcodec_requests_total"


def _fail(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    msg = "as it is meant to"
    raise ValueError(msg)


def _models() -> ModelRegistry:
    return ModelRegistry.of(
        [
            Model(name="quick", predict=lambda request: request.inputs, is_inline=True),
            Model(name="threaded", predict=lambda request: request.inputs, versions=("3", '4"\\\n')),
            Model(name="fails", predict=_fail),
        ]
    )


@BACKENDS
def test_the_page_counts_what_was_asked(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    service = Service(_models())
    metrics = PrometheusMetrics(service, triton_names=True)
    sent = {"quick": 5, "threaded": 3, "fails": 2}
    with server_here(service, backend=backend, observer=metrics) as (_, address), Wire(address) as wire:
        received = 0
        for model, count in sent.items():
            for _ in range(count):
                wire.send(infer_request(model)).response()
                received += len(infer_request(model))
        assert wire.send(post(b"x", model="quick")).response().status == 400
        answer = ask(wire)
        samples = Samples(answer.body.decode())
        statistics = wire.send(head("/v2/models/stats", method="GET")).response().document["model_stats"]
    assert answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert samples.sum(REQUESTS, model="quick", version="1", status="200", code="") == 5
    assert samples.sum(REQUESTS, model="quick", status="400", code="invalid-header") == 1
    assert samples.sum(REQUESTS, model="threaded", version='4"\\\n', status="200") == 3  # the newest
    assert samples.sum(REQUESTS, model="fails", status="500", code="") == 2
    assert samples.sum("streamcodec_received_bytes_total") == received + len(post(b"x", model="quick"))
    assert samples.sum("streamcodec_sent_bytes_total", model="threaded") > 300
    name = "streamcodec_request_duration_seconds"
    assert samples.sum(f"{name}_count", model="quick") == samples.sum(f"{name}_bucket", model="quick", le="+Inf") == 6
    assert 0 < samples.sum(f"{name}_sum", model="threaded") < 5
    for each in statistics:
        labels = {"model": each["name"], "version": each["version"]}
        spans = each["inference_stats"]
        assert samples.sum("streamcodec_inferences_total", **labels) == each["inference_count"]
        assert samples.sum("nv_inference_count", **labels) == each["inference_count"]
        assert samples.sum("nv_inference_exec_count", **labels) == each["execution_count"]
        assert samples.sum("nv_inference_request_success", **labels) == spans["success"]["count"]
        assert samples.sum("nv_inference_request_failure", reason="OTHER", **labels) == spans["fail"]["count"]
        assert samples.sum("nv_inference_request_duration_us", **labels) == spans["success"]["ns"] // 1000
        for phase, span in {"receive": "compute_input", "model": "compute_infer", "send": "compute_output"}.items():
            seconds = samples.sum("streamcodec_inference_seconds_total", phase=phase, **labels)
            assert seconds == pytest.approx(spans[span]["ns"] / 1e9)
            assert samples.sum(f"nv_inference_{span}_duration_us", **labels) == spans[span]["ns"] // 1000
        assert samples.sum("streamcodec_last_inference_timestamp_seconds", **labels) == each["last_inference"] / 1000


def test_the_page_is_a_request_itself_and_comes_again() -> None:
    service = Service(_models())
    with server_here(service, observer=PrometheusMetrics(service)) as (_, address), Wire(address) as wire:
        for count in range(1, 4):
            scrape(wire)
            wire.send(head("/metrics", method="HEAD")).response(has_body=False)
            assert scrape(wire).sum(REQUESTS, model="", status="200") == 3 * count - 1


def test_strangers_cannot_make_the_page_longer() -> None:
    service = Service(_models())
    with server_here(service, observer=PrometheusMetrics(service)) as (_, address), Wire(address) as wire:
        lengths = []
        for number in range(25):
            wire.send(infer_request(f"unknown-{number}"), infer_request(f"quick/versions/{number + 2}"))
            wire.send(head(f"/v2/models/quick/{number}", method="GET"), head(f"/{number}", method=f"METHOD{number}"))
            wire.send(infer_request("quick", f"traceparent: {number}", f"x-{number}: {number}"))
            assert [wire.response().status for _ in range(4)] == [404] * 4
            assert wire.response().status == 200
            with Wire(address) as other:
                assert other.send(b"GET /%d HTTP/1.1\r\n\r\n" % number).response().status == 400
            lengths.append(ask(wire).body.count(b"\nstreamcodec_"))
        samples = scrape(wire)
    assert len(set(lengths[5:])) == 1, "each kind has been counted by then"
    assert samples.values("model") == {"", "quick", "threaded", "fails"}
    assert samples.values("version") == {"", "1", "3", '4"\\\n'}
    assert samples.values("status") == {"200", "400", "404"}
    assert samples.values("code") == {"", "not-found", "invalid-http"}


def test_who_asks_all_the_time_takes_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by what a page takes, and by what its client takes."""
    now, made = 100.0, []

    def make(_: CollectorRegistry) -> bytes:
        nonlocal now
        now += 0.028
        made.append(now)
        return b"%d" % len(made)

    monkeypatch.setattr("streamcodec.metrics.prometheus._SHOWN_AGAIN", 10)
    monkeypatch.setattr("streamcodec.metrics.prometheus.perf_counter", lambda: now)
    monkeypatch.setattr("streamcodec.metrics.prometheus.generate_latest", make)
    metrics = PrometheusMetrics(Service(demo_models()))
    for _ in range(10_000):
        assert metrics.page().buffers == (b"%d" % len(made),)
        now += 0.001
    assert 0.08 < len(made) * 0.028 / (now - 100.0) < 0.1


def test_gauges_show_the_load() -> None:
    gate = threading.Event()

    def wait(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        assert gate.wait(60)
        return request.inputs

    service = Service(ModelRegistry.of([Model(name="m", predict=wait)]))
    options = ServerOptions(max_memory_bytes=20_000, max_workers=1)
    with (
        server_here(service, options, observer=PrometheusMetrics(service)) as (server, address),
        Wire(address) as busy,
        Wire(address) as wire,
    ):
        busy.send(infer_request("m", count=2000))
        while (samples := scrape(wire)).sum("streamcodec_threads_busy") == 0:
            pass
        assert samples.sum("streamcodec_connections") == 2
        assert samples.sum("streamcodec_requests_in_progress") >= 1
        assert samples.sum("streamcodec_memory_reserved_bytes") >= 8000
        assert samples.sum("streamcodec_memory_max_bytes") == 20_000
        assert samples.sum("streamcodec_ready") == 1
        gate.set()
        assert busy.response().status == 200
        server._service.is_ready = False  # noqa: SLF001 - as when it stops
        assert scrape(wire).sum("streamcodec_ready") == 0
        assert wire.send(GET_LIVE).response().status == 200


def test_a_registry_of_ones_own_and_no_page() -> None:
    registry = CollectorRegistry()
    Counter("my_images", "Images", registry=registry).inc(7)
    service = Service(demo_models())
    metrics = PrometheusMetrics(service, path=None, registry=registry)
    assert metrics.registry is registry
    (text,) = metrics.page().buffers
    assert isinstance(text, bytes)
    samples = Samples(text.decode())
    assert samples.sum("my_images_total") == 7
    assert not any(name.startswith(("process_", "nv_")) for name in samples.names)
    with server_here(service, observer=metrics) as (_, address), Wire(address) as wire:
        assert wire.send(head("/metrics", method="GET")).response().status == 404


def test_a_registry_that_fails_is_a_page_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    service = Service(demo_models())
    metrics = PrometheusMetrics(service, registry=registry)

    class Failing(Collector):
        def collect(self) -> Iterable[Metric]:
            raise ValueError

    registry.register(Failing())
    with server_here(service, observer=metrics) as (_, address), Wire(address) as wire:
        assert wire.send(head("/metrics", method="GET")).response().status == 500
        assert wire.send(GET_LIVE).response().status == 200
    assert "page /metrics failed" in caplog.messages


def test_the_page_needs_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("streamcodec.cli.serving.metrics.importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--metrics"])
    assert caught.value.code == 2
    assert "pip install 'streamcodec[prometheus]'" in capsys.readouterr().err


@pytest.mark.slow
def test_serve_metrics() -> None:
    """Without the access log, too; and with neither there is no page."""
    for flags, has_page, has_triton in (
        (["--metrics"], True, False),
        (["--triton-metrics"], True, True),
        ([], False, False),
    ):
        with serving(*flags) as program, Wire(program.address) as wire:
            assert wire.send(infer_request()).response().status == 200
            answer = wire.send(head("/metrics", method="GET")).response()
            assert answer.status == (200 if has_page else 404)
            assert (b'\nnv_inference_count{model="identity",version="1"} 1.0\n' in answer.body) is has_triton
            assert (b'\nstreamcodec_inferences_total{model="identity",version="1"} 1.0\n' in answer.body) is has_page
            assert (b"\nprocess_cpu_seconds_total " in answer.body) is has_page


def test_batches_are_counted_by_their_rows() -> None:
    models = ModelRegistry.of([Model(name="net", predict=lambda request: request.inputs, batch=Batch(max_delay=0.0))])
    service = Service(models)
    with server_here(service, observer=PrometheusMetrics(service)) as (_, address), Wire(address) as wire:
        for rows in (1, 3, 3):
            assert wire.send(infer_request("net", count=rows)).response().status == 200
        page = wire.send(head("/metrics", method="GET")).response().body.decode()
    assert 'streamcodec_batch_rows_bucket{le="2",model="net",version="1"} 1.0' in page
    assert 'streamcodec_batch_rows_count{model="net",version="1"} 3.0' in page
    assert 'streamcodec_batch_rows_sum{model="net",version="1"} 7.0' in page
    assert 'streamcodec_batches_total{model="net",reason="delay",version="1"} 3.0' in page
    assert 'streamcodec_batch_wait_seconds_count{model="net",version="1"} 3.0' in page
