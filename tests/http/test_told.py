"""What is told: the words for a peer's mistakes and an owner's, and where they were found; and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streamcodec import EndOfMessage, LimitExceededError, Limits, RemoteProtocolError, request_decoder
from streamcodec.engine.compression.inflate import Inflater
from streamcodec.engine.events import NEED_DATA
from streamcodec.http import ClientConnection, Collector, RequestHead, ResponseHead, ServerConnection
from streamcodec.http.bodies.chunks import Chunks
from tests.http.driver import Driver, client, raises_local, server
from tests.http.messages import BODY, GET, IHCL, chunked, framed, head, length, post

CHUNKED = b"Transfer-Encoding: chunked"

MAX_LINE = Limits().max_head_bytes


def told(driver: Driver, message: bytes) -> str:
    """The message of the one error of a connection whose peer sends this and no more."""
    driver.push(message)
    if not driver.is_over:
        driver.end()
    (error,) = [entry for entry in driver.log if entry[0] == "error"]
    return str(error[3])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (framed(BODY, IHCL)[:-1], "the connection ended in the middle of the body"),
        (framed(BODY + b"x", IHCL, sizes=[50]), "the body goes on after the message has ended"),
        (
            post(CHUNKED, IHCL) + b"size\r\n",
            "the line before a chunk is not a hexadecimal size with optional extensions",
        ),
        (post(CHUNKED, IHCL) + b"1\r\n{..", "the data of a chunk do not end where its size says"),
        (
            post(CHUNKED, IHCL) + b"1;" + b"e" * MAX_LINE,
            f"the line before a chunk has more than {MAX_LINE} bytes",
        ),
        (framed(BODY, IHCL, sizes=[50])[:-2] + b"no field\r\n", "the line after the last chunk is not a header field"),
        (
            framed(BODY, IHCL, sizes=[50])[:-2] + b"X: " + b"y" * MAX_LINE,
            f"the trailers have more than {MAX_LINE} bytes",
        ),
        (GET[:-2], "the connection ended in the middle of a head"),
        (b"\x16\x03\x01", "the first line starts with a control character; is this TLS?"),
        (b"GET /" + b"x" * MAX_LINE, f"the first line of the head has more than {MAX_LINE} bytes"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_LINE, f"the head has more than {MAX_LINE} bytes"),
        (head(b"CONNECT x:80 HTTP/1.1", b"Host: x"), "CONNECT is not supported: this server is not a proxy"),
        (post(b"Expect: wonders"), "100-continue is the only supported Expect"),
        (post(CHUNKED, length(BODY)), "Content-Length and Transfer-Encoding exclude each other"),
        (post(CHUNKED, version=b"1.0"), "HTTP/1.0 has no Transfer-Encoding"),
        (head(b"GET / HTTP/2.0", b"Host: x"), "only HTTP/1.x is supported"),
        (head(b"GET / HTTP/1.2"), "the field Host is missing"),
        (head(b"GET / HTTP/1.1", b"Host: a b"), "the field Host is not a valid host"),
        (head(b"GET / HTTP/1.1", b"Host: x", b"X: a\r\n b"), "a field of the head is folded into several lines"),
        (head(b"GET / HTTP/1.1", b"Host: x", b"X: \x01"), "the head has a control character"),
        (
            GET.replace(b"\r\n", b"\n"),
            "a line of the head does not end with carriage return and line feed, or has one of them within",
        ),
    ],
)
def test_what_a_client_is_told(message: bytes, text: str) -> None:
    assert told(server(), message) == text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (head(b"HTTP/1.1 999 Far"), "the status of the response is not in the range 100 to 599"),
        (head(b"HTTP/1.1 103 Hints") * 9_000, f"the interim responses have more than {MAX_LINE} bytes"),
        (b"", "the server closed the connection without an answer"),
    ],
)
def test_what_is_told_of_a_server(message: bytes, text: str) -> None:
    assert told(client(), message) == text


def test_that_a_server_switches_protocols_is_told() -> None:
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x"), ("Upgrade", "wonders"), ("Connection", "Upgrade")])
    switch = head(b"HTTP/1.1 101 Switching Protocols", b"Upgrade: wonders", b"Connection: Upgrade")
    assert told(Driver(connection), switch) == "the server switches protocols without having been asked"


def test_where_a_body_broke_off_is_told() -> None:
    driver = server()
    told(driver, framed(BODY, IHCL)[:-3])
    assert [entry[4] for entry in driver.log if entry[0] == "error"] == [len(BODY) - 3]


def test_where_a_body_had_too_much_is_told() -> None:
    driver = server()
    told(driver, framed(BODY + b"more", IHCL, sizes=[50]))
    assert [entry[4] for entry in driver.log if entry[0] == "error"] == [len(BODY)]


def test_that_memory_is_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Iterator[bytes]:
        yield from ()
        raise MemoryError

    monkeypatch.setattr(Inflater, "inflate", fail)
    message = framed(BODY, IHCL, b"Content-Encoding: gzip")
    assert told(server(), message) == "there is no memory to decompress the body"


# The owner's mistakes


def _server_at_head() -> ServerConnection:
    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)))
    assert isinstance(connection.next_event(), RequestHead)
    return connection


def _asked() -> ClientConnection:
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x")])
    return connection


def _complete() -> Collector:
    collector = Collector(9)
    collector.receive_eof()
    return collector


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: _asked().send_request("GET", "/", [("Host", "x")]),
            "the connection cannot take a request now: read the last response to its end, or open another",
        ),
        (
            lambda: ClientConnection().send_request("CONNECT", "x:80", [("Host", "x")]),
            "CONNECT is not supported: it opens a tunnel, and this connection reads only HTTP",
        ),
        (lambda: ClientConnection().send_request("GET", "/", []), "Missing mandatory Host: header"),
        (
            ClientConnection().next_event,
            "send_request() comes before next_event(), and receive_body() after a ResponseHead",
        ),
        (_complete().get_buffer, "the body is complete"),
        (_server_at_head().get_buffer, "no bytes can be taken now; call next_event() until it returns NEED_DATA"),
        (
            lambda: ServerConnection().buffer_updated(0),
            "0 bytes cannot have been written to a buffer of 0; the end of input is receive_eof()",
        ),
        (lambda: ServerConnection().buffer_updated(1), "1 bytes cannot have been written to a buffer of 0"),
        (lambda: ServerConnection().incoming.remaining, "there is no body to be read"),
        (
            lambda: ServerConnection().receive_body(Collector(0)),
            "receive_body() must follow the head of a message, once",
        ),
        (lambda: ServerConnection().send_response(200), "there is no request to be answered"),
        (
            _server_at_head().next_event,
            "a request is waiting: receive_body() if it has a body to be read, else send_response()",
        ),
        (
            lambda: _server_at_head().send_response(200, [("Content-Length", "5")], [b"1234"]),
            "Content-Length is 5, the body has 4 bytes",
        ),
    ],
)
def test_what_an_owner_is_told(call: Callable[[], object], text: str) -> None:
    assert raises_local(call) == text


# What is counted and kept


def test_nothing_has_come_before_anything_comes() -> None:
    incoming = ServerConnection().incoming
    assert (incoming.received, incoming.received_direct, incoming.received_copied, incoming.unsettled) == (0, 0, 0, 0)
    assert (incoming.head_bytes, incoming.kept) == (0, 0)
    assert (incoming.is_filling, incoming.is_eof, incoming.has_work, incoming.has_input) == (False,) * 4


def test_every_byte_is_counted_once_however_it_came() -> None:
    connection = ServerConnection()
    request = post(IHCL, length(BODY))
    connection.feed(request)
    connection.next_event()
    connection.receive_body(request_decoder(header_length=len(BODY), body_length=len(BODY)))
    connection.feed(BODY[:50])
    assert connection.incoming.received == len(request) + 50
    assert connection.incoming.remaining == len(BODY) - 50


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_collector_keeps_no_more_than_it_may_however_that_comes(size: int) -> None:
    collector = Collector(8)
    for start in range(0, 30, size):
        collector.feed(bytes(range(start, min(start + size, 30))))
    assert collector.data == bytes(range(8))
    assert collector.offset == 30


@pytest.mark.parametrize(("most", "text"), [(0, "0"), (6, "6")])
def test_a_collector_tells_how_much_it_has_dropped(most: int, text: str) -> None:
    collector = Collector(4, max_dropped_bytes=most)
    collector.feed(bytes(4 + most))
    assert collector.next_event() is NEED_DATA
    collector.feed(b"x")
    with pytest.raises(LimitExceededError) as caught:
        collector.next_event()
    assert caught.value.message == f"the body goes on {text} bytes after the 4 that are kept"
    assert caught.value.offset == 4 + most


def test_a_connection_that_is_not_paced_reads_chunks_of_any_number_at_once() -> None:
    for connection in (ServerConnection(), ClientConnection()):
        if isinstance(connection, ClientConnection):
            connection.send_request("GET", "/", [("Host", "x")])
            connection.feed(head(b"HTTP/1.1 200 OK", CHUNKED))
        else:
            connection.feed(post(CHUNKED))
        assert isinstance(connection.next_event(), RequestHead | ResponseHead)
        connection.receive_body(Collector(0))
        connection.feed(chunked(bytes(9000), [1]))
        assert connection.next_event() == EndOfMessage(nbytes=9000)


def test_the_usual_lines_between_chunks_are_read_as_one_within_the_least_limit() -> None:
    chunks = Chunks(Limits(max_head_bytes=19))
    assert chunks.read(memoryview(b"1\r\n")) == 3
    chunks.data_received(1)
    assert chunks.join_short(memoryview(b"\r\n2\r\nab\r\n")) == (bytearray(b"ab"), 7)
    with pytest.raises(RemoteProtocolError):
        chunks.read(memoryview(b"no line end"))
