"""Heads that are as large as a head may be, most of it one field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.formats.v2.fields import SAGEMAKER_MEDIA_TYPE

FULL_BYTES: Final = 31_000
"""Of a value that fills a head, which may have 32 KiB."""

UNKNOWN: Final = "X-Unknown"
"""A field that means nothing."""


def _repeated(unit: bytes) -> Callable[[int], bytes]:
    return lambda nbytes: unit * (nbytes // len(unit))


def _distinct(nbytes: int) -> bytes:
    return b",".join(b"%x" % number for number in range(nbytes // 5))


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "aaa": _repeated(b"a"),
    "111": _repeated(b"1"),
    "000": _repeated(b"0"),
    ";;;": _repeated(b";"),
    ",,,": _repeated(b","),
    "===": _repeated(b"="),
    '"""': _repeated(b'"'),
    r"\\\\": _repeated(b"\\"),
    r'"\"\"': lambda nbytes: b'"' + _repeated(b'\\"')(nbytes - 1),
    "a   a": lambda nbytes: b"a" + b" " * (nbytes - 2) + b"a",
    "a\\t\\ta": lambda nbytes: b"a" + b"\t" * (nbytes - 2) + b"a",
    "a a a": lambda nbytes: _repeated(b"a ")(nbytes - 1) + b"a",
    "a,a,": _repeated(b"a,"),
    "1,1,": _repeated(b"1,"),
    "0,1,2": _distinct,
    "a;a;": _repeated(b"a;"),
    "a=a;": _repeated(b"a=a;"),
    ';a=""': _repeated(b';a=""'),
    'a="aa': lambda nbytes: b'a="' + b"a" * (nbytes - 3),
    ';a="a': _repeated(b';a="a'),
    "q=0.5,": _repeated(b"gzip;q=0.5,"),
    "gzip;q=": _repeated(b"gzip;q="),
    "((()))": lambda nbytes: b"(" * (nbytes // 2) + b")" * (nbytes // 2),
    "80-ff": _repeated(bytes(range(0x80, 0x100))),
    "%61": _repeated(b"%61"),
    "%25": _repeated(b"%25"),
    "///": _repeated(b"/"),
    "../": _repeated(b"../"),
    ":::": _repeated(b":"),
    "@@@": _repeated(b"@"),
    "[[[": _repeated(b"["),
}
"""Values of about so many bytes, each named by how it looks."""

_SIZED: Final = SAGEMAKER_MEDIA_TYPE + ";json-header-size="
_BEGINNINGS: Final = {
    "Accept-Encoding": ("", "gzip;q="),
    "Connection": ("", "close,"),
    "Content-Encoding": ("", "gzip,"),
    "Content-Type": ("", SAGEMAKER_MEDIA_TYPE, SAGEMAKER_MEDIA_TYPE + ";", _SIZED, SAGEMAKER_MEDIA_TYPE + ';a="'),
    "Expect": ("", "100-continue,"),
    "Host": ("", "x:", "["),
    "Origin": ("", "http://", "http://a"),
    "Transfer-Encoding": ("", "chunked,"),
    "Upload-Complete": ("", "?1;"),
}
"""What makes a reader go on."""

REQUEST_FIELDS: Final = (
    UNKNOWN,
    "Accept",
    "Accept-Encoding",
    "Access-Control-Request-Headers",
    "Access-Control-Request-Method",
    "Answer-Memory",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "Date",
    "Expect",
    "Forwarded",
    "Host",
    "If-Match",
    "Inference-Header-Content-Length",
    "Keep-Alive",
    "Memory-Lane",
    "Origin",
    "Range",
    "TE",
    "Tensor-Memory",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Upload-Complete",
    "Upload-Draft-Interop-Version",
    "Upload-Length",
    "Upload-Offset",
    "User-Agent",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "traceparent",
    "tracestate",
)
ANSWER_FIELDS: Final = (
    UNKNOWN,
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Date",
    "Inference-Header-Content-Length",
    "Keep-Alive",
    "Location",
    "Retry-After",
    "Set-Cookie",
    "Tensor-Memory",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Upload-Complete",
    "Upload-Offset",
    "Vary",
)
_TARGETS: Final = ("/", "/v2/models/identity/infer?", "/v2/models/", "/v2/uploads/", "http://x/", "http://[", "//")
_MANY: Final = 250
"""Fields of a head of many."""
_LEAST_ROOM: Final = 16
"""For the value of each of them; heads that have less cannot be compared, since names differ in length."""


def values(name: str, kind: str, nbytes: int) -> Iterator[bytes]:
    """Yield the values of a field of a kind, with each beginning that makes a reader go on."""
    for beginning in map(str.encode, _BEGINNINGS.get(name, ("",))):
        yield beginning + KINDS[kind](nbytes - len(beginning))


def requests(name: str, kind: str, nbytes: int) -> Iterator[bytes]:
    """Yield heads of requests with a field of so many bytes; in one line, and in as many as there may be."""
    for value in values(name, kind, nbytes):
        yield _request(name, [value])
    room = nbytes // _MANY - len(name) - len(": \r\n")
    if room >= _LEAST_ROOM:
        yield _request(name, [KINDS[kind](room)] * _MANY)


def targets(kind: str, nbytes: int) -> Iterator[bytes]:
    """Yield heads of requests with a target, a method, or a name of so many bytes."""
    text = KINDS[kind](nbytes)
    if b" " in text or b"\t" in text:
        return
    for beginning in map(str.encode, _TARGETS):
        yield b"POST %b%b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n" % (beginning, text[len(beginning) :])
    yield b"%b / HTTP/1.1\r\nHost: x\r\n\r\n" % text
    yield b"POST / HTTP/1.1\r\nHost: x\r\n%b: a\r\n\r\n" % text


def answers(name: str, kind: str, nbytes: int) -> Iterator[bytes]:
    """Yield heads of answers with a field of so many bytes; in one line, in many lines, and folded."""
    for value in values(name, kind, nbytes):
        yield _answer(name, [value])
    room = nbytes // _MANY - len(name) - len(": \r\n")
    if room >= _LEAST_ROOM:
        yield _answer(name, [KINDS[kind](room)] * _MANY)
        yield _answer(name, [b"\r\n ".join([KINDS[kind](room)] * _MANY)])


def reasons(kind: str, nbytes: int) -> Iterator[bytes]:
    """Yield heads of answers with a reason of so many bytes."""
    yield b"HTTP/1.1 200 %b\r\nContent-Length: 2\r\n\r\n" % KINDS[kind](nbytes)


def _request(name: str, found: list[bytes]) -> bytes:
    method = "OPTIONS" if name.startswith(("Access", "Origin")) else "POST"
    others = {"Host": b"x", "Content-Length": b"2", "Origin": b"http://a", "Access-Control-Request-Method": b"POST"}
    return f"{method} /v2/models/identity/infer HTTP/1.1\r\n".encode() + _fields(name, found, others)


def _answer(name: str, found: list[bytes]) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + _fields(name, found, {"Content-Length": b"2"})


def _fields(name: str, found: list[bytes], others: dict[str, bytes]) -> bytes:
    if name == "Transfer-Encoding":
        others = {key: value for key, value in others.items() if key != "Content-Length"}
    fields = [(key, value) for key, value in others.items() if key != name]
    fields += [(name, value) for value in found]
    return b"".join(b"%b: %b\r\n" % (key.encode(), value) for key, value in fields) + b"\r\n"


SIZES: Final = (FULL_BYTES, DEFAULT_LIMITS.max_field_bytes - 64)
"""The largest value for which there is room, and the largest that is not refused for its size."""
