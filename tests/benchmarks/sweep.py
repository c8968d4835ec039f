"""All sizes: a tensor to `identity` and to `sink`, from 64 bytes to 64 MiB, next to Triton.

The ratio is Triton's time by ours for one connection, and our requests per second by Triton's for 16. So more than 1
means that ours is quicker. With one connection, the client is the raw socket of the scenarios below. 16 connections are
those of wrk, which has one thread and copies every answer; above some MiB it is wrk that is measured, so sizes end at
4 MiB there. A *changing* head has a new `traceparent` in its HTTP head and a new `id` in its JSON with each request.

`default` is `identity` as the default model: a function that may run in a thread. Triton has the same model for both.

Ours is one process with one thread, Triton may use all cores. Both are asked by turns, in short blocks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count as count_up
from itertools import cycle, repeat
from statistics import median
from typing import Final

from streamcodec import EncodedMessage, Tensor, encode_request
from tests.benchmarks import load, requests, wrk
from tests.benchmarks.figures import DEFAULT_TOO, MIB, OURS, Chart, Figures, Options, Scenario, at_least
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import TRITON, Missing, Running, tool

KIB: Final = 1 << 10
_SIZES: Final = {
    "64 B": 64,
    "4 KiB": 4 * KIB,
    "16 KiB": 16 * KIB,
    "64 KiB": 64 * KIB,
    "128 KiB": 128 * KIB,
    "256 KiB": 256 * KIB,
    "600 KB": 602_112,
    "1 MiB": MIB,
    "4 MiB": 4 * MIB,
    "16 MiB": 16 * MIB,
    "64 MiB": 64 * MIB,
}
_MOST_BY_WRK: Final = 4 * MIB
_HEADS: Final = {"constant": at_least(1.2), "changing": at_least(1.0)}
_MODELS: Final = ("identity", "sink", "default")
_BLOCK_BYTES: Final = 8 * MIB
_MOST_IN_BLOCK: Final = 40


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON], found.missing)]
    found.name(servers)
    for server in servers:
        load.check(server)
    _sweep(found, servers, 1, _SIZES, lambda case: _alone(servers, case, rounds=options.choose(16, 4)))
    try:
        program = tool("wrk", "wrk")
    except Missing as reason:
        found.missing.append(str(reason))
    else:
        sizes = {name: nbytes for name, nbytes in _SIZES.items() if nbytes <= _MOST_BY_WRK}
        _sweep(found, servers, 16, sizes, lambda case: _together(program, options, servers, case))
    for connections, title in ((1, "Triton's time by ours, one connection"), (16, "and 16 connections at once")):
        found.charts.append(Chart(quantity=_ratio_over(connections), title=title, is_curve=True))
    return found


def _ratio_over(connections: int) -> str:
    return f"times as fast, {connections} connection{'s'[: connections > 1]}"


Measured = dict[str, list[float]]
"""Seconds per request, by the name of the server."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request."""

    model: str
    head: str
    nbytes: int
    """Of the tensor."""


def _sweep(
    found: Figures,
    servers: Sequence[Running],
    connections: int,
    sizes: dict[str, int],
    measure: Callable[[Case], Measured],
) -> None:
    """Measure each model and head with all sizes, and report seconds and ratios."""
    for model in _MODELS:
        for head, bound in _HEADS.items():
            way = f"{model}, {head} head"
            quantity = f"seconds per request over {connections}: {way}"
            for size, nbytes in sizes.items():
                seconds = measure(Case(model, head, nbytes))
                for server in servers:
                    found.add(size, quantity, server.name, "s", seconds[server.name])
                if TRITON in seconds:
                    faster = ratios(seconds[TRITON], seconds[OURS])
                    found.add(size, _ratio_over(connections), way, "ratio", faster, bound=bound)


def _alone(servers: Sequence[Running], case: Case, *, rounds: int) -> Measured:
    """Send blocks of requests by one connection at a time to each server; the time of a block is its median."""
    count = max(1, min(_MOST_IN_BLOCK, _BLOCK_BYTES // case.nbytes))
    with ExitStack() as stack:
        blocks = {}
        for server in servers:
            sockets = [stack.enter_context(load.connect(server)) for _ in range(load.CONNECTIONS)]
            blocks[server.name] = partial(_send_block, cycle(sockets), _requests(server, case, count))
        return in_turn(blocks, rounds)


def _send_block(sockets: Iterator[socket.socket], requests: Iterator[Sequence[load.Request]]) -> float:
    sock = next(sockets)
    return median(_timed(sock, request) for request in next(requests))


def _timed(sock: socket.socket, request: load.Request) -> float:
    """Return the seconds of one request. Nothing else is measured, so that the next one follows at once."""
    began = time.perf_counter()
    load.send(sock, request)
    answer = load.receive(sock)
    seconds = time.perf_counter() - began
    if answer.status != HTTPStatus.OK:
        msg = f"a request was answered with status {answer.status}"
        raise RuntimeError(msg)
    return seconds


def _requests(server: Running, case: Case, count: int) -> Iterator[Sequence[load.Request]]:
    """Yield the requests of one block after the other. All share the memory of one tensor."""
    tensors = [Tensor(name="x", array=load.floats(case.nbytes))]
    parameters = {"binary_data_output": True}
    if case.head == "constant":
        message = encode_request(tensors, parameters=parameters)
        yield from repeat([load.request_to(server, case.model, message)] * count)
    for block in count_up(0):
        yield [
            _traced(
                server, case.model, encode_request(tensors, parameters=parameters, request_id=f"{number:016x}"), number
            )
            for number in range(block * count, (block + 1) * count)
        ]


def _traced(server: Running, model: str, message: EncodedMessage, number: int) -> load.Request:
    fields = [*message.headers, ("traceparent", f"00-{number:032x}-0123456789abcdef-01")]
    return load.Request(load.head_of(server, model, fields), message.buffers)


def _together(program: str, options: Options, servers: Sequence[Running], case: Case) -> Measured:
    """Send requests by 16 connections at once, to one server after the other."""
    request = requests.floats(case.nbytes, model=case.model, is_new=case.head == "changing")
    file = wrk.write(options.work, [request])
    variants = {server.name: partial(wrk.run, program, server, file, connections=16, seconds=1) for server in servers}
    runs = in_turn(variants, options.choose(5, 2))
    return {name: [1 / run.rate for run in taken] for name, taken in runs.items()}


SCENARIO = Scenario(title="All sizes", about=__doc__, run=run, served=DEFAULT_TOO)
