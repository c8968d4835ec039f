"""The client's connection: responses one after the other, and when there can be no next one."""

from __future__ import annotations

import gzip
from functools import partial

import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
)
from streamcodec.http import ClientConnection, Collector, ResponseHead
from tests.http.driver import Driver, client, refuses, triad
from tests.http.messages import RESPONSE, body_of, chunked, head, response

IHCL = b"Inference-Header-Content-Length: %d" % (RESPONSE.header_length or 0)
ANSWER = response(body_of(RESPONSE), IHCL)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

collect = partial(client, lambda _: Collector(100))


def asked(method: str = "GET", *fields: tuple[str, str]) -> ClientConnection:
    connection = ClientConnection()
    connection.send_request(method, "/v2", [("Host", "x"), *fields])
    return connection


def test_three_requests_follow_each_other() -> None:
    connection = ClientConnection()
    for number in range(3):
        sent = connection.send_request("POST", "/", [("Host", "x"), ("Content-Length", "2")], [b"{", b"}"])
        assert sent == [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"{", b"}"]
        assert not connection.is_reusable
        assert connection.next_event() is NEED_DATA
        connection.feed(response(b"%d" % number))
        event = connection.next_event()
        assert isinstance(event, ResponseHead)
        assert (event.status, event.content_length, event.body_length) == (200, 1, 1)
        collector = Collector(9)
        connection.receive_body(collector)
        assert isinstance(connection.next_event(), EndOfMessage)
        assert collector.data == b"%d" % number
        assert connection.is_reusable


@pytest.mark.parametrize("padding", [0, 10_000])
def test_a_head_that_comes_again_says_the_same_and_to_another_method_something_else(padding: int) -> None:
    """In any order, as on connections where nothing came before; so does a head that is too long to be kept."""
    text = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX: " + b"x" * padding + b"\r\n\r\n"
    connection = ClientConnection()
    for method, length in [("GET", 5), ("GET", 5), ("HEAD", 5), ("HEAD", 5), ("GET", 5), ("GET", 4), ("HEAD", 4)]:
        heads = []
        for each in (connection, ClientConnection()):
            each.send_request(method, "/v2", [("Host", "x")])
            each.feed(text % length + (b"" if method == "HEAD" else bytes(length)))
            heads.append(each.next_event())
            each.receive_body(Collector(9))
            assert isinstance(each.next_event(), EndOfMessage)
            assert each.is_reusable
        assert [
            (head.status, head.content_length, head.fields.items) for head in heads if isinstance(head, ResponseHead)
        ] == [
            (200, 0 if method == "HEAD" else length, ((b"content-length", b"%d" % length), (b"x", b"x" * padding)))
        ] * 2


@pytest.mark.parametrize("interim", [CONTINUE, CONTINUE * 3, head(b"HTTP/1.1 103 Early Hints", b"Link: x")])
def test_interim_responses_are_read_over(interim: bytes) -> None:
    driver = triad(client, interim + ANSWER)
    assert [entry[0] for entry in driver.log] == ["head", "header", "tensor", "end"]


@pytest.mark.parametrize("fields", [[], [("Upgrade", "websocket"), ("Connection", "Upgrade")]])
def test_nobody_switches_protocols(fields: list[tuple[str, str]]) -> None:
    switch = head(b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade")

    def start() -> Driver:
        return Driver(asked("GET", *fields))

    driver = triad(start, switch)
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)


@pytest.mark.parametrize(
    ("method", "start_line", "fields"),
    [
        ("HEAD", b"HTTP/1.1 200 OK", [b"Content-Length: 100"]),
        ("HEAD", b"HTTP/1.1 200 OK", [b"Transfer-Encoding: chunked"]),
        ("HEAD", b"HTTP/1.1 200 OK", [b"Content-Length: 100", b"Content-Encoding: gzip"]),
        ("HEAD", b"HTTP/1.1 200 OK", [b"Content-Length: 100", b"Content-Encoding: br"]),
        ("GET", b"HTTP/1.1 204 No Content", []),
        ("GET", b"HTTP/1.1 304 Not Modified", [b"Content-Length: 100"]),
        ("GET", b"HTTP/1.1 200 OK", [b"Content-Length: 0"]),
        ("GET", b"HTTP/1.1 200", [b"Content-Length: 0"]),
    ],
)
def test_some_responses_have_no_body(method: str, start_line: bytes, fields: list[bytes]) -> None:
    driver = triad(partial(client, lambda _: Collector(9), method), head(start_line, *fields))
    assert [entry[0] for entry in driver.log] == ["head", "end"]
    assert driver.log[1] == ("end", 0, b"")
    assert isinstance(driver.connection, ClientConnection)


@pytest.mark.parametrize(
    ("answer", "is_reusable"),
    [
        (response(b"x"), True),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked") + chunked(b"x"), True),
        (response(b"x", b"Connection: close"), False),
        (response(b"x").replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked") + chunked(b"x") + b"junk", False),
        (response(b"x") + b"H", False),
    ],
)
def test_whether_there_can_be_a_next_request(answer: bytes, is_reusable: bool) -> None:
    driver = collect()
    driver.push(answer)
    assert driver.log[-1] == ("end", 1, b"x")
    connection = driver.connection
    assert isinstance(connection, ClientConnection)
    assert connection.is_reusable == is_reusable
    if is_reusable:
        connection.send_request("GET", "/", [("Host", "x")])
        connection.feed(answer)
        assert isinstance(connection.next_event(), ResponseHead)
    else:
        with pytest.raises(LocalProtocolError):
            connection.send_request("GET", "/", [("Host", "x")])


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    driver = collect()
    driver.push(response(b"x"))
    connection = driver.connection
    assert isinstance(connection, ClientConnection)
    connection.receive_eof()
    assert not connection.is_reusable


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", ErrorCode.INVALID_HTTP),
        (head(b"HTTP/1.1 099 Low"), ErrorCode.INVALID_HTTP),
        (head(b"HTP/1.1 200 OK"), ErrorCode.INVALID_HTTP),
        (head(b"GET / HTTP/1.1", b"Host: x"), ErrorCode.INVALID_HTTP),
        (head(b"HTTP/1.1 200 OK", b"Content-Length: -1"), ErrorCode.INVALID_HTTP),
        (head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip"), ErrorCode.INVALID_HTTP),
        (b"\x15\x03\x03\x00\x02\x02\x46", ErrorCode.INVALID_HTTP),
        (
            head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", b"Content-Length: 1"),
            ErrorCode.AMBIGUOUS_FRAMING,
        ),
        (head(b"HTTP/1.0 200 OK", b"Transfer-Encoding: chunked"), ErrorCode.AMBIGUOUS_FRAMING),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000, ErrorCode.LIMIT_EXCEEDED),
    ],
)
def test_what_is_no_response_is_refused_for_good(data: bytes, code: ErrorCode) -> None:
    driver = triad(collect, data, cuts=range(1, min(len(data), 60)))
    assert [entry[:3][2] for entry in driver.log] == [code]
    connection = driver.connection
    assert isinstance(connection, ClientConnection)
    assert not connection.is_reusable
    with pytest.raises(RemoteProtocolError):
        connection.next_event()


@pytest.mark.parametrize("cut", range(len(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")))
def test_a_connection_that_ends_before_the_answer_is_an_error(cut: int) -> None:
    driver = collect()
    driver.push((CONTINUE + head(b"HTTP/1.1 200 OK", b"Content-Length: 9"))[: cut + len(CONTINUE)])
    driver.end()
    assert refuses(driver, code=ErrorCode.CONNECTION_CLOSED, status=400)


def test_a_refused_body_is_refused_at_every_call() -> None:
    driver = client()
    driver.push(response(b"{}x", b"Inference-Header-Content-Length: 2"))
    first = driver.log[-1]
    assert first[0] == "error"
    connection = driver.connection
    assert isinstance(connection, ClientConnection)
    assert not connection.is_reusable
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert caught.value.code == first[2]


def test_an_unknown_encoding_is_refused_before_the_body() -> None:
    connection = asked()
    connection.feed(response(b"xyz", b"Content-Encoding: br"))
    event = connection.next_event()
    assert isinstance(event, ResponseHead)
    with pytest.raises(RemoteProtocolError) as caught:
        _ = event.body_length
    assert caught.value.code == ErrorCode.UNSUPPORTED_ENCODING
    with pytest.raises(RemoteProtocolError):
        connection.receive_body(Collector(9))
    assert not connection.is_reusable


def test_a_tunnel_is_not_asked_for() -> None:
    connection = ClientConnection()
    with pytest.raises(LocalProtocolError, match="tunnel"):
        connection.send_request("CONNECT", "x:80", [("Host", "x")])
    assert connection.is_reusable


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 600 Beyond", b"HTTP/1.1 999 Far", b"HTTP/1.1 099 Nearly", b"HTTP/1.1 000 Zero"]
)
def test_a_status_that_is_none_is_refused(line: bytes) -> None:
    assert refuses(triad(client, head(line, b"Content-Length: 0")), code=ErrorCode.INVALID_HTTP, status=400)


@pytest.mark.parametrize(("count", "is_read"), [(2, True), (3, False)])
def test_interim_responses_are_bounded_for_each_request(count: int, is_read: bool) -> None:
    interim = head(b"HTTP/1.1 103 Early Hints", b"X: " + b"y" * 10)
    connection = ClientConnection(Limits(max_head_bytes=2 * len(interim)))
    for _ in range(2):
        connection.send_request("GET", "/", [("Host", "x")])
        connection.feed(interim * count + response(b""))
        if is_read:
            assert isinstance(connection.next_event(), ResponseHead)
            connection.receive_body(Collector(0))
            assert isinstance(connection.next_event(), EndOfMessage)
            continue
        with pytest.raises(LimitExceededError) as caught:
            connection.next_event()
        assert caught.value.limit == "max_head_bytes"
        return


def test_a_collector_drops_so_much_and_no_more() -> None:
    for excess in (0, 1):
        for body in (b"abcdefghij" + b"x" * excess, b"y" * (10 + excess) * 1000):
            scale = len(body) // (10 + excess)
            collector = Collector(4 * scale, max_dropped_bytes=6 * scale)
            connection = asked()
            connection.feed(response(body))
            assert isinstance(connection.next_event(), ResponseHead)
            connection.receive_body(collector)
            connection.feed(response(body)[-len(body) :])
            if not excess:
                assert connection.next_event() == EndOfMessage(nbytes=len(body))
                continue
            with pytest.raises(LimitExceededError) as caught:
                connection.next_event()
            assert (caught.value.limit, caught.value.offset) == ("max_drain_bytes", 10 * scale)
            assert len(collector.data) == 4 * scale
            assert not collector.needs_data


@pytest.mark.parametrize("size", [2, 200_000])
def test_that_many_compressed_bytes_wait_can_be_told_while_they_do(size: int) -> None:
    connection = ClientConnection(paced=True)
    connection.send_request("GET", "/v2", [("Host", "x")])
    assert not connection.inflates
    body = bytes(size)
    connection.feed(response(gzip.compress(body, mtime=0), b"Content-Encoding: gzip"))
    connection.next_event()
    assert not connection.inflates  # nobody has said yet where it goes
    connection.receive_body(collector := Collector(size))
    told = []
    while connection.next_event() is NEED_TURN:
        told.append(connection.inflates)
        connection.work()
    assert told == [False, True, True, True][: 1 + size // (64 << 10)]
    assert collector.data == body
    assert not connection.inflates
