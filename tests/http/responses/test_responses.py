"""Responses: their bytes, and what comes after them, are those of h11, for every kind of request."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, cast

import h11
import pytest

from streamcodec import LocalProtocolError
from streamcodec.http import Collector, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.http import writing as room
from streamcodec.http.heads.statuses import Field, checked_status, fields_for, has_content, phrase_of
from streamcodec.http.responses import response_head
from tests.effort import IS_EXHAUSTIVE
from tests.http.messages import head

HOST: Final = b"Host: x"
LONG: Final = b"Content-Length: 99999999"
REQUESTS: Final = {
    "plain": head(b"GET / HTTP/1.1", HOST),
    "closing": head(b"GET / HTTP/1.1", HOST, b"Connection: close"),
    "closing among others": head(b"GET / HTTP/1.1", HOST, b"Connection: x, Close"),
    "upgrading": head(b"GET / HTTP/1.1", HOST, b"Connection: Upgrade", b"Upgrade: websocket"),
    "HEAD": head(b"HEAD / HTTP/1.1", HOST),
    "closing HEAD": head(b"HEAD / HTTP/1.1", HOST, b"Connection: close"),
    "1.0": head(b"GET / HTTP/1.0", HOST),
    "1.0, kept": head(b"GET / HTTP/1.0", HOST, b"Connection: keep-alive"),
    "HEAD of 1.0": head(b"HEAD / HTTP/1.0", HOST),
    "1.2": head(b"GET / HTTP/1.2", HOST),
    "a short body": head(b"POST / HTTP/1.1", HOST, b"Content-Length: 5"),
    "a long body": head(b"POST / HTTP/1.1", HOST, LONG),
    "a long body, closing": head(b"POST / HTTP/1.1", HOST, LONG, b"Connection: close"),
    "a long body of 1.0": head(b"POST / HTTP/1.0", HOST, LONG),
    "chunks": head(b"POST / HTTP/1.1", HOST, b"Transfer-Encoding: chunked"),
    "chunks that have come": head(b"POST / HTTP/1.1", HOST, b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "an expectation": head(b"POST / HTTP/1.1", HOST, b"Content-Length: 5", b"Expect: 100-continue"),
}

NAMES: Final[Sequence[str | bytes]] = (
    "Content-Type", "content-type", "X", "Date", b"x-raw", "Inference-Header-Content-Length", "Connection",
    b"connection", "Content-Length", "content-length", b"Content-Length", "Transfer-Encoding", "transfer-encoding", "",
    "X Y", "X:", "\u00e9", b"\xff", "X\r\nY",
)  # fmt: skip
VALUES: Final[Sequence[str | bytes]] = (
    "5", "5, 5", "05", "5, 6", "0", "9" * 20, "9" * 21, "+5", "\u00b2", "close", "Close, x", "keep-alive",
    "x, , keep-alive", "", "chunked", "Chunked", "gzip", "a/b", "a  b\tc", " a", "a ", "a\x0bb", "a\nb", "a\r\nX: y",
    "a\0", "\x01", "\u00e9", b"5", b"\xff", b"a b", "y" * 300,
)  # fmt: skip
STATUSES: Final = (200, 200, 200, 204, 205, 299, 304, 404, 431, 503, 100, 600)
PARTS: Final[Sequence[Sequence[bytes]]] = ((), (b"12345",), (b"12", b"345"), (b"12", b"", b"345"), (b"",), (b"1" * 20,))

NOT_HTTP: Final = (h11.LocalProtocolError, UnicodeEncodeError)
Outcome = tuple[bytes, bool] | None
"""The bytes, and whether the connection is closed; None if the response is refused."""


def by_h11(
    text: bytes, status: int, fields: Iterable[Field], parts: Sequence[bytes], *, in_pieces: bool, is_last: bool
) -> Outcome:
    """Let h11 write a response."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(text)
    http.next_event()
    parts = parts if has_content(status) else ()
    length = sum(map(len, parts))
    found = fields_for(status, fields, None if in_pieces else length) + [("Connection", "close")] * is_last
    try:
        named = cast("list[tuple[str, str]]", found)
        response = h11.Response(status_code=checked_status(status), headers=named, reason=phrase_of(status).encode())
        has_body = status not in {204, 304} and not text.startswith(b"HEAD")
        declared = [int(value) for name, value in response.headers if name == b"content-length"]
        if has_body and not in_pieces and declared != [length]:
            return None
        sent = http.send(response) or b""
        for part in parts if has_body or in_pieces else ():
            sent += http.send(h11.Data(data=part)) or b""
        sent += http.send(h11.EndOfMessage()) or b""
    except (*NOT_HTTP, LocalProtocolError):
        return None
    return sent, is_last or http.our_state is h11.MUST_CLOSE


def by_connection(
    text: bytes, status: int, fields: Iterable[Field], parts: Sequence[bytes], *, in_pieces: bool
) -> Outcome:
    """Let a connection write it."""
    connection = ServerConnection()
    connection.feed(text)
    assert isinstance(connection.next_event(), RequestHead)
    if text.endswith(b"\r\n0\r\n\r\n"):
        connection.receive_body(Collector(9))
        connection.next_event()
    try:
        if in_pieces:
            sent = connection.begin_response(status, fields)
            sent += b"".join(b"".join(connection.response_piece(part)) for part in parts)
            sent += connection.end_response()
        else:
            sent = b"".join(connection.send_response(status, cast("Iterable[tuple[str, str]]", fields), parts))
    except LocalProtocolError:
        return None
    return sent, isinstance(connection.next_event(), ConnectionClosed)


def compare(
    name: str, status: int, fields: Sequence[Field], parts: Sequence[bytes], *, in_pieces: bool = False
) -> Outcome:
    """Compare the two for a request; return what both did."""
    text = REQUESTS[name]
    is_last = "long" in name or name in {"chunks", "an expectation"}  # the rest of the request is not known to be short
    expected = by_h11(text, status, fields, parts, in_pieces=in_pieces, is_last=is_last)
    for _ in range(2):  # checked for the first time, and again
        found = by_connection(text, status, fields, parts, in_pieces=in_pieces)
        assert found == expected, (name, status, fields, parts, in_pieces)
    return expected


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("in_pieces", [False, True])
def test_responses_are_those_of_h11(name: str, *, in_pieces: bool) -> None:
    choice = random.Random(name)  # noqa: S311 - to be repeated, not secret
    count = 20_000 if IS_EXHAUSTIVE else 400
    outcomes = []
    for _ in range(count):
        names = NAMES if choice.random() < 0.2 else NAMES[:13]
        values = VALUES if choice.random() < 0.5 else VALUES[9:18]
        fields = [cast("Field", (choice.choice(names), choice.choice(values))) for _ in range(choice.randrange(4))]
        status, parts = choice.choice(STATUSES), choice.choice(PARTS)
        outcomes.append(compare(name, status, fields, parts, in_pieces=in_pieces))
    assert 0.1 * count < outcomes.count(None) < 0.9 * count


@pytest.mark.parametrize(
    "fields", [[("X", "y"), ("Date", "now")], [("X", "y"), ("Content-Length", "5"), ("Date", "now")]]
)
@pytest.mark.parametrize("name", REQUESTS)
def test_usual_responses_are_those_of_h11(name: str, fields: list[Field]) -> None:
    for in_pieces in (False, True):
        for parts in PARTS[:4]:
            compare(name, 200, fields, parts, in_pieces=in_pieces)


def test_the_head_alone() -> None:
    fields: list[Field] = [("Content-Type", "a/b"), ("Date", "now")]
    for length in (0, 7, 10**18):
        expected = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nDate: now\r\nContent-Length: %d\r\n\r\n" % length
        assert response_head(200, fields, length) == expected
    assert response_head(204, fields, 0) == b"HTTP/1.1 204 No Content\r\nContent-Type: a/b\r\nDate: now\r\n\r\n"
    assert response_head(499, (), 0) == b"HTTP/1.1 499 \r\nContent-Length: 0\r\n\r\n"


def test_what_was_checked_is_remembered_within_bounds() -> None:
    for number in range(2000):
        assert b"\r\nX: v%d\r\n" % number in response_head(200, [("X", f"v{number}")], 0)
        assert b"\r\nX-%d: 7\r\n" % number in response_head(200, [(f"X-{number}", "7")], 0)
        assert len(room._known_lines) <= 512  # noqa: SLF001 - nobody else can tell
        assert len(room._known_names) <= 512  # noqa: SLF001 - nobody else can tell
    known = len(room._known_lines)  # noqa: SLF001 - nobody else can tell
    for number in range(20):
        response_head(200, [("Inference-Header-Content-Length", str(number)), ("X", "y" * 300)], number)
        response_head(200, [("X" * 300, "5")], number)
    assert len(room._known_lines) == known  # noqa: SLF001 - nobody else can tell


def test_text_and_bytes_are_told_apart() -> None:
    for _ in range(2):
        assert b"\r\nX: \xe9\r\n" in response_head(200, [(b"X", b"\xe9")], 0)
        with pytest.raises(LocalProtocolError):
            response_head(200, [("X", "\u00e9")], 0)


def test_pieces_and_probes_have_their_time() -> None:
    connection = ServerConnection()
    connection.feed(REQUESTS["plain"])
    connection.next_event()
    with pytest.raises(LocalProtocolError, match="follows begin_response"):
        connection.response_piece(b"x")
    connection.begin_response(200)
    with pytest.raises(LocalProtocolError, match="is being answered"):
        connection.interim()
    assert connection.response_piece(b"x") == [b"1\r\n", b"x", b"\r\n"]
    assert connection.end_response() == b"0\r\n\r\n"
