"""A tensor over loopback into its array: how near does the library come to what the system can do at all?

The yardstick is a bare `recv_into` loop into the same kind of memory (under anyio: with the same wait before each read;
as a protocol of asyncio: a bare `BufferedProtocol`). It gets the same bytes from the same sender, a whole HTTP request,
but knows beforehand where the tensor starts and how long it is. Without the head in front, the tensor would lie on the
borders of pages in the system's buffers as it does in the array, which the system copies faster, and which no HTTP
message can have.

A bare loop takes all there is with each read. Under an event loop, streamcodec reads at most 64 KiB at once, so the
bytes are still in the processor's cache, and it can be the faster one. A blocking driver reads at most 1 MiB at once.
The rows "blocking" below were measured with reads of 64 KiB.

Both sides of a pair take turns. Memory is in the same state on both: *reused* has been written to before, *fresh* is
newly allocated in every round, and its pages cost more than the copying. CPU is that of the receiving thread.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from streamcodec import Tensor, encode_request
from streamcodec.engine.memory.placement import aligned_bytes
from streamcodec.http import ClientConnection
from streamcodec.transports import sync
from tests.benchmarks.figures import MIB, OURS, Chart, Figures, Options, Scenario, at_least, at_most
from tests.benchmarks.measure import Sample, in_turn, ratios
from tests.benchmarks.receivers import PAIRS, Array, Pair

_BARE = "bare"


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    sizes = {"64 MiB": (64 * MIB, options.choose(25, 5))}
    if not options.is_quick:
        sizes["1 GiB"] = (1024 * MIB, 7)
    for size, (nbytes, rounds) in sizes.items():
        reused = np.full(nbytes, 1, np.uint8)
        start = sum(map(len, _request_for(reused)[:-1]))
        with _sender(nbytes) as address:
            for way, pair in PAIRS.items():
                for state, array in (("reused", reused), ("fresh", None)):
                    variants = _variants(pair, address, start, nbytes, array)
                    _report(found, f"{size}, {way}, {state}", in_turn(variants, rounds), nbytes)
    found.charts.append(Chart(quantity="throughput", title="A tensor into its array, over loopback"))
    return found


def _variants(
    pair: Pair, address: tuple[str, int], start: int, nbytes: int, array: Array | None
) -> dict[str, Callable[[], Sample]]:
    def bare(sock: socket.socket) -> object:
        return pair.bare(sock, start, np.empty(nbytes, np.uint8) if array is None else array)

    def ours(sock: socket.socket) -> object:
        return pair.ours(sock, array)

    return {_BARE: partial(pair.timed, address, bare), OURS: partial(pair.timed, address, ours)}


def _report(found: Figures, case: str, samples: dict[str, list[Sample]], nbytes: int) -> None:
    for name, taken in samples.items():
        found.add(case, "throughput", name, "B/s", [nbytes / sample.wall for sample in taken])
    for name, taken in samples.items():
        found.add(case, "CPU per byte", name, "s/B", [sample.cpu / nbytes for sample in taken])
    bare, ours = samples[_BARE], samples[OURS]
    who = f"{OURS} / {_BARE}"
    speeds = ratios([sample.wall for sample in bare], [sample.wall for sample in ours])
    found.add(case, "throughput, ratio", who, "ratio", speeds, bound=at_least(0.95))
    costs = ratios([sample.cpu for sample in ours], [sample.cpu for sample in bare])
    found.add(case, "CPU, ratio", who, "ratio", costs, bound=at_most(1.10))


def _request_for(tensor: Array) -> list[bytes | memoryview]:
    """Return a whole HTTP request, as the client would send it."""
    message = encode_request([Tensor(name="x", array=tensor)])
    fields = [("Host", "localhost"), *message.headers]
    return list(ClientConnection().send_request("POST", "/v2/models/sink/infer", fields, message.buffers))


@contextmanager
def _sender(nbytes: int) -> Iterator[tuple[str, int]]:
    """Run a process that sends the request to everyone who asks; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
        process = multiprocessing.get_context("fork").Process(target=_send, args=(listener, nbytes), daemon=True)
        process.start()
        try:
            yield address
        finally:
            with socket.create_connection(address) as sock:
                sock.sendall(b"!")
            process.join()


def _send(listener: socket.socket, nbytes: int) -> None:
    tensor = aligned_bytes(nbytes)
    tensor[:] = 1
    request = _request_for(tensor)
    while True:
        sock, _ = listener.accept()
        with sock:
            if sock.recv(1) != b"?":
                return
            sync.send(sock, request)
            sock.recv(1)  # the receiver closes first


SCENARIO = Scenario(title="A tensor into its array", about=__doc__, run=run)
