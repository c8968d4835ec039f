"""Many tensors in one request, and bytes that come one by one: does the cost grow in proportion?

1,000 and 10,000 tensors of 64 bytes, encoded, and decoded from one chunk; ten times as many may cost eleven times as
much. The same for a body of 1,000 tensors and one of 100 that are fed byte by byte. And how often the system is asked
to receive a request with 500 such tensors that has arrived: `recvmsg_into` fills many tensors with one call, and a
handful of calls, read here as ten at most, is asked for.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from streamcodec import EncodedMessage, EndOfMessage, Tensor, encode_request, request_decoder
from streamcodec.transports import sync
from tests.benchmarks.figures import OURS, Bound, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import in_turn, ratios, variant

_COUNTS = (1_000, 10_000)
_BYTEWISE_COUNTS = (100, 1_000)
_RECEIVED_COUNT = 500
_VALUES = np.arange(16, dtype=np.float32)


class _CountingSocket(socket.socket):
    """A socket that counts what it is asked for."""

    calls = 0

    def recv_into(self, *arguments: Any) -> int:  # noqa: ANN401 - those of the socket
        self.calls += 1
        return super().recv_into(*arguments)

    def recvmsg_into(self, *arguments: Any) -> Any:  # noqa: ANN401 - those of the socket
        self.calls += 1
        return super().recvmsg_into(*arguments)


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    rounds = options.choose(15, 3)
    _compare(found, "encode", _encoding, _COUNTS, rounds)
    _compare(found, "decode", _decoding, _COUNTS, rounds)
    _compare(found, "decode, byte by byte", _decoding_bytewise, _BYTEWISE_COUNTS, options.choose(5, 3))
    calls = _receive_calls(_message(_RECEIVED_COUNT))
    found.add(f"receive {_RECEIVED_COUNT} tensors", "receive calls", OURS, "count", [calls], bound=at_most(10))
    return found


def _compare(
    found: Figures, case: str, make: Callable[[int], Callable[[], object]], counts: tuple[int, int], rounds: int
) -> None:
    few, many = (f"time, {count:,} tensors" for count in counts)
    variants = {few: variant(make(counts[0])), many: variant(make(counts[1]))}
    times = {name: [sample.wall for sample in taken] for name, taken in in_turn(variants, rounds).items()}
    for name, taken in times.items():
        found.add(case, name, OURS, "s", taken)
    bound: Bound = at_most(11)
    found.add(case, "time, ratio for ten times as many", OURS, "ratio", ratios(times[many], times[few]), bound=bound)


def _message(count: int) -> EncodedMessage:
    return encode_request([Tensor(name=f"tensor{number}", array=_VALUES) for number in range(count)])


def _encoding(count: int) -> Callable[[], object]:
    return lambda: _message(count)


def _decoding(count: int) -> Callable[[], object]:
    message = _message(count)
    body = b"".join(message.buffers)

    def decode() -> None:
        decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
        decoder.feed(body)
        while not isinstance(decoder.next_event(), EndOfMessage):
            pass

    return decode


def _decoding_bytewise(count: int) -> Callable[[], object]:
    message = _message(count)
    body = memoryview(b"".join(message.buffers))
    pieces = [body[index : index + 1] for index in range(len(body))]

    def decode() -> None:
        decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
        for piece in pieces:
            decoder.feed(piece)
        while not isinstance(decoder.next_event(), EndOfMessage):
            pass

    return decode


def _receive_calls(message: EncodedMessage) -> int:
    """Return how many calls it takes to receive a message that has arrived."""
    receiving, sending = socket.socketpair()
    with sending, _CountingSocket(fileno=receiving.detach()) as counting:
        sending.sendall(b"".join(message.buffers))
        decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
        while not isinstance(sync.next_event(counting, decoder), EndOfMessage):
            pass
        return counting.calls


SCENARIO = Scenario(title="Many tensors, many pieces", about=__doc__, run=run)
