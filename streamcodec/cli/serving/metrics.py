"""Metrics of `streamcodec serve` and `streamcodec guard`: the options, and who counts requests."""

from __future__ import annotations

import argparse
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from streamcodec.service import ModelRegistry, Observer, Reply, Service, StatisticsObserver

if TYPE_CHECKING:
    from streamcodec.metrics.board import Board

Page = Callable[[], Reply]

_CLOSING_SECONDS: Final = 1.0
"""For the last counts of a worker to be written; they take milliseconds."""


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("metrics")
    group.add_argument(
        "--statistics",
        action="store_true",
        help="count and offer the statistics of models also without the access log; counting costs a small request "
        "nearly as much as the log",
    )
    group.add_argument(
        "--metrics",
        action="store_true",
        help="answer GET /metrics with metrics for Prometheus, of all workers together, and count model statistics; "
        "needs the extra 'prometheus'",
    )
    group.add_argument(
        "--triton-metrics",
        action="store_true",
        help="the same, and also with Triton's names (nv_inference_...), for gateways and dashboards that use them",
    )


def check_metrics(options: argparse.Namespace) -> None:
    """Refuse metrics if they cannot be made."""
    if _wanted(options):
        _check_extra(options)


def counters(
    options: argparse.Namespace, service: Service, logs: Sequence[Observer], board: Board | None = None
) -> list[Observer]:
    """Return the observers of a server: the logs, and who counts. What nobody counts is not offered."""
    if not _wanted(options):
        service.has_statistics = bool(logs or options.statistics)
        return [*logs, StatisticsObserver(service.models)] if service.has_statistics else []
    from streamcodec.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - it needs the extra

    metrics = PrometheusMetrics(service, triton_names=options.triton_metrics, board=board)
    return [*logs, metrics]


@contextmanager
def board_of(options: argparse.Namespace) -> Iterator[Board | None]:
    """Yield the metrics of all workers together; None if nobody asks for any. For the first process."""
    if not _wanted(options):
        yield None
        return
    from streamcodec.metrics.board import Board  # noqa: PLC0415 - it needs the extra

    with closing(Board()) as board:
        yield board


@contextmanager
def published(observers: list[Observer], board: Board | None) -> Iterator[list[Observer]]:
    """Let the pages of other workers show what these observers of a worker count, until the block ends."""
    if board is None:
        yield observers
        return
    from streamcodec.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - it needs the extra

    is_over = threading.Event()
    (metrics,) = (observer for observer in observers if isinstance(observer, PrometheusMetrics))
    thread = threading.Thread(target=metrics.publish, args=(is_over.wait,), name="streamcodec metrics", daemon=True)
    thread.start()
    try:
        yield observers
    finally:
        is_over.set()
        thread.join(_CLOSING_SECONDS)


def add_guard_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the option of the guard."""
    parser.add_argument(
        "--metrics",
        action="store_true",
        help="answer GET /metrics with metrics of the guard for Prometheus, instead of passing it on; needs the extra "
        "'prometheus'",
    )


def guard_counters(options: argparse.Namespace) -> tuple[list[Observer], dict[str, Page]]:
    """Return who counts the requests of a guard, and the page that shows it; both are empty without `--metrics`.

    The guard knows no models, and names come from clients. So requests are counted by status and code only.
    """
    if not options.metrics:
        return [], {}
    _check_extra(options)
    from streamcodec.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - it needs the extra

    metrics = PrometheusMetrics(Service(ModelRegistry()), path=None)
    return [metrics], {"/metrics": metrics.page}


def _check_extra(options: argparse.Namespace) -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        options.fail(
            "--metrics: there is no prometheus_client; install the extra: pip install 'streamcodec[prometheus]'"
        )


def _wanted(options: argparse.Namespace) -> bool:
    return bool(options.metrics or options.triton_metrics)
