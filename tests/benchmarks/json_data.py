"""What JSON tensors cost: `python -m tests.benchmarks.json_data`.

One million FP32 values, from the text of a request to the array: at most 0.4 s with the standard library, and 0.1 s
with the extra `speed`. The parsers alone are beside it, orjson too if it is installed. And what it costs to look for
the end of an object whose length nobody has declared, in bodies of about 50 MB that are JSON only: a fifth at most.

From a virtual machine with two shared cores, Python 3.11, msgspec 0.22, orjson 3.13. The texts differ in their digits:
17 as clients write FP32 that they have widened, 8 as they were.

| 1,000,000 floats, milliseconds    | 17 digits | 8 digits |
| ---                               |       --: |      --: |
| json.loads                        |       253 |      106 |
| orjson.loads                      |        68 |       57 |
| msgspec.json.decode               |        57 |       47 |
| here, standard library            |       284 |      133 |
| here, with msgspec                |        85 |       70 |

msgspec it is: the quicker one, and the only one that keeps integers exact beyond 64 bits, as the standard library does.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from streamcodec import DEFAULT_LIMITS, EndOfMessage, parse_request_header, request_decoder
from streamcodec.engine.json import text as jsontext
from tests.benchmarks.measure import interleaved, print_table, variant

_VALUES = 1_000_000
_ROUNDS = 7
_PIECE = 256 << 10
_LARGE = {"floats": 2_600_000, "texts": 1_000_000}


def _use_quick_parser_from(nbytes: int) -> None:
    setattr(jsontext, "LEAST_BYTES", nbytes)  # noqa: B010 - for the program there is no switch


def body(datatype: str, data: list[Any]) -> bytes:
    """Make a request with one JSON tensor."""
    tensor = {"name": "x", "datatype": datatype, "shape": [len(data)], "data": data}
    return json.dumps({"inputs": [tensor]}).encode()


def parsers(text: bytes) -> Mapping[str, Callable[[], object]]:
    """Return all ways from a text to values or arrays."""

    def here(least_bytes: int) -> Callable[[], object]:
        def parse() -> None:
            _use_quick_parser_from(least_bytes)
            parse_request_header(text, DEFAULT_LIMITS)

        return parse

    ways: dict[str, Callable[[], object]] = {"json.loads": lambda: json.loads(text)}
    for package, function in (("orjson", "loads"), ("msgspec.json", "decode")):
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            parse = getattr(importlib.import_module(package), function)
            ways[f"{package}.{function}"] = partial(parse, text)
    return ways | {"here, standard library": here(1 << 62), "here, with msgspec": here(0)}


def decoding(text: bytes, *, allow_headerless: bool) -> Callable[[], object]:
    """Return the decoding of a body without the length of its header."""
    view = memoryview(text)

    def decode() -> None:
        decoder = request_decoder(header_length=None, body_length=len(text), allow_headerless=allow_headerless)
        for start in range(0, len(text), _PIECE):
            decoder.feed(view[start : start + _PIECE])
        while not isinstance(decoder.next_event(), EndOfMessage):
            pass

    return decode


def print_parsers() -> None:
    """Measure and print what one million values cost."""
    exact = np.random.default_rng(1).standard_normal(_VALUES).astype(np.float32)
    texts = {
        "17 digits": body("FP32", exact.tolist()),
        "8 digits": body("FP32", [float(str(value)) for value in exact]),
    }
    columns = [
        interleaved({name: variant(way) for name, way in parsers(text).items()}, _ROUNDS) for text in texts.values()
    ]
    print(f"one million floats, milliseconds, medians of {_ROUNDS}")
    rows = [[name, *(f"{column[name].wall * 1e3:.0f}" for column in columns)] for name in columns[0]]
    print_table(["", *texts], rows)


def print_headerless() -> None:
    """Measure and print what it costs to find the end of an object."""
    bodies = {
        "floats": body("FP64", np.random.default_rng(1).random(_LARGE["floats"]).tolist()),
        "texts": body("BYTES", [f'text {{number}} "{index}" and so on' for index in range(_LARGE["texts"])]),
    }
    rows = []
    for parser, least_bytes in (("standard library", 1 << 62), ("msgspec", 0)):
        for name, text in bodies.items():
            _use_quick_parser_from(least_bytes)
            ways = {str(allow): variant(decoding(text, allow_headerless=allow)) for allow in (False, True)}
            result = interleaved(ways, _ROUNDS)
            times = [f"{summary.wall:.2f} s" for summary in result.values()]
            rows.append([f"{name}, {parser}", f"{len(text) / 1e6:.0f} MB", *times, f"{result['True'].wall_ratio:.2f}"])
    print(f"the end of an object, medians of {_ROUNDS}")
    print_table(["", "body", "all is JSON", "end looked for", "ratio"], rows)


def main() -> None:
    """Measure and print."""
    print_parsers()
    print_headerless()


if __name__ == "__main__":
    main()
