"""Metrics of `streamcodec serve` and `streamcodec guard`: the options, and who counts requests."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence

from streamcodec.service import ModelRegistry, Observer, Reply, Service, StatisticsObserver

Page = Callable[[], Reply]


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
        help="answer GET /metrics with metrics for Prometheus, and count model statistics; needs the extra "
        "'prometheus', and one process",
    )
    group.add_argument(
        "--triton-metrics",
        action="store_true",
        help="the same, and also with Triton's names (nv_inference_...), for gateways and dashboards that use them",
    )


def check_metrics(options: argparse.Namespace) -> None:
    """Refuse metrics if they would be wrong, or cannot be made."""
    if not _wanted(options):
        return
    _check_extra(options)
    if options.workers > 1:
        options.fail(
            "--metrics: not together with --workers; each process would count its own requests, and Prometheus "
            "would reach another one each time; run one server on each port instead"
        )


def counters(options: argparse.Namespace, service: Service, logs: Sequence[Observer]) -> list[Observer]:
    """Return the observers of a server: the logs, and who counts. What nobody counts is not offered."""
    if not _wanted(options):
        service.has_statistics = bool(logs or options.statistics)
        return [*logs, StatisticsObserver(service.models)] if service.has_statistics else []
    from streamcodec.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - it needs the extra

    return [*logs, PrometheusMetrics(service, triton_names=options.triton_metrics)]


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
