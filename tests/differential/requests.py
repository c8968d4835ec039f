"""Requests: drawn close to each other, since what is kept of one request can only harm another that looks like it.

Most parts of most requests are the usual ones. A few are another form of the same, or wrong: the id, the fields of the
head, the path, the length of the JSON header, the compression. Each request is complete as HTTP, so a server that
waits for more of it is wrong.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass
from functools import cache
from typing import Final

from hypothesis import strategies as st

from tests.differential.client import shown

Line = tuple[bytes, bytes]

LENGTH: Final = b"Inference-Header-Content-Length"
_OCTETS: Final = b"application/octet-stream"

IDS: Final = (
    b'"id":"OTHER--B",',
    b"",
    *[b'"id":"' + bytes(8) + b'",'] * 3,
    b'"id":"SECRET-\0",',
    b'"id":"",',
    b'"id":"SECRET\\u002d",',
    b'"id":"\\u0000\\u0000",',
    '"id":"Ünïcö",'.encode(),
    b'"id":"' + b"long" * 40 + b'",',
    b'"id":"SECRET-A","id":"OTHER--B",',
    b'"\\u0069d":"SECRET-A",',
    b'"id" : "SECRET-A",',
    b'"id":null,',
    b'"id":"\t\n\r\x7f-567",',
)
"""Members of the JSON header that are not the usual id, or that other texts may be taken for."""

_USUAL_ID: Final = b'"id":"SECRET-A",'

PARAMETERS: Final = (
    b'"parameters":{"binary_data_output":false}',
    b'"parameters":{"binary_data_output":true,"id":"SECRET-A"}',
    b'"parameters":{"binary_data_output":true,"x":"OTHER--B"}',
    b'"parameters":{"binary_data_output":true},"outputs":[{"name":"y","parameters":{"binary_data":true}}]',
    b'"parameters":{"binary_data_output":true},"outputs":[{"name":"none"}]',
    b'"parameters":{"binary_data_output":true},"more":1',
    b'"parameters":{"binary_data_output":1}',
)

PATHS: Final = (
    b"/v2/models/%b/versions/1/infer",
    b"/v2/models/%b/versions/2/infer",
    b"/v2/models/%b/infer?x=1",
    b"/v2/models/%b/inf%%65r",
    b"/v2//models/%b/infer",
    b"/v2/models/%b/infer/",
    b"http://x/v2/models/%b/infer",
    b"/v2/models/%b-not/infer",
)

NAMED: Final = ("0", "-", "7", " 5", "+5", "1e1", "99999", "5, 5")
"""Values of a length that is not what it should be."""

NOTHING: Final = (b"None", b"None", b"null", b"")
"""How programs write that there is no value."""

OPTIONAL: Final = (LENGTH, b"Content-Type", b"Content-Encoding", b"Accept-Encoding", b"Expect", b"Transfer-Encoding")
"""Fields that most requests do not have."""

EXTRA: Final[tuple[tuple[Line, ...], ...]] = (
    ((b"X-Note", b"Content-Length: 5"),),
    ((b"Content-Type", b"application/json"),),
    ((b"Content-Type", _OCTETS),),
    ((b"Content-Type", b"text/plain"),),
    ((b"Content-Type", b"application/vnd.vertex-ai.infer+binary;json-header-size=%d"),),
    ((b"Content-Type", b"application/octet-stream; json-header-size=5"),),
    ((b"Content-Encoding", b"identity"),),
    ((b"Content-Encoding", b"gzip"),),
    ((b"Accept-Encoding", b"gzip"),),
    ((b"Expect", b"100-continue"),),
    ((b"Connection", b"close"),),
    ((b"Connection", b"Keep-Alive"),),
    ((b"Connection", b"x-note"), (b"X-Note", b"hop")),
    ((b"Host", b"y"),),
    ((b"Origin", b"http://y"),),
    ((LENGTH, b"5"),),
    ((LENGTH.replace(b"-", b"_"), b"5"),),
)
"""Fields that a head may have besides; `%d` is the length of the JSON header."""

STATUSES: Final = (*[404] * 4, 204, 304, 100, 101, 199, 200, 299, 400, 499, 503, 599, 600, 0, -1)
"""What a model says that its refusal is to be answered with; 0 for another failure."""

WAYS: Final = ("inline", "inline", "inline", "thread", "coroutine")
"""Ways in which a model is called."""
BLOCKING: Final = WAYS[:-1]
"""Those that need no event loop."""
_WORK: Final = ("echo", "echo", "tell", "fail")
_GETS: Final = (
    b"/v2/health/live",
    b"/v2/health/ready",
    b"/v2",
    b"/v2/models/echo-inline",
    b"/v2/models/echo-inline/ready",
    b"/v2/models/none",
    b"/v2/none",
)
_CHANGES: Final = (
    *["id"] * 5,
    *["extra"] * 4,
    *["length"] * 2,
    *["nothing"] * 6,
    *("parameters", "path", "order", "case", "blanks", "framing", "compression", "damage", "version", "method", "host"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A request, as it is sent."""

    wire: bytes
    head_bytes: int

    def __repr__(self) -> str:
        return f"Request({shown(self.wire)})"

    @property
    def method(self) -> bytes:
        return self.wire.partition(b" ")[0]

    @property
    def body_bytes(self) -> int:
        return len(self.wire) - self.head_bytes


def written(line: bytes, lines: list[Line], body: bytes, colon: bytes = b": ") -> Request:
    """Write a request down."""
    head = b"\r\n".join([line, *(name + colon + value for name, value in lines), b"", b""])
    return Request(head + body, len(head))


@cache
def _tensor(count: int, first: int, *, is_binary: bool) -> tuple[bytes, bytes]:
    """Return the inputs as they stand in the JSON header, and what follows it."""
    values = [float(first)] * count
    tensor = {"name": "x", "datatype": "FP32", "shape": [count]}
    binary = struct.pack(f"<{count}f", *values) if is_binary else b""
    how = {"parameters": {"binary_data_size": len(binary)}} if is_binary else {"data": values}
    return json.dumps({**tensor, **how}, separators=(",", ":")).encode(), binary


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@dataclass(frozen=True, slots=True)
class Family:
    """Requests that differ in little: all are for one model, in one form."""

    model: bytes
    form: str
    """Where the tensor is: "binary", "json" or "raw", without a JSON header."""
    count: int
    """Elements of the tensor."""


def families(ways: tuple[str, ...] = WAYS) -> st.SearchStrategy[Family]:
    """Draw a family, for a model of one of these ways."""
    models = [f"{work}-{way}".encode() for work in _WORK for way in ways]
    forms = ("binary", "binary", "binary", "json", "json", "json")
    usual = [(model, form) for model in models for form in forms]
    chosen = st.sampled_from([*usual, *[(b"echo-raw", "raw")] * (len(usual) // 6)])
    return st.builds(lambda pair, count: Family(pair[0], pair[1], count), chosen, st.sampled_from((4, 4, 4, 5, 0, 300)))


@st.composite
def requests(draw: st.DrawFn, family: Family) -> Request:
    """Draw a request of a family, or seldom one that has nothing to do with it."""
    trace = draw(st.sampled_from((b"00-1", b"00-2", b"00-3", b"")))
    traced = [(b"Traceparent", trace)] * bool(trace)
    if draw(st.integers(0, 9)) == 9:
        method = draw(st.sampled_from((b"GET", b"GET", b"HEAD", b"OPTIONS", b"DELETE")))
        target = draw(st.sampled_from(_GETS))
        return written(b"%b %b HTTP/1.1" % (method, target), [(b"Host", b"x"), *traced], b"")
    changes = draw(st.sets(st.sampled_from(_CHANGES), min_size=1, max_size=2)) if draw(st.booleans()) else set()
    text, binary = _body(draw, family, changes)
    body = text + binary
    lines = _fields(draw, family, changes, len(text))
    if "compression" in changes:
        body = gzip.compress(body, mtime=0)
        lines.append((b"Content-Encoding", b"gzip"))
    if "framing" in changes and "version" not in changes:
        body = _chunked(body, draw(st.sampled_from((1, 50, 1000))))
        lines.append((b"Transfer-Encoding", b"chunked"))
    else:
        lines.append((b"Content-Length", b"%d" % len(body)))
    lines += traced
    if "order" in changes:
        lines = lines[::-1]
    if "case" in changes:
        lines = [(name.upper() if draw(st.booleans()) else name.lower(), value) for name, value in lines]
    colon = draw(st.sampled_from((b":", b":  ", b":\t"))) if "blanks" in changes else b": "
    return written(_first_line(draw, family.model, changes), lines, body, colon)


def _fields(draw: st.DrawFn, family: Family, changes: set[str], header_length: int) -> list[Line]:
    """Draw the fields that do not say how the body is sent."""
    lines = [] if "host" in changes else [(b"Host", b"x")]
    if "length" in changes:
        named = draw(st.sampled_from((*NAMED, str(header_length + 1), None)))
        lines += [] if named is None else [(LENGTH, named.encode())]
    elif family.form != "json":
        lines.append((LENGTH, b"%d" % header_length))
    if "nothing" in changes:
        lines.append((draw(st.sampled_from(OPTIONAL)), draw(st.sampled_from(NOTHING))))
    if "extra" in changes:
        for name, value in draw(st.sampled_from(EXTRA)):
            lines.insert(draw(st.integers(0, len(lines))), (name, value.replace(b"%d", b"%d" % header_length)))
    return lines


def _body(draw: st.DrawFn, family: Family, changes: set[str]) -> tuple[bytes, bytes]:
    """Draw the JSON header, and what follows it."""
    first = draw(st.sampled_from(STATUSES)) if b"fail" in family.model else draw(st.integers(0, 2))
    tensor, binary = _tensor(family.count, first, is_binary=family.form != "json")
    if family.form == "raw":
        return b"", binary
    id_ = draw(st.sampled_from(IDS)) if "id" in changes else draw(st.sampled_from((_USUAL_ID, _USUAL_ID, IDS[0])))
    end = draw(st.sampled_from(PARAMETERS)) if "parameters" in changes else b'"parameters":{"binary_data_output":true}'
    text = b"{%b%b,%b}" % (id_, b'"inputs":[%b]' % tensor, end)
    if "damage" in changes:
        text = draw(
            st.sampled_from((text[:-1], text + b" ", text.replace(b"FP32", b"FP16"), b"x" + text, text + b"\0"))
        )
    return text, binary


def _first_line(draw: st.DrawFn, model: bytes, changes: set[str]) -> bytes:
    path = draw(st.sampled_from(PATHS)) if "path" in changes else b"/v2/models/%b/infer"
    method = draw(st.sampled_from((b"HEAD", b"PUT", b"GET"))) if "method" in changes else b"POST"
    version = b"1.0" if "version" in changes else b"1.1"
    return b"%b %b HTTP/%b" % (method, path % model, version)
