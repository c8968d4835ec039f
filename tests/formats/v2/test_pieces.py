"""No piece of work on a JSON header is long, whatever stands in it, and however much of it.

A search: everything that JSON can be made long of, in the places where a header has text. Each is read as a server
reads it, and the CPU time of its longest piece is judged: the least of three runs, since a processor that others use
does less in a second, and by a bound that allows for that. Seen on a quiet machine: 8 ms at most, 1 to 4 ms usually.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest

from streamcodec import Decoder, EndOfMessage, RemoteProtocolError, RequestHeader, request_decoder
from tests.stalls import STALL_SECONDS, slowness

pytestmark = pytest.mark.quiet

_SMALL: Final = 1_000_000
_LARGE: Final = 30_000_000

_MOST_VALUES: Final = 4_000
"""More than some thousand values that no tensor has are refused for that alone."""

_MOST_BYTES: Final = 240_000
"""And so are more bytes."""

Make = Callable[[int], bytes]


def root(value: str) -> bytes:
    return f'{{"inputs":[],"parameters":{{"a":{value}}}}}'.encode()


def entry(datatype: str, values: str, shape: object) -> bytes:
    return f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":[{values}]}}]}}'.encode()


def repeated(item: str, nbytes: int) -> str:
    return ",".join([item] * max(1, nbytes // (len(item) + 1)))


def data(datatype: str, item: str, last: str | None = None, inner: list[int] | None = None) -> Make:
    """Make a tensor of so many bytes of an item, of which the last may be another."""

    def make(nbytes: int) -> bytes:
        values = repeated(item, nbytes)
        count = nbytes // (len(item) + 1) + (last is not None)
        return entry(datatype, values if last is None else f"{values},{last}", [max(count, 1), *(inner or [])])

    return make


def element(unit: str, end: str = "") -> Make:
    return lambda nbytes: entry("BYTES", f'"a","{unit * (nbytes // len(unit))}{end}"', [2])


def other(item: str, last: str = "1") -> Make:
    """Make values that no tensor has: too many, or as many as may be."""

    def make(nbytes: int) -> bytes:
        most = nbytes if nbytes == _LARGE else min(_MOST_BYTES, _MOST_VALUES * (len(item) + 1))
        return root(f"[{repeated(item, most)},{last}]")

    return make


def members(distinct: int, last: str = "0") -> Make:
    def make(nbytes: int) -> bytes:
        count = _MOST_VALUES if nbytes == _SMALL else nbytes // 13
        return root("{" + ",".join(f'"{i % distinct:08}":{0}' for i in range(count)) + f',"z":{last}}}')

    return make


def of_text(unit: str) -> Make:
    """Make one string that is no data: far too long, or as long as may be."""
    return lambda nbytes: root(f'"{unit * ((nbytes if nbytes == _LARGE else _MOST_BYTES) // len(unit))}"')


SHAPES: Final[dict[str, Make]] = {
    "a long name": lambda n: entry("FP32", "1", [1]).replace(b'"x"', b'"%b"' % (b"x" * n)),
    "a long string": of_text("a"),
    "a long string of escapes": of_text(r"\""),
    "a long string of pairs": of_text(r"\ud83d\ude00"),
    "a long string of two-byte characters": of_text("é"),
    "a long string like the beginning of data": of_text(r"{\"data\":["),
    "a long key": lambda n: b'{"inputs":[],"%b":1}' % (b"x" * n),
    "white space": lambda n: b'{"inputs":[], %b "a":1}' % (b" " * n),
    "white space before and after": lambda n: b'%b{"inputs":[]}%b' % (b" " * n, b" " * n),
    "white space in an entry": lambda n: b'{"inputs":[{ %b }]}' % (b" " * n),
    "white space in data": lambda n: entry("FP32", "1," + " " * n + "2", [2]),
    "an element": element("a"),
    "an element of escapes": element(r"\n"),
    "an element of backslashes": element("\\\\"),
    "an element of pairs": element(r"\ud83d\ude00"),
    "an element of two-byte characters": element("é"),
    "an element of quotes": element(r"\""),
    "an element of commas and brackets": element(",[{}]"),
    "an element of colons": element(r"\":"),
    "an element with half a surrogate": element("a", r"\ud800"),
    "an element among floats": lambda n: entry("FP32", '1,"' + "a" * n + '"', [2]),
    "an element before its shape": lambda n: (
        b'{"inputs":[{"data":["%b"],"shape":[1],"datatype":"BYTES"}]}' % (b"a" * n)
    ),
    "elements of 33 KB": data("BYTES", f'"{"a" * 33_000}"'),
    "an integer": lambda n: entry("INT64", "1" * n, [1]),
    "a fraction": lambda n: entry("FP64", "1." + "1" * n, [1]),
    "an exponent": lambda n: entry("FP64", "1e" + "1" * n, [1]),
    "integers of 4,000 digits": data("FP64", "1" * 4_000),
    "fractions of 4,000 digits": data("FP64", "1." + "1" * 4_000),
    "floats of 300 digits": data("FP64", "1" * 300),
    "integers of 4,000 digits, outside": other("1" * 4_000),
    "floats, outside": other("1." + "1" * 28),
    "nested": lambda n: root("[" * n),
    "deep": other("[" * 90 + "]" * 90),
    "deep objects": other('{"a":' * 90 + "1" + "}" * 90),
    "members": members(1 << 30),
    "members, and NaN": members(1 << 30, "NaN"),
    "members, and half a surrogate": members(1 << 30, r'"\ud800"'),
    "members, one twice": members(_MOST_VALUES - 1),
    "members, all alike": members(1),
    "small strings": other('"a"'),
    "small strings, and NaN": other('"a"', "NaN"),
    "small strings, and half a surrogate": other('"a"', r'"\ud800"'),
    "objects": other("{}"),
    "objects, and NaN": other("{}", "NaN"),
    "objects with members": other('{"a":1}'),
    "objects with members, and half a surrogate": other('{"a":1}', r'"\ud800"'),
    "objects, one with a member twice": other('{"a":1}', '{"a":1,"a":1}'),
    "booleans": data("BOOL", "true"),
    "booleans, the last one wrong": data("BOOL", "true", "1"),
    "booleans among integers": data("INT8", "true"),
    "a mask": data("FP32", "0"),
    "a mask, the last one wrong": data("INT8", "0", "true"),
    "nulls": data("FP32", "null"),
    "NaN": data("FP32", "NaN"),
    "NaN among integers": data("INT8", "NaN"),
    "infinities": data("FP64", "-Infinity"),
    "a mixture": data("FP32", '1,"a",true,null'),
    "nested texts": data("BYTES", '["a"]', inner=[1]),
    "nested numbers": data("INT8", "[[[1]]]", inner=[1, 1, 1]),
    "empty lists": data("INT8", "[]", inner=[0]),
    "deep lists": data("INT8", "[" * 50 + "1" + "]" * 50, inner=[1] * 50),
    "a row too short": data("INT8", "[1,1]", "[1]", inner=[2]),
    "large integers": data("UINT64", "18446744073709551615"),
    "integers too large": data("UINT64", "1", "18446744073709551616"),
    "floats too large": data("FP32", "1", "1e39"),
    "empty texts": data("BYTES", '""'),
    "texts": data("BYTES", '"abcde"'),
    "texts, the last one wrong": data("BYTES", '"a"', r'"\ud800"'),
    "values before their shape": lambda n: b'{"inputs":[{"data":[%b1],"shape":[1],"datatype":"INT8"}]}' % (b"1," * n),
    "tensors": lambda n: (
        b'{"inputs":[%b{}]}'
        % b"".join(b'{"name":"%d","datatype":"INT8","shape":[0],"data":[]},' % i for i in range(min(n // 50, 16_000)))
    ),
    "outputs": lambda n: (
        b'{"inputs":[],"outputs":[%b{}]}' % b"".join(b'{"name":"%d"},' % i for i in range(min(n // 15, 16_000)))
    ),
    "empty entries": lambda n: b'{"inputs":[%b{}]}' % (b"{}," * (n // 3)),
    "dimensions": lambda n: entry("INT8", "1", [1] * min(n // 3, _MOST_VALUES)),
    "a short header of objects, and NaN": lambda _: root("[" + "{}," * 10_000 + "NaN]"),
    "a short header of members, one twice": lambda _: root(
        "{" + ",".join(f'"{i:05}":0' for i in range(3_000)) * 2 + "}"
    ),
}


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Leave the objects of other tests alone."""
    gc.disable()
    yield
    gc.enable()


def longest_piece(text: bytes) -> float:
    """Read a header as a server does; return the seconds of CPU that the longest piece took."""
    decoder = request_decoder(header_length=len(text), body_length=len(text), paced=True)
    view, longest = memoryview(text), 0.0
    event: object = None
    with suppress(RemoteProtocolError):
        while not isinstance(event, EndOfMessage):
            for piece in (_feeding(decoder, view), decoder.next_event, decoder.work):
                start = time.thread_time()
                try:
                    outcome = piece()
                finally:
                    longest = max(longest, time.thread_time() - start)
                if isinstance(outcome, int) and not isinstance(outcome, bool):
                    view = view[outcome:]
                if isinstance(outcome, EndOfMessage):
                    event = outcome
    return longest


def _feeding(decoder: Decoder[RequestHeader], view: memoryview) -> Callable[[], object]:
    return lambda: decoder.feed(view)


def assert_short(text: bytes, runs: int) -> None:
    longest = min(longest_piece(text) for _ in range(runs))
    assert longest < STALL_SECONDS * slowness(), f"{longest * 1e3:.1f} ms"


@pytest.mark.parametrize("name", SHAPES)
def test_of_a_megabyte(name: str) -> None:
    assert_short(SHAPES[name](_SMALL), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_of_thirty_megabytes(name: str) -> None:
    assert_short(SHAPES[name](_LARGE), 3)
