"""`streamcodec bench`: measures how quickly a server answers."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from streamcodec import __version__
from streamcodec.cli.arguments import checked, count, judged, rate, seconds, seconds_or_0
from streamcodec.cli.benching.batches import batch_sizes
from streamcodec.cli.benching.plan import LoadPlan
from streamcodec.cli.benching.plot import check_plot, draw
from streamcodec.cli.benching.report import Row, document, heading, remarks, row_line
from streamcodec.cli.benching.running import Stop, run_plan, stopping
from streamcodec.cli.fields import add_header
from streamcodec.cli.files import check_writable, write
from streamcodec.cli.inferring.inputs import add_inputs, made_inputs
from streamcodec.cli.inferring.making import add_making
from streamcodec.cli.inferring.request import WholeRequest, whole_request
from streamcodec.cli.inferring.trust import add_trust, trusted
from streamcodec.cli.output import say
from streamcodec.client import Client
from streamcodec.client.connections.address import Address
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.message import datatype_of_values
from streamcodec.transports.tls.sockets import client_context

_CLOSED: Final = (1, 4, 16)
_OPEN: Final = (64,)
"""Connections, if the user does not say how many."""

_MAX_CONNECTIONS: Final = 4096

_DESCRIPTION = """\
Measure how many requests per second a model of any V2 server answers, and how long the answers take. The same request
is sent again and again, with random values that fit the model's metadata, or with arrays from files. Before that, one
request is made and its answer is checked.

Without --rate (closed loop), each connection sends its next request when the last one is answered. This finds the
highest throughput. But a slow server is then asked less often, so that its pauses are in few of the latencies.

With --rate (open loop), requests are due at regular times, whatever the server does. Each latency counts from the time
when the request was due, even if it had to wait for a connection. This is what users of a service would see.
"""

_EPILOG: Final = """\
examples:
  streamcodec bench http://127.0.0.1:8000 --model net
  streamcodec bench http://127.0.0.1:8000 --model net --shape image:8,3,224,224 --concurrency 1,2,4,8
  streamcodec bench http://127.0.0.1:8000 --model net --rate 500 --duration 60 --plot latency.svg
  streamcodec bench http://127.0.0.1:8000 --model identity --shape x:FP32:1,16 --json - | jq '.runs[].latency'

Requests per second count the answers with status 200; latencies are of these. MiB/s include the heads of HTTP. If the
server has statistics of the model, the rows of its batches are shown, the warm-up included. Ctrl-C ends the
measurement, and shows what was measured until then. If a request has failed, the exit status is 1. The client says if
it was itself too slow; then give it more --processes, or another machine than that of the server.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("url", type=checked(Address.of), metavar="URL", help="of the server, as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, metavar="MODEL", help="name of the model")
    _add_load(parser)
    group = parser.add_argument_group("request")
    add_inputs(group)
    group.add_argument("--model-version", metavar="VERSION", help="of the model (default: the server's choice)")
    group.add_argument(
        "--tensors", choices=("binary", "json"), default="binary", help="form of tensors (default: %(default)s)"
    )
    add_header(group)
    add_trust(group)
    add_making(parser.add_argument_group("random inputs", "Floats are from 0 to 1, integers from 0 to 99."))
    group = parser.add_argument_group("results")
    group.add_argument("--json", metavar="FILE", help="write the results for programs; - for standard output")
    group.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.svg",
        help="draw throughput and latencies; needs matplotlib (the extra plot), and also writes .png and .pdf",
    )
    parser.set_defaults(run=run)


def _add_load(parser: argparse.ArgumentParser) -> None:
    """Add the options about how much is sent."""
    group = parser.add_argument_group("load")
    group.add_argument(
        "--concurrency",
        type=_counts,
        metavar="COUNT,...",
        help="connections, and so requests at once; a run for each "
        f"(default: {','.join(map(str, _CLOSED))}; with --rate {','.join(map(str, _OPEN))})",
    )
    group.add_argument(
        "--rate", dest="rates", type=_rates, metavar="RATE,...", help="requests per second (open loop); a run for each"
    )
    group.add_argument("--duration", type=seconds, default=10.0, help="seconds of each run (default: %(default)g)")
    group.add_argument(
        "--warmup", type=seconds_or_0, default=1.0, help="seconds before each run that do not count (default: 1)"
    )
    group.add_argument(
        "--processes", type=count, default=1, metavar="COUNT", help="of the client (default: %(default)s)"
    )
    group.add_argument(
        "--timeout", type=seconds, default=60.0, help="seconds until an answer is an error (default: %(default)g)"
    )


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    if options.plot is not None:
        with judged(options):
            check_plot(options.plot)
    for path in _paths(options):  # before anything is sent, because the run may not be repeatable
        check_writable(path, replaces=True)
    with _client(options) as client:  # and the model is to accept them
        inputs = made_inputs(options, client)
        client.infer(options.model, inputs, version=options.model_version, is_binary=options.tensors == "binary")
    request = whole_request(
        options.url,
        options.model,
        inputs,
        version=options.model_version,
        is_binary=options.tensors == "binary",
        headers=options.headers,
    )
    with stopping() as stop:
        rows = _shown_rows(options, request, inputs, stop)
    _write(options, rows, inputs)
    if stop.is_set():
        raise KeyboardInterrupt
    if errors := sum(row.measured.errors.total() for row in rows):
        requests = errors + sum(row.measured.latencies.count for row in rows)
        raise LocalProtocolError(f"{errors} of {requests} requests failed")


def _paths(options: argparse.Namespace) -> list[Path]:
    """Return the files that are wanted."""
    return [Path(path) for path in (options.json, options.plot) if path not in {None, "-"}]


def _client(options: argparse.Namespace) -> Client:
    return Client(options.url, headers=options.headers, timeout=options.timeout, ssl_context=trusted(options))


def _batches(options: argparse.Namespace) -> Counter[int]:
    """Return the calls of the model so far, by their rows."""
    with _client(options) as client:
        return batch_sizes(client, options.model, options.model_version)


def _shown_rows(
    options: argparse.Namespace, request: WholeRequest, inputs: Mapping[str, np.ndarray[Any, Any]], stop: Stop
) -> list[Row]:
    """Run after run, each shown when it has ended."""
    shows = options.json != "-"
    if shows:
        say(f"{_title(options, inputs)}", "", heading())
    rows = []
    for concurrency, due, plan in _plans(options, request):
        before = _batches(options)
        measured = run_plan(plan, options.processes, stop)
        sizes = _batches(options) - before
        rows.append(Row(concurrency=concurrency, rate=due, measured=measured, batches=sizes))
        if shows:
            say(row_line(rows[-1]))
        if stop.is_set():
            break
    if shows and (lines := [line for row in rows for line in remarks(row)]):
        say("", *lines)
    return rows


def _plans(options: argparse.Namespace, request: WholeRequest) -> Iterator[tuple[int, float | None, LoadPlan]]:
    """Yield connections, rate and plan of each run."""
    address = request.address
    whole = b"".join([request.head, *request.body])
    context = (trusted(options) or client_context()) if address.is_secure else None
    for due in options.rates or (None,):
        for concurrency in options.concurrency or (_CLOSED if due is None else _OPEN):
            plan = LoadPlan(
                host=address.host,
                port=address.port,
                context=context,
                request=whole,
                concurrency=concurrency,
                rate=due,
                warmup=options.warmup,
                duration=options.duration,
                timeout=options.timeout,
                socket_path=address.socket_path,
            )
            yield concurrency, due, plan


def _write(options: argparse.Namespace, rows: Sequence[Row], inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the files, as far as they are wanted."""
    if options.json is not None:
        whole = {
            "streamcodec": __version__,
            "url": options.url,
            "model": options.model,
            "tensors": options.tensors,
            "inputs": [_described(name, array) for name, array in inputs.items()],
            "runs": [document(row) for row in rows],
        }
        text = json.dumps(whole, indent=1) + "\n"
        if options.json == "-":
            print(text, end="", flush=True)
        else:
            write(Path(options.json), lambda file: file.write(text.encode()), replaces=True)
    if options.plot is not None:
        draw(rows, _title(options, inputs), options.plot)


def _title(options: argparse.Namespace, inputs: Mapping[str, np.ndarray[Any, Any]]) -> str:
    described = [_described(name, array) for name, array in inputs.items()]
    shown = ", ".join(f"{each['name']} {each['datatype']} {each['shape']}" for each in described)
    return f"{options.model}: {shown}; {options.tensors}, {options.duration:g} s for each run"


def _described(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype_of_values(array).name, "shape": [*array.shape]}


def _counts(text: str) -> list[int]:
    found = [count(word) for word in text.split(",")]
    if max(found) > _MAX_CONNECTIONS:
        raise argparse.ArgumentTypeError(f"more than {_MAX_CONNECTIONS} connections are not supported")
    return found


def _rates(text: str) -> list[float]:
    return [rate(word) for word in text.split(",")]
