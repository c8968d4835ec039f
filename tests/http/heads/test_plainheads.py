"""Plain heads: what is plain, what is left to h11, and that nobody can tell who has read a head."""

from __future__ import annotations

import pytest

from streamcodec import DEFAULT_LIMITS, LimitExceededError, Limits
from streamcodec.http.heads.parsed import check_head
from streamcodec.http.heads.plain import read_plain_head
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import http_parts
from tests.effort import IS_EXHAUSTIVE, parts
from tests.http.heads.plainheads import CLIENTS, SERVERS, check, check_response, compared, compared_responses, ordinary
from tests.http.messages import head

LINE = b"POST /x HTTP/1.1"
HOST = b"Host: x"
CASES = [case for case in read_corpus() if case.kind == "http-request"]

PLAIN = {
    "no body": (LINE, HOST),
    "the longest number": (LINE, HOST, b"Content-Length: " + b"9" * 15),
    "zeros": (LINE, HOST, b"Content-Length: 007"),
    "chunks": (LINE, HOST, b"Transfer-Encoding: chunked"),
    "no blank": (LINE, b"Host:x", b"Content-Length:5"),
    "many blanks": (LINE, b"Host: \t  x", b"X:  a  b\tc"),
    "an empty value": (LINE, HOST, b"X:"),
    "an empty host": (LINE, b"Host:"),
    "other letters": (LINE, b"hOST: X", b"CONNECTION: Keep-Alive"),
    "a closing client": (LINE, HOST, b"Connection: CLOSE"),
    "bytes beyond ASCII": (LINE, HOST, b"X: \x80\xff"),
    "a target with everything": (b"GET /!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ HTTP/1.1", HOST),
    "fields twice": (LINE, b"X: a", HOST, b"Content-Length: 5", b"x: b", b"X: a"),
    "an encoding": (LINE, HOST, b"Content-Encoding: br"),
    "gzip": (LINE, HOST, b"Content-Encoding: gzip", b"Content-Length: 5"),
    "gzip twice": (LINE, HOST, b"Content-Encoding: GZip", b"content-encoding: gzip", b"Content-Length: 5"),
}

LEFT = {
    "another version": (b"GET / HTTP/1.0", HOST),
    "a higher version": (b"GET / HTTP/1.2", HOST),
    "another method": (b"FROB / HTTP/1.1", HOST),
    "a tunnel": (b"CONNECT /x HTTP/1.1", HOST),
    "a method in small letters": (b"get / HTTP/1.1", HOST),
    "a whole address": (b"GET http://x/ HTTP/1.1", HOST),
    "no path": (b"OPTIONS * HTTP/1.1", HOST),
    "a blank in the target": (b"GET /a b HTTP/1.1", HOST),
    "two blanks": (b"GET  / HTTP/1.1", HOST),
    "a byte beyond ASCII in the target": (b"GET /\xff HTTP/1.1", HOST),
    "no host": (LINE,),
    "no host, but others": (LINE, b"X: y"),
    "two hosts": (LINE, HOST, b"host: x"),
    "a bad host": (LINE, b"Host: a b"),
    "an address as host": (LINE, b"Host: http://x"),
    "too long a number": (LINE, HOST, b"Content-Length: " + b"9" * 16),
    "a sign": (LINE, HOST, b"Content-Length: +5"),
    "no number": (LINE, HOST, b"Content-Length:"),
    "digits beyond ASCII": (LINE, HOST, b"Content-Length: \xb2"),
    "two numbers": (LINE, HOST, b"Content-Length: 5, 5"),
    "two lengths": (LINE, HOST, b"Content-Length: 5", b"content-length: 5"),
    "length and chunks": (LINE, HOST, b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunks in large letters": (LINE, HOST, b"Transfer-Encoding: Chunked"),
    "another coding": (LINE, HOST, b"Transfer-Encoding: gzip, chunked"),
    "an expectation": (LINE, HOST, b"Expect: 100-continue"),
    "an upgrade": (LINE, HOST, b"Connection: Upgrade", b"Upgrade: h2c"),
    "an upgrade alone": (LINE, HOST, b"Upgrade: h2c"),
    "several options": (LINE, HOST, b"Connection: keep-alive, X"),
    "an empty option": (LINE, HOST, b"Connection:"),
    "a meaningful field twice": (LINE, HOST, b"Accept-Encoding: a", b"accept-encoding: b"),
    "a blank behind a value": (LINE, HOST, b"X: a "),
    "a tab behind a value": (LINE, HOST, b"X: a\t"),
    "a blank behind a name": (LINE, HOST, b"X : a"),
    "a blank before a name": (LINE, HOST, b" X: a"),
    "a folded line": (LINE, HOST, b"X: a", b"\tb"),
    "a folded line at once": (LINE, b" X: a", HOST),
    "no colon": (LINE, HOST, b"X"),
    "no name": (LINE, HOST, b": a"),
    "an empty line": (LINE, HOST, b"", b"X: a"),
    "a bare line feed": (LINE, HOST, b"X: a\nY: b"),
    "a bare carriage return": (LINE, HOST, b"X: a\rb"),
    "an end without carriage return": (LINE, HOST + b"\n"),
    "a control character before a name": (LINE, HOST, b"\x0bX: a"),
    "a control character in a name": (LINE, HOST, b"X\0: a"),
    "a control character in a value": (LINE, HOST, b"X: a\x01"),
    "a delete": (LINE, HOST, b"X: \x7f"),
}  # fmt: skip


@pytest.mark.parametrize("lines", PLAIN.values(), ids=PLAIN)
def test_a_plain_head_is_read_as_by_h11(lines: tuple[bytes, ...]) -> None:
    assert check(head(*lines))


@pytest.mark.parametrize("lines", LEFT.values(), ids=LEFT)
def test_all_else_is_left_to_h11(lines: tuple[bytes, ...]) -> None:
    assert not check(head(*lines))


@pytest.mark.parametrize("text", CLIENTS.values(), ids=CLIENTS)
def test_the_heads_of_usual_clients_are_plain(text: bytes) -> None:
    assert check(text)
    for cut in range(len(text)):
        assert not check(text[:cut])


@pytest.mark.parametrize("byte", range(256))
def test_each_byte_in_each_part_of_a_head(byte: int) -> None:
    for part in (b"G%bT / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET / HTTP/1.1\r\n%bHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x%by\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nX%bY: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX:%ba\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nX: a%bb\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: a%b\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1%b2\r\n\r\n"):  # fmt: skip
        check(part % bytes([byte]))


@pytest.mark.parametrize("more", [0, 1])
def test_the_limits_are_those_of_all_heads(more: int) -> None:
    """At each bound a head is plain, and beyond it h11's way refuses it."""
    text = head(LINE, HOST, b"Content-Type: " + b"y" * 40, b"X: " + b"z" * 60)
    for limits in (
        Limits(max_head_fields=3 - more),
        Limits(max_field_bytes=40 - more),
        Limits(max_head_bytes=len(text) - more),
    ):
        assert check(text, limits) == (not more)
        if limits.max_head_bytes >= len(text):  # the connection counts the bytes of a head
            assert (ordinary(text, limits) is None) == bool(more)


def test_a_long_value_without_a_meaning_is_plain() -> None:
    assert check(head(LINE, HOST, b"Cookie: " + b"y" * (DEFAULT_LIMITS.max_field_bytes + 1)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cases_of_the_corpus(case: Case) -> None:
    check(http_parts(case)[0])


def test_most_heads_of_the_corpus_are_plain() -> None:
    accepted = [http_parts(case)[0] for case in CASES if case.outcome == "accepted"]
    assert sum(map(check, accepted)) > 0.5 * len(accepted)


@pytest.mark.parametrize("part", parts(10))
def test_mutants(part: int) -> None:
    kinds = compared(100_000 if IS_EXHAUSTIVE else 5_000, part)
    assert 0.2 < kinds[True] / kinds.total() < 0.5


@pytest.mark.parametrize("text", SERVERS.values(), ids=SERVERS)
def test_the_heads_of_usual_servers_are_plain(text: bytes) -> None:
    assert check_response(text)
    assert check_response(text, method="HEAD")
    for cut in range(len(text)):
        assert not check_response(text[:cut])


LEFT_RESPONSES = {
    "an interim one": (b"HTTP/1.1 100 Continue",),
    "no status": (b"HTTP/1.1 99 X",),
    "no final status": (b"HTTP/1.1 600 X",),
    "another version": (b"HTTP/1.0 200 OK",),
    "no blank": (b"HTTP/1.1 200OK",),
    "a control character": (b"HTTP/1.1 200 O\0K",),
    "length and chunks": (b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "a folded line": (b"HTTP/1.1 200 OK", b"X: a", b" b"),
    "two lengths": (b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Content-Length: 5"),
}


@pytest.mark.parametrize("lines", LEFT_RESPONSES.values(), ids=LEFT_RESPONSES)
def test_other_responses_are_left_to_h11(lines: tuple[bytes, ...]) -> None:
    assert not check_response(head(*lines))


def test_the_limits_of_responses() -> None:
    text = head(b"HTTP/1.1 200 " + b"y" * 50, b"X: " + b"z" * 60)
    for most, is_plain in ((63, True), (62, False)):
        assert check_response(text, Limits(max_field_bytes=most)) == is_plain
    assert check_head(text, Limits(max_field_bytes=63)) is None  # type: ignore[func-returns-value]  # it does not raise
    with pytest.raises(LimitExceededError):
        check_head(text, Limits(max_field_bytes=62))


@pytest.mark.parametrize("part", parts(10))
def test_mutants_of_responses(part: int) -> None:
    kinds = compared_responses(100_000 if IS_EXHAUSTIVE else 5_000, part)
    assert 0.2 < kinds[True] / kinds.total() < 0.6


def test_a_head_is_immutable() -> None:
    plain = read_plain_head(CLIENTS["curl"], DEFAULT_LIMITS)
    assert plain is not None
    with pytest.raises(AttributeError):
        plain.method = "PUT"  # type: ignore[misc]  # this is the point
    with pytest.raises(AttributeError):
        plain.fields.items = ()  # type: ignore[misc]  # this is the point
    assert hash(plain) == hash(ordinary(CLIENTS["curl"], DEFAULT_LIMITS)[0])  # type: ignore[index]  # it is accepted
