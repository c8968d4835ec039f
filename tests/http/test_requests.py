"""Requests: their bytes are those of h11, in every form that a client may give them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, cast

import h11
import pytest

from streamcodec import LocalProtocolError
from streamcodec.http import ClientConnection
from streamcodec.http import writing as room
from streamcodec.http.heads.statuses import Field
from tests.effort import IS_EXHAUSTIVE
from tests.http.responses.test_responses import NAMES, NOT_HTTP, PARTS, VALUES

METHODS: Final = ("GET", "POST", "HEAD", "frob", "", "G T", "G\u00e9T", "G:T")
TARGETS: Final = ("/", "/v2?x=%20", "*", "http://x/", "", "/a b", "/\u00e9", "/a\r\nX: y", "/\x7f")
HOST: Final[Field] = ("Host", "x")

Outcome = tuple[bytes, bool] | None
"""The bytes, and whether the connection can be used again; None if the request is refused."""


def by_h11(method: str, target: str, fields: Sequence[Field], parts: Sequence[bytes]) -> Outcome:
    """Let h11 write a request."""
    http = h11.Connection(h11.CLIENT)
    try:
        named = cast("list[tuple[str, str]]", list(fields))
        sent = http.send(h11.Request(method=method, target=target, headers=named)) or b""
        for part in parts:
            sent += http.send(h11.Data(data=part)) or b""
        sent += http.send(h11.EndOfMessage()) or b""
    except NOT_HTTP:
        return None
    return sent, http.our_state is not h11.MUST_CLOSE


def by_connection(method: str, target: str, fields: Sequence[Field], parts: Sequence[bytes]) -> Outcome:
    """Let a connection write it, and answer it."""
    connection = ClientConnection()
    try:
        sent = connection.send_request(method, target, fields, parts)
    except LocalProtocolError:
        assert connection.is_reusable
        return None
    connection.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    connection.next_event()
    connection.incoming.next_cycle()
    connection._method = None  # noqa: SLF001 - as after the end of the body
    return b"".join(sent), connection.is_reusable


def compare(method: str, target: str, fields: Sequence[Field], parts: Sequence[bytes]) -> Outcome:
    """Compare the two; return what both did."""
    expected = by_h11(method, target, fields, parts)
    for _ in range(2):
        assert by_connection(method, target, fields, parts) == expected, (method, target, fields, parts)
    return expected


def test_requests_are_those_of_h11() -> None:
    choice = random.Random(0)  # noqa: S311 - to be repeated, not secret
    count = 100_000 if IS_EXHAUSTIVE else 3_000
    names: list[str | bytes] = [*NAMES[:11], "Host", b"host"]
    all_names = [*names, *NAMES[13:]]  # in chunks: see below
    outcomes = []
    for _ in range(count):
        drawn = (all_names if choice.random() < 0.1 else names, VALUES if choice.random() < 0.3 else VALUES[9:18])
        fields = [cast("Field", tuple(map(choice.choice, drawn))) for _ in range(choice.randrange(4))]
        if choice.random() < 0.9:
            fields.insert(choice.randrange(len(fields) + 1), HOST)
        if choice.random() < 0.5:
            fields.append(("Content-Length", "5"))
        is_usual = choice.random() < 0.8
        method = choice.choice(METHODS[:4] if is_usual else METHODS)
        target = choice.choice(TARGETS[:4] if is_usual else TARGETS)
        outcomes.append(compare(method, target, fields, choice.choice(PARTS)))
    assert 0.1 * count < outcomes.count(None) < 0.9 * count


@pytest.mark.parametrize("parts", PARTS)
def test_requests_in_chunks_are_those_of_h11(parts: tuple[bytes, ...]) -> None:
    fields: list[Field] = [HOST, ("X", "y"), ("transfer-encoding", "Chunked")]
    expected = by_h11("POST", "/", fields, parts)
    found = by_connection("POST", "/", fields, parts)
    assert expected is not None
    assert found is not None
    line = b"transfer-encoding: chunked\r\n"  # its form is ours
    assert found[0].replace(b"Transfer-Encoding: chunked\r\n", line) == expected[0]


def test_a_request_in_chunks_has_no_length() -> None:
    fields: list[Field] = [HOST, ("Transfer-Encoding", "chunked"), ("Content-Length", "5")]
    assert by_connection("POST", "/", fields, [b"12345"]) is None
    assert by_connection("POST", "/", [HOST, ("Transfer-Encoding", "gzip")], ()) is None
    with pytest.raises(LocalProtocolError, match="Illegal characters in the method or target"):
        ClientConnection().send_request("GET", "/a b", [HOST], ())


def test_what_may_be_a_secret_is_not_remembered() -> None:
    """Fields in bytes have come from somebody else, and may be his secrets; so may be credentials."""
    for field in ((b"X", b"secret"), ("X", b"secret"), ("COOKIE", "its secret"), ("Authorization", "its secret")):
        assert compare("GET", "/", [HOST, cast("Field", field)], ()) is not None
    assert not any(b"secret" in field or "its secret" in field for field in room._known_lines)  # noqa: SLF001 - nobody else can tell
