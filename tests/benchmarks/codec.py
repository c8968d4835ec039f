"""What encoding and decoding one FP32 tensor costs, without any transport: `python -m tests.benchmarks.codec`.

Decoding goes through the pull face, as over a socket, but the tensor's bytes are not read: what remains is the codec's
own work, which must not grow with the tensor (only the system asks some 15 µs for a mapping of many MiB). It is
measured with a header that is parsed, and with one that is remembered.

Beside it stand tritonclient, which copies the tensor twice to write a request and once to read a response that it has
whole; and the least that anybody can do with a whole body, `json.loads` and `np.frombuffer` with no check at all.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from streamcodec import EncodedMessage, HeaderCache, Tensor, encode_request, parse_request_header, request_decoder
from tests.benchmarks.measure import Sample, in_turn, microseconds, print_table, variant

SIZES: Final = {"64 B": 64, "600 KB": 602_112, "512 MiB": 512 << 20}
ENCODE: Final = "encode"
DECODE: Final = "decode"
DECODE_REMEMBERED: Final = "decode, header remembered"
LEAST: Final = "json.loads + frombuffer"
MISSING: Final = "tritonclient is not here. To have it: `pip install 'tritonclient[http]'`"

_COPYING: Final = "tritonclient"
_COUNT: Final = 500
_COPIED_BYTES: Final = 64 << 20
"""What a variant that copies may copy in one round."""

Array = np.ndarray[Any, np.dtype[np.float32]]
Act = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecTime:
    """What one act took for a tensor of one size."""

    size: str
    """A key of `SIZES`."""
    act: str
    samples: Sequence[Sample]
    """Of each round, in seconds."""


def encoding(array: Array) -> Callable[[], EncodedMessage]:
    """Return the making of a message."""
    return lambda: encode_request([Tensor(name="INPUT0", array=array)])


def decoding(message: EncodedMessage, *, is_remembered: bool = False) -> Act:
    """Return the decoding of a message, from the new decoder to its last event, as a transport's loop does it."""
    header = next(iter(message.buffers))
    nbytes = message.body_length - len(header)
    headers = HeaderCache(parse_request_header) if is_remembered else None

    def decode() -> None:
        decoder = request_decoder(header_length=message.header_length, body_length=message.body_length, headers=headers)
        decoder.get_buffer()[:] = header
        decoder.buffer_updated(len(header))
        decoder.next_event()
        decoder.get_buffer()
        decoder.buffer_updated(nbytes)
        decoder.next_event()
        decoder.next_event()

    return decode


def slicing(message: EncodedMessage) -> Act:
    """Return the least that can be done with a whole body."""
    body = b"".join(message.buffers)
    end = message.header_length

    def cut() -> None:
        entry = json.loads(body[:end])["inputs"][0]
        np.frombuffer(body, np.float32, offset=end or 0).reshape(entry["shape"])

    return cut


def tritonclient_acts(array: Array) -> dict[str, Act]:
    """Return what tritonclient does of the same, by name; nothing if it is not here."""
    if importlib.util.find_spec("tritonclient") is None:
        return {}
    from tritonclient.http import InferenceServerClient, InferInput  # noqa: PLC0415 - optional

    def encode() -> object:
        tensor = InferInput("INPUT0", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        return InferenceServerClient.generate_request_body([tensor])

    message = encode_request([Tensor(name="INPUT0", array=array)])
    body = b"".join(message.buffers).replace(b'"inputs"', b'"outputs"', 1)
    end = (message.header_length or 0) + len(b"out") - len(b"in")

    def decode() -> None:
        result = InferenceServerClient.parse_response_body(body, header_length=end)
        result.as_numpy("INPUT0")

    return {f"{_COPYING}, encode": encode, f"{_COPYING}, decode": decode}


def acts_for(nbytes: int) -> dict[str, Act]:
    """Return everything that is compared, by name, for an FP32 tensor of so many bytes."""
    array = np.zeros(nbytes // 4, np.float32)
    encode = encoding(array)
    message = encode()
    return {
        ENCODE: encode,
        DECODE: decoding(message),
        DECODE_REMEMBERED: decoding(message, is_remembered=True),
        LEAST: slicing(message),
        **tritonclient_acts(array),
    }


def measure_codec(rounds: int = 15, sizes: Sequence[str] = tuple(SIZES)) -> list[CodecTime]:
    """Measure all acts in turn, size by size."""
    times: list[CodecTime] = []
    for size in sizes:
        nbytes = SIZES[size]
        acts = acts_for(nbytes)
        copying = max(1, min(_COUNT, _COPIED_BYTES // nbytes))
        counts = {name: copying if name.startswith(_COPYING) else _COUNT for name in acts}
        taken = in_turn({name: variant(act, counts[name]) for name, act in acts.items()}, rounds)
        times += [CodecTime(size=size, act=act, samples=samples) for act, samples in taken.items()]
    return times


def main() -> None:
    """Measure and print."""
    times = measure_codec()
    rounds = len(times[0].samples)
    print(f"codec alone, one FP32 tensor, medians of {rounds} x {_COUNT}; best round in parentheses")
    cells = {(time.act, time.size): _cell([sample.wall for sample in time.samples]) for time in times}
    acts = dict.fromkeys(time.act for time in times)
    print_table(["", *SIZES], [[act, *(cells[act, size] for size in SIZES)] for act in acts])
    if not tritonclient_acts(np.zeros(1, np.float32)):
        print(MISSING)


def _cell(seconds: Sequence[float]) -> str:
    return f"{microseconds(median(seconds))} ({microseconds(min(seconds))})"


if __name__ == "__main__":
    main()
