"""A tensor over loopback into its array: `python -m tests.benchmarks.ingest [--mib 64] [--rounds 15]`.

How near does the library come to what the system can do at all? The yardstick is a bare `recv_into` loop into the same
kind of memory. It gets the same bytes from the same sender, a whole HTTP request, but knows beforehand where the tensor
starts and how long it is. (Without the head in front, the tensor would lie on the borders of pages in the system's
buffers as it does in the array, which the system copies faster, and which no HTTP message can have.)

Both sides of a pair take turns within one run. Memory is in the same state on both: `reused` has been written to
before, `fresh` is newly allocated in every round, and its pages cost more than the copying.

Asked for: at least 0.90 of the yardstick's speed, at most 1.15 of its receiver CPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import numpy as np
import numpy.typing as npt

from streamcodec import EndOfMessage, Into, Tensor, TensorSpec, encode_request, new_array, request_decoder
from streamcodec.core.placement import Placement, aligned_bytes
from streamcodec.http import ClientConnection, RequestHead, ServerConnection
from streamcodec.transports import aio, sync
from tests.benchmarks.measure import Sample, interleaved, print_table

_Array = npt.NDArray[np.uint8]


def request_for(tensor: _Array) -> list[bytes | memoryview]:
    """Return a whole HTTP request, as the client would send it."""
    message = encode_request([Tensor(name="x", array=tensor)])
    fields = [("Host", "localhost"), *message.headers]
    return ClientConnection().send_request("POST", "/v2/models/sink/infer", fields, message.buffers)


def send_for_ever(listener: socket.socket, nbytes: int) -> None:
    """Send the request to everyone who asks with one byte; runs in a process of its own."""
    tensor = aligned_bytes(nbytes)
    tensor[:] = 1
    request = request_for(tensor)
    while True:
        sock, _ = listener.accept()
        with sock:
            if sock.recv(1) != b"?":
                return
            sync.send(sock, request)
            sock.recv(1)  # the receiver closes first


def receive_bare(sock: socket.socket, start: int, array: _Array) -> None:
    """Do nothing but receive: the yardstick."""
    for view in (memoryview(bytearray(start)), array.data):
        position = 0
        while position < len(view):
            position += sock.recv_into(view[position:])


async def receive_bare_async(sock: socket.socket, start: int, array: _Array) -> None:
    """Do nothing but receive, and let other tasks run meanwhile: the yardstick under anyio."""
    for view in (memoryview(bytearray(start)), array.data):
        position = 0
        while position < len(view):
            await anyio.wait_readable(sock)
            position += sock.recv_into(view[position:])


def begin(head: object, connection: ServerConnection, array: _Array | None) -> None:
    """Let the body of the request that has come into the array, or into a new one."""
    assert isinstance(head, RequestHead)

    def place(spec: TensorSpec) -> Placement:
        return new_array(spec) if array is None else Into(array)

    decoder = request_decoder(header_length=head.fields.header_length, body_length=head.body_length, place=place)
    connection.receive_body(decoder)


def receive(sock: socket.socket, array: _Array | None) -> None:
    """Receive the request by the blocking transport."""
    connection = ServerConnection()
    begin(sync.next_event(sock, connection), connection, array)
    while not isinstance(sync.next_event(sock, connection), EndOfMessage):
        pass


async def receive_async(sock: socket.socket, array: _Array | None) -> None:
    """Receive the request by the asynchronous transport, with a time limit on every wait as in the server."""
    connection = ServerConnection()
    begin(await aio.next_event(sock, connection, timeout=30), connection, array)
    while not isinstance(await aio.next_event(sock, connection, timeout=30), EndOfMessage):
        pass


def timed_connection(address: tuple[str, int], work: Callable[[socket.socket], None]) -> Sample:
    """Time the receiving alone: not the connection, and not the sender's start."""
    with socket.create_connection(address) as sock:
        sock.sendall(b"?")
        cpu, wall = time.thread_time(), time.perf_counter()
        work(sock)
        return Sample(wall=time.perf_counter() - wall, cpu=time.thread_time() - cpu)


def timed_connection_async(address: tuple[str, int], work: Callable[[socket.socket], Awaitable[None]]) -> Sample:
    """Do the same under anyio; the event loop's start and end are not counted."""

    async def run(sock: socket.socket) -> Sample:
        sock.setblocking(False)
        cpu, wall = time.thread_time(), time.perf_counter()
        await work(sock)
        return Sample(wall=time.perf_counter() - wall, cpu=time.thread_time() - cpu)

    with socket.create_connection(address) as sock:
        sock.sendall(b"?")
        return anyio.run(run, sock)


def main() -> None:
    """Run all pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="size of the tensor (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="of each pair (default: %(default)s)")
    options = parser.parse_args()
    nbytes = options.mib << 20
    listener = socket.create_server(("127.0.0.1", 0))
    address: tuple[str, int] = listener.getsockname()
    sender = multiprocessing.get_context("fork").Process(target=send_for_ever, args=(listener, nbytes), daemon=True)
    sender.start()
    reused = np.full(nbytes, 1, np.uint8)
    start = sum(map(len, request_for(reused)[:-1]))
    blocking = partial(timed_connection, address)
    waiting = partial(timed_connection_async, address)
    pairs = {
        "blocking, reused memory": (
            lambda: blocking(lambda sock: receive_bare(sock, start, reused)),
            lambda: blocking(lambda sock: receive(sock, reused)),
        ),
        "blocking, fresh memory": (
            lambda: blocking(lambda sock: receive_bare(sock, start, np.empty(nbytes, np.uint8))),
            lambda: blocking(lambda sock: receive(sock, None)),
        ),
        "anyio, reused memory": (
            lambda: waiting(lambda sock: receive_bare_async(sock, start, reused)),
            lambda: waiting(lambda sock: receive_async(sock, reused)),
        ),
        "anyio, fresh memory": (
            lambda: waiting(lambda sock: receive_bare_async(sock, start, np.empty(nbytes, np.uint8))),
            lambda: waiting(lambda sock: receive_async(sock, None)),
        ),
    }
    rows = []
    for name, (bare, ours) in pairs.items():
        summaries = interleaved({"bare": bare, "ours": ours}, options.rounds)
        bare_summary, our_summary = summaries["bare"], summaries["ours"]
        rows.append(
            (
                name,
                *(f"{seconds * 1e3:.1f} ms" for seconds in (bare_summary.wall, our_summary.wall)),
                f"{1 / our_summary.wall_ratio:.2f}",
                *(f"{seconds * 1e3:.1f} ms" for seconds in (bare_summary.cpu, our_summary.cpu)),
                f"{our_summary.cpu_ratio:.2f}",
            )
        )
    print_table(("receiving", "bare", "streamcodec", "speed", "bare CPU", "streamcodec CPU", "CPU ratio"), rows)
    with socket.create_connection(address) as sock:
        sock.sendall(b"!")
    sender.join()
    listener.close()


if __name__ == "__main__":
    main()
