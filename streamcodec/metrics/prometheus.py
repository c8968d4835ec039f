"""Prometheus: the metrics of a server as a page that Prometheus reads. It needs the extra `prometheus`.

Requests are counted in plain Python (`streamcodec.metrics.counting`), because the counters of `prometheus_client` take
a lock for each addition. When the page is asked for, the counts become metric families, and `prometheus_client` writes
them. Everything that the same registry has is on the page, so the metrics of models may be there too.

The page has one format, whatever the request accepts. The server answers requests with known heads in one step, and
leaves `Accept` out of what it knows.

Making the page occupies the event loop: 0.7 ms for two models, and 28 ms for 100 models with three statuses each. So
the page is shown again for ten times as long as it took to make it. A client that asks for it all the time gets at most
a tenth of the event loop's time for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from time import perf_counter
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streamcodec.metrics.board import Board
from streamcodec.metrics.counting import BOUNDS, RequestCounts, Series
from streamcodec.metrics.gauges import GAUGES
from streamcodec.service import ModelStatistics, Reply, RequestRecord, ServerLoad, Service, StatisticsObserver

_SHOWN_AGAIN: Final = 10
"""For how many times as long as it took to make it a page is shown again."""

_PUBLISH_SECONDS: Final = 1.0
_PUBLISHED_AGAIN: Final = 100
"""For how many times as long as it took they are not written again for other processes: a hundredth of the time."""

_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MODEL: Final = ("model", "version")
_BOUND_TEXTS: Final = (*map(str, BOUNDS), "+Inf")

_ROW_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_PHASES: Final = (
    ("receive", "compute_input"),
    ("wait", "queue"),
    ("model", "compute_infer"),
    ("send", "compute_output"),
)
"""The parts of a request's time, with their names in the statistics of Triton."""

_TRITON_TIMES: Final = (
    ("nv_inference_request_duration_us", "success", "Time of successful requests"),
    ("nv_inference_queue_duration_us", "queue", "Time in which they waited"),
    ("nv_inference_compute_input_duration_us", "compute_input", "Time in which they were received"),
    ("nv_inference_compute_infer_duration_us", "compute_infer", "Time in their models"),
    ("nv_inference_compute_output_duration_us", "compute_output", "Time in which their answers were sent"),
)
"""Triton's sums of times, in microseconds, with the names of its statistics."""


class PrometheusMetrics(StatisticsObserver):
    """An observer with the metrics of one server, and the page that shows them.

    It also counts what `StatisticsObserver` counts. So do not give the server both.

    Example:
        >>> from streamcodec.service import Service, demo_models
        >>> service = Service(demo_models())
        >>> metrics = PrometheusMetrics(service)  # for run(service, observer=metrics)
        >>> metrics.page().status
        200

    Attributes:
        registry: has these metrics; by default also the CPU time, the memory and the files of the process.
    """

    def __init__(
        self,
        service: Service,
        *,
        path: str | None = "/metrics",
        triton_names: bool = False,
        registry: CollectorRegistry | None = None,
        board: Board | None = None,
    ) -> None:
        """Count from now on, and add the page to the service.

        Args:
            service: whose requests are counted.
            path: of the page; None for no page, if another program shows the registry, as `start_http_server` of
                `prometheus_client` does on a port of its own.
            triton_names: whether the page also has Triton's names (`nv_inference_...`).
            registry: collects; by default a new one.
            board: of all processes that serve together, so that the page shows all of them; see `publish`.

        Raises:
            LocalProtocolError: the service already has a page with this path.
            ValueError: the registry already has such metrics.
        """
        super().__init__(service.models)
        self._service = service
        self._counts = RequestCounts(service.models)
        self._has_triton_names = triton_names
        self._load: Callable[[], ServerLoad] | None = None
        self._text = b""
        self._is_new_until = 0.0
        if registry is None:
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
        self.registry: CollectorRegistry = registry
        self._board = board
        if path is not None:
            service.add_page(path, self.page)
        registry.register(_Families(self._collect))

    def page(self) -> Reply:
        """Return all metrics of the registry in the text format of Prometheus, version 0.0.4.

        The text is made again when ten times as much time has passed as it took to make it.
        """
        begun = perf_counter()
        if begun >= self._is_new_until:
            self._text = generate_latest(self._shown())
            made = perf_counter()
            self._is_new_until = made + _SHOWN_AGAIN * (made - begun)
        headers = (("Content-Type", _MEDIA_TYPE), ("Cache-Control", "no-store"))
        return Reply(status=200, headers=headers, buffers=(self._text,), body_length=len(self._text))

    def publish(self, is_over: Callable[[float], bool]) -> None:
        """Write the metrics for the pages of other processes, until this one ends; for a thread.

        Args:
            is_over: waits for so many seconds, and says whether this process ends. Then they are written once more.
        """
        has_ended = False
        while self._board is not None:
            begun = perf_counter()
            self._board.publish(self.registry.collect())
            if has_ended:
                return
            has_ended = is_over(max(_PUBLISH_SECONDS, _PUBLISHED_AGAIN * (perf_counter() - begun)))

    def _shown(self) -> CollectorRegistry:
        """Return what the page shows: of this process, or of all."""
        if self._board is None:
            return self.registry
        self._board.publish(self.registry.collect())
        everything = CollectorRegistry()
        everything.register(_Families(partial(iter, self._board.collect())))
        return everything

    def server_begun(self, load: Callable[[], ServerLoad]) -> None:
        """Take the gauges from this server."""
        self._load = load

    def request_ended(self, request: RequestRecord) -> None:
        """Count a request."""
        self._counts.add(request)
        super().request_ended(request)

    def _collect(self) -> Iterator[Metric]:
        """Yield the metric families; the registry calls this, in any thread."""
        yield from _request_families(self._counts)
        yield from _batch_families(self._counts)
        statistics = [
            ((offer.model.name, version), counted)
            for offer in self._service.models.offers
            for version, counted in offer.statistics.items()
        ]
        yield from _model_families(statistics)
        if self._has_triton_names:
            yield from _triton_families(statistics)
        yield GaugeMetricFamily("streamcodec_ready", "1, or 0 if the server stops", float(self._service.is_ready))
        if self._load is not None:
            yield from _load_families(self._load())


class _Families(Collector):
    """Makes metric families when the registry asks for them."""

    def __init__(self, make: Callable[[], Iterator[Metric]]) -> None:
        self._make = make

    def collect(self) -> Iterator[Metric]:
        return self._make()


_Statistics = Iterable[tuple[tuple[str, str], ModelStatistics]]


def _request_families(counts: RequestCounts) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "streamcodec_requests",
        "Requests that have ended",
        labels=(*_MODEL, "status", "code"),
    )
    received = CounterMetricFamily("streamcodec_received_bytes", "Bytes of requests, with their heads", labels=_MODEL)
    sent = CounterMetricFamily("streamcodec_sent_bytes", "Bytes of answers, with their heads", labels=_MODEL)
    durations = HistogramMetricFamily(
        "streamcodec_request_duration_seconds",
        "From the first bytes of a request until its answer was given to the system",
        labels=_MODEL,
    )
    of_model: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for labels, series in counts.current():
        requests.add_metric(labels, series.count)
        of_model[labels.model, labels.version].append(series)
    for model, group in of_model.items():
        received.add_metric(model, sum(series.bytes_in for series in group))
        sent.add_metric(model, sum(series.bytes_out for series in group))
        numbers = accumulate(map(sum, zip(*(series.durations for series in group), strict=True)))
        buckets = list(zip(_BOUND_TEXTS, map(float, numbers), strict=True))
        durations.add_metric(model, buckets, sum(series.seconds for series in group))
    yield from (requests, received, sent, durations)


def _batch_families(counts: RequestCounts) -> Iterator[Metric]:
    closed = CounterMetricFamily(
        "streamcodec_batches",
        "Batches, by why they were closed: full, a preferred number of rows, or the delay",
        labels=(*_MODEL, "reason"),
    )
    waits = HistogramMetricFamily(
        "streamcodec_batch_wait_seconds", "How long a request has waited for its batch", labels=_MODEL
    )
    for model, batches in counts.batches():
        for reason, count in batches.reasons.items():
            closed.add_metric((*model, reason), count)
        buckets = list(zip(_BOUND_TEXTS, map(float, accumulate(batches.waits)), strict=True))
        waits.add_metric(model, buckets, batches.seconds)
    yield from (closed, waits)


def _model_families(statistics: _Statistics) -> Iterator[Metric]:
    successes = CounterMetricFamily("streamcodec_inferences", "Inferences answered with status 200", labels=_MODEL)
    seconds = CounterMetricFamily(
        "streamcodec_inference_seconds",
        "Time of these inferences: received, waiting for memory or a thread, in the model, sent",
        labels=(*_MODEL, "phase"),
    )
    last = GaugeMetricFamily(
        "streamcodec_last_inference_timestamp_seconds", "When the last of them ended, since 1970", labels=_MODEL
    )
    batches = HistogramMetricFamily("streamcodec_batch_rows", "Rows of each call of models with batches", labels=_MODEL)
    for model, counted in statistics:
        document = counted.document(*model)
        successes.add_metric(model, document["inference_count"])
        for phase, name in _PHASES:
            seconds.add_metric((*model, phase), document["inference_stats"][name]["ns"] / 1e9)
        last.add_metric(model, document["last_inference"] / 1e3)
        if document["batch_stats"]:
            batches.add_metric(model, *_rows_of(document["batch_stats"]))
    yield from (successes, seconds, last, batches)


def _rows_of(batches: Iterable[dict[str, Any]]) -> tuple[list[tuple[str, float]], float]:
    """Return how many batches had up to so many rows, and the rows of all."""
    counted = [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in batches]
    buckets = [(str(bound), sum([count for rows, count in counted if rows <= bound])) for bound in _ROW_BOUNDS]
    return [*buckets, ("+Inf", sum([count for _, count in counted]))], sum([rows * count for rows, count in counted])


def _triton_families(statistics: _Statistics) -> Iterator[Metric]:
    """Yield what Triton shows. Its counters have no `_total`, which this format allows only for untyped metrics."""
    success = Metric("nv_inference_request_success", "Successful requests", "unknown")
    failure = Metric("nv_inference_request_failure", "Failed requests", "unknown")
    inferences = Metric("nv_inference_count", "Inferences; a batch is one", "unknown")
    executions = Metric("nv_inference_exec_count", "Calls of models that succeeded", "unknown")
    times = [(Metric(name, text, "unknown"), key) for name, key, text in _TRITON_TIMES]
    for (name, version), counted in statistics:
        labels = {"model": name, "version": version}
        document = counted.document(name, version)
        spans = document["inference_stats"]
        success.add_sample(success.name, labels, spans["success"]["count"])
        failure.add_sample(failure.name, {**labels, "reason": "OTHER"}, spans["fail"]["count"])
        inferences.add_sample(inferences.name, labels, document["inference_count"])
        executions.add_sample(executions.name, labels, document["execution_count"])
        for metric, key in times:
            metric.add_sample(metric.name, labels, spans[key]["ns"] // 1000)
    yield from (success, failure, inferences, executions, *(metric for metric, _ in times))


def _load_families(load: ServerLoad) -> Iterator[Metric]:
    for gauge in GAUGES:
        value = getattr(load, gauge.field)
        if value is not None:
            family = CounterMetricFamily if gauge.is_counter else GaugeMetricFamily
            yield family(gauge.prometheus, gauge.text, value)
