"""What it costs to observe small requests: `python -m tests.benchmarks.observed`.

16 floats to `identity` and back. The servers have no observer (two of them: what they differ by is noise), one that
does nothing, statistics, the access log, metrics for Prometheus, and spans and metrics of OpenTelemetry: by its API
alone, and by an SDK without exporters of spans. The last three are left out without their packages. What counts is the
CPU time of the whole process, the log's thread included, for each request. Requests come one after the other on one
connection, or in bursts of 16, one on each of 16 connections. Rounds are short and alternate, and what is compared is
round by round: the machine is shared with the client, which is as busy.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from statistics import median

from streamcodec.server import AccessLog, run, to_descriptor
from streamcodec.service import ModelRegistry, Observer, RequestRecord, Service, StatisticsObserver
from tests.benchmarks import load
from tests.benchmarks.measure import in_turn, print_table, ratios
from tests.benchmarks.models import models
from tests.benchmarks.peers import Running
from tests.processes import announced, cpu_clock

_CONNECTIONS = (1, 16)
_REQUESTS = 1_600
_ROUNDS = 40
_LOG_SECONDS = 0.12
"""For the log's thread to write what it has."""


class _Idle(Observer):
    def request_ended(self, request: RequestRecord) -> None:
        """Do nothing, but be told."""


def _prometheus(service: Service, _: int) -> list[Observer]:
    from streamcodec.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - an extra, as the next

    return [PrometheusMetrics(service)]


def _otel(service: Service, _: int) -> list[Observer]:
    from streamcodec.metrics.otel import Telemetry  # noqa: PLC0415

    return [Telemetry(service.models)]


def _sdk(service: Service, _: int) -> list[Observer]:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    from streamcodec.metrics.otel import Telemetry  # noqa: PLC0415

    meters = MeterProvider([InMemoryMetricReader()])
    return [Telemetry(service.models, tracer_provider=TracerProvider(), meter_provider=meters)]


_OBSERVERS: dict[str, Callable[[Service, int], list[Observer]]] = {
    "none": lambda *_: [],
    "none again": lambda *_: [],
    "idle": lambda *_: [_Idle()],
    "statistics": lambda service, _: [StatisticsObserver(service.models)],
    "log": lambda _, file: [AccessLog(write=to_descriptor(file))],
    "log+statistics": lambda service, file: [
        AccessLog(write=to_descriptor(file)),
        StatisticsObserver(service.models),
    ],
}
if find_spec("prometheus_client"):
    _OBSERVERS["prometheus"] = _prometheus
if find_spec("opentelemetry"):
    _OBSERVERS["otel"] = _otel
    if find_spec("opentelemetry.sdk"):
        _OBSERVERS["otel+sdk"] = _sdk


def serve(name: str) -> None:
    """Serve with the observers of that name; the log goes to standard error."""
    service = Service(ModelRegistry.of(models()))
    observers = _OBSERVERS[name](service, sys.stderr.fileno())
    run(
        service,
        port=0,
        observer=observers,
        on_listening=lambda host, port: print(f"listening on http://{host}:{port}", flush=True),
    )


@contextmanager
def _server(name: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "tests.benchmarks.observed", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            url = announced(process.stdout)
            yield Running(name=name, version="", url=url, pid=process.pid, cpu=cpu_clock(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)


def _seconds(
    server: Running, connections: Sequence[Callable[[], None]], receive: Sequence[Callable[[], object]]
) -> float:
    """Return the CPU time of a request, of some that are sent in bursts."""
    bursts = _REQUESTS // len(connections)
    before = server.cpu()
    for _ in range(bursts):
        for send in connections:
            send()
        for take in receive:
            take()
    time.sleep(_LOG_SECONDS)
    return (server.cpu() - before) / (bursts * len(connections))


def main() -> None:
    """Measure and print."""
    message = load.message_for(64)
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(name)) for name in _OBSERVERS]
        for count in _CONNECTIONS:
            variants = {}
            for server in servers:
                request = load.request_to(server, "identity", message)
                sockets = [stack.enter_context(closing(load.connect(server))) for _ in range(count)]
                sends = [partial(sock.sendall, b"".join([request.head, *request.buffers])) for sock in sockets]
                variants[server.name] = partial(_seconds, server, sends, [partial(load.receive, s) for s in sockets])
            _print(count, in_turn(variants, _ROUNDS))


def _print(count: int, taken: dict[str, list[float]]) -> None:
    print(f"{count} connection{'s'[: count > 1]}: CPU of the server for a request, medians of {_ROUNDS} x {_REQUESTS}")
    rows = []
    for name, seconds in taken.items():
        ratio = median(ratios(seconds, taken["none"]))
        rows.append([name, f"{median(seconds) * 1e6:.1f} µs", f"{min(seconds) * 1e6:.1f} µs", f"{ratio - 1:+.0%}"])
    print_table(["observer", "median", "least", "more"], rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        main()
