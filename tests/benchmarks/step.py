"""What one step of the decoder costs: `python -m tests.benchmarks.step`.

A step is one turn of a transport's loop inside a large tensor: `get_buffer` and `buffer_updated` around a read
(nothing is read here), or one `feed` of a small chunk. Neither may cost more than 2 µs. The copy that `feed` cannot
avoid is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamcodec import Decoder, Into, RequestHeader, Tensor, encode_request, request_decoder
from tests.benchmarks.measure import interleaved, microseconds, print_table, variant

_STEPS = 1_000
_ROUNDS = 101
_CHUNKS = (1, 64, 1024)


def decoder_within_tensor() -> Decoder[RequestHeader]:
    """Make a decoder that waits for the bytes of a tensor, enough of them for every round."""
    nbytes = _STEPS * (_ROUNDS + 2) * max(_CHUNKS)
    # Written to, so that no step pays for the system's handing out a page of fresh memory.
    array = np.full(nbytes, 1, np.uint8)
    message = encode_request([Tensor(name="x", array=array)])
    decoder = request_decoder(
        header_length=message.header_length, body_length=message.body_length, place=lambda _: Into(array)
    )
    decoder.feed(next(iter(message.buffers)))
    return decoder


def pulling(nbytes: int) -> Callable[[], None]:
    """Return one step on the pull face."""
    decoder = decoder_within_tensor()

    def step() -> None:
        decoder.get_buffer()
        decoder.buffer_updated(nbytes)

    return step


def pushing(nbytes: int) -> Callable[[], None]:
    """Return one step on the push face."""
    decoder = decoder_within_tensor()
    chunk = bytes(nbytes)

    def step() -> None:
        decoder.feed(chunk)

    return step


def copying(nbytes: int) -> Callable[[], None]:
    """Return the copy alone, with the call around it."""
    target = memoryview(bytearray(nbytes))
    chunk = bytes(nbytes)

    def step() -> None:
        target[:] = chunk

    return step


def main() -> None:
    """Measure and print."""
    steps = {"an empty call": lambda: None, "get_buffer + buffer_updated": pulling(64)}
    for nbytes in _CHUNKS:
        steps[f"copy of {nbytes} B"] = copying(nbytes)
        steps[f"feed of {nbytes} B"] = pushing(nbytes)
    results = interleaved({name: variant(step, _STEPS) for name, step in steps.items()}, _ROUNDS)
    print(f"one step inside a large tensor, medians of {_ROUNDS} x {_STEPS}")
    print_table(
        ["step", "wall", "best", "CPU"],
        [[name, *map(microseconds, (result.wall, result.best_wall, result.cpu))] for name, result in results.items()],
    )


if __name__ == "__main__":
    main()
