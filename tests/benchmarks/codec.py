"""What encoding and decoding one FP32 tensor costs, without any transport: `python -m tests.benchmarks.codec`.

Decoding goes through the pull face, as over a socket, but the tensor's bytes are not read: what remains is the codec's
own work, which must not grow with the tensor (only the system asks some 15 µs for a mapping of many MiB). For
comparison the least that anybody can do who has the whole body in memory: `json.loads` and `np.frombuffer`, with no
check at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from streamcodec import EncodedMessage, Tensor, encode_request, request_decoder
from tests.benchmarks.measure import Summary, interleaved, microseconds, print_table, variant

_SIZES = {"64 B": 64, "600 KB": 602_112, "64 MiB": 64 << 20}
_ROUNDS = 31
_COUNT = 500


def encoding(array: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Callable[[], EncodedMessage]:
    """Return the making of a message."""
    return lambda: encode_request([Tensor(name="INPUT0", array=array)])


def decoding(message: EncodedMessage) -> Callable[[], None]:
    """Return the decoding of a message, from the new decoder to its last event, as a transport's loop does it."""
    header = message.buffers[0]
    nbytes = message.body_length - len(header)

    def decode() -> None:
        decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
        decoder.get_buffer()[:] = header
        decoder.buffer_updated(len(header))
        decoder.next_event()
        decoder.get_buffer()
        decoder.buffer_updated(nbytes)
        decoder.next_event()
        decoder.next_event()

    return decode


def slicing(message: EncodedMessage) -> Callable[[], None]:
    """Return the least that can be done with a whole body."""
    body = b"".join(message.buffers)
    end = message.header_length

    def cut() -> None:
        entry = json.loads(body[:end])["inputs"][0]
        np.frombuffer(body, np.float32, offset=end or 0).reshape(entry["shape"])

    return cut


def measured(nbytes: int) -> dict[str, Summary]:
    """Measure all variants for one size."""
    encode = encoding(np.zeros(nbytes // 4, np.float32))
    message = encode()
    variants = {
        "json.loads + frombuffer": variant(slicing(message), _COUNT),
        "encode": variant(encode, _COUNT),
        "decode in place": variant(decoding(message), _COUNT),
    }
    return interleaved(variants, _ROUNDS)


def main() -> None:
    """Measure and print."""
    print(f"codec alone, one FP32 tensor, medians of {_ROUNDS} x {_COUNT}; best round in parentheses")
    columns = [measured(nbytes) for nbytes in _SIZES.values()]
    rows = [
        [name, *(f"{microseconds(column[name].wall)} ({microseconds(column[name].best_wall)})" for column in columns)]
        for name in columns[0]
    ]
    print_table(["", *_SIZES], rows)


if __name__ == "__main__":
    main()
