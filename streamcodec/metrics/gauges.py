"""Gauges: the names of what a server tells about its load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number of `ServerLoad`."""

    field: str
    """Its name there."""
    prometheus: str
    """Its name for Prometheus; a counter's ends with `_total`."""
    otel: str
    """Its name for OpenTelemetry."""
    unit: str
    """Its unit for OpenTelemetry."""
    text: str
    """What it is."""

    @property
    def is_counter(self) -> bool:
        """Whether it only grows."""
        return self.prometheus.endswith("_total")


GAUGES: Final = (
    Gauge(
        "reserved_bytes",
        "streamcodec_memory_reserved_bytes",
        "streamcodec.memory.reserved",
        "By",
        "Memory granted to requests",
    ),
    Gauge(
        "max_memory_bytes",
        "streamcodec_memory_max_bytes",
        "streamcodec.memory.max",
        "By",
        "The most memory that may be granted to requests (max_memory_bytes)",
    ),
    Gauge(
        "waiting_for_memory",
        "streamcodec_memory_waiting_requests",
        "streamcodec.memory.waiting",
        "{request}",
        "Requests that wait for memory",
    ),
    Gauge(
        "idle_pool_bytes",
        "streamcodec_pool_idle_bytes",
        "streamcodec.pool.idle",
        "By",
        "Memory of the pool that is kept for the next tensors",
    ),
    Gauge(
        "reused_pool_bytes",
        "streamcodec_pool_reused_bytes",
        "streamcodec.pool.reused",
        "By",
        "Memory of the pool that is in use again",
    ),
    Gauge(
        "busy_threads",
        "streamcodec_threads_busy",
        "streamcodec.threads.busy",
        "{thread}",
        "Worker threads in which models run, also given up ones",
    ),
    Gauge(
        "waiting_for_thread",
        "streamcodec_threads_waiting_requests",
        "streamcodec.threads.waiting",
        "{request}",
        "Requests that wait for a worker thread",
    ),
    Gauge(
        "abandoned_calls",
        "streamcodec_abandoned_calls_total",
        "streamcodec.calls.abandoned",
        "{call}",
        "Calls of models that were given up",
    ),
    Gauge(
        "unfinished_calls",
        "streamcodec_unfinished_calls",
        "streamcodec.calls.unfinished",
        "{call}",
        "Calls of models that were given up and still run",
    ),
    Gauge(
        "connections",
        "streamcodec_connections",
        "streamcodec.connections",
        "{connection}",
        "Open connections",
    ),
    Gauge(
        "requests_in_progress",
        "streamcodec_requests_in_progress",
        "streamcodec.requests.in_progress",
        "{request}",
        "Connections with a request in progress",
    ),
)
"""What a framework has is missing there: the last two."""
