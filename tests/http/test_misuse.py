"""Misuse: what an owner or a transport does wrong is a `LocalProtocolError`, and does not harm the connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamcodec import NEED_DATA, RemoteProtocolError, request_decoder
from streamcodec.http import ClientConnection, Collector, RequestHead, ResponseHead, ServerConnection
from tests.http.driver import Driver, raises_local
from tests.http.messages import BODY, GET, IHCL, REQUEST, length, post, response

Fields = list[tuple[str, str]]


def server_at_head() -> ServerConnection:
    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)))
    assert isinstance(connection.next_event(), RequestHead)
    return connection


def server_in_body() -> ServerConnection:
    connection = server_at_head()
    connection.receive_body(request_decoder(header_length=REQUEST.header_length, body_length=len(BODY)))
    return connection


def server_at_end() -> ServerConnection:
    connection = server_in_body()
    connection.feed(BODY)
    while connection.incoming.state.name != "DONE":
        connection.next_event()
    return connection


def server_draining() -> ServerConnection:
    connection = server_at_head()
    connection.send_response(400)
    return connection


def server_refused() -> ServerConnection:
    connection = ServerConnection()
    connection.feed(b"\x16")
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
    return connection


def server_refused_later() -> ServerConnection:
    """Refused at the head, after a request with a good one."""
    connection = ServerConnection()
    connection.feed(GET + post(b"Expect: wonders"))
    connection.next_event()
    connection.send_response(200)
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
    return connection


def server_closed() -> ServerConnection:
    connection = ServerConnection()
    connection.receive_eof()
    connection.next_event()
    return connection


@pytest.mark.parametrize("state", [ServerConnection, server_in_body, server_at_end, server_draining, server_refused,
                                   server_refused_later, server_closed])  # fmt: skip
def test_a_body_is_let_in_once_and_after_its_head(state: Callable[[], ServerConnection]) -> None:
    connection = state()
    assert "must follow the head of a message" in raises_local(lambda: connection.receive_body(Collector(0)))


@pytest.mark.parametrize("state", [ServerConnection, server_draining, server_closed])
def test_only_a_request_is_answered_and_only_once(state: Callable[[], ServerConnection]) -> None:
    connection = state()
    assert "no request" in raises_local(lambda: connection.send_response(200))


@pytest.mark.parametrize("state", [server_at_head, server_at_end])
def test_the_owner_has_to_decide_before_the_next_event(state: Callable[[], ServerConnection]) -> None:
    connection = state()
    assert "a request is waiting" in raises_local(connection.next_event)
    connection.send_response(200)
    assert connection.next_event() is NEED_DATA


@pytest.mark.parametrize("state", [server_at_head, server_at_end, server_closed])
def test_no_memory_is_given_while_nothing_can_be_taken(state: Callable[[], ServerConnection]) -> None:
    connection = state()
    assert not connection.incoming.wants_data
    assert "no bytes can be taken now" in raises_local(connection.get_buffer)
    assert connection.feed(b"x") == 0


@pytest.mark.parametrize("state", [ServerConnection, server_in_body, server_draining])
@pytest.mark.parametrize("excess", [-1, 0, None])
def test_counts_that_cannot_be_are_refused(state: Callable[[], ServerConnection], excess: int | None) -> None:
    connection = state()
    size = len(connection.get_buffer())
    nbytes = size + 1 if excess is None else excess
    text = raises_local(lambda: connection.buffer_updated(nbytes))
    assert f"{nbytes} bytes cannot have been written to a buffer of {size}" in text
    assert ("receive_eof" in text) == (nbytes == 0)
    connection.buffer_updated(size)
    assert "buffer of 0" in raises_local(lambda: connection.buffer_updated(1))


def test_a_count_may_not_reach_beyond_the_body_into_larger_memory() -> None:
    connection = ServerConnection()
    connection.feed(post(b"Content-Length: 3"))
    connection.next_event()
    connection.receive_body(Collector(9))
    assert len(connection.get_buffer()) == 3
    raises_local(lambda: connection.buffer_updated(4))
    connection.buffer_updated(3)


def test_the_rest_of_nothing_is_unknown() -> None:
    assert "no body" in raises_local(lambda: ServerConnection().incoming.remaining)


def test_a_collector_that_is_complete_gives_no_memory() -> None:
    collector = Collector(9)
    assert collector.next_event() is NEED_DATA
    collector.receive_eof()
    assert "complete" in raises_local(collector.get_buffer)


BAD_FIELDS: list[Fields] = [
    [("X", "a\r\nSet-Cookie: b")],
    [("X", "a\nb")],
    [("X", "a\rb")],
    [("X", "a\0b")],
    [("X\r\nY", "a")],
    [("X Y", "a")],
    [("", "a")],
    [("X", "\u00e9")],
    [("\u00e9", "a")],
    [("Content-Length", "+5")],
    [("Content-Length", "5"), ("content-length", "6")],
]


@pytest.mark.parametrize("fields", BAD_FIELDS)
def test_a_response_cannot_be_split_and_can_still_be_sent_properly(fields: Fields) -> None:
    connection = server_at_end()
    raises_local(lambda: connection.send_response(200, fields))
    assert bytes(connection.send_response(500)[0]).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert connection.next_event() is NEED_DATA


@pytest.mark.parametrize("status", [100, 101, 199, 0, 1000])
def test_a_response_has_a_final_status(status: int) -> None:
    connection = server_at_end()
    assert "status" in raises_local(lambda: connection.send_response(status))


@pytest.mark.parametrize("declared", ["5", "5, 5"])
@pytest.mark.parametrize("buffers", [[b"12345678"], [b"1"], []])
def test_a_response_has_the_length_it_declares(declared: str, buffers: list[bytes]) -> None:
    connection = server_at_end()
    fields = [("Content-Length", declared)]
    assert "Content-Length is 5, " in raises_local(lambda: connection.send_response(200, fields, buffers))
    assert b"".join(connection.send_response(200, fields, [b"12", b"345"])).endswith(b"Content-Length: 5\r\n\r\n12345")


# The client


@pytest.mark.parametrize(
    ("method", "target", "fields"),
    [
        *(("GET", "/", [("Host", "x"), *fields]) for fields in BAD_FIELDS),
        ("GET", "/", []),
        ("GET", "/", [("Host", "x"), ("Host", "y")]),
        ("GET", "/a b", [("Host", "x")]),
        ("GET", "/a\r\nX: y", [("Host", "x")]),
        ("GET", "/\u00e9", [("Host", "x")]),
        ("GE T", "/", [("Host", "x")]),
        ("G\u00c9T", "/", [("Host", "x")]),
        ("POST", "/", [("Host", "x"), ("Content-Length", "5")]),
    ],
)
def test_a_request_that_is_no_http_is_not_sent_and_another_can_be(method: str, target: str, fields: Fields) -> None:
    connection = ClientConnection()
    raises_local(lambda: connection.send_request(method, target, fields))
    assert connection.is_reusable
    assert connection.send_request("GET", "/", [("Host", "x")]) == [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]


def test_the_client_has_to_ask_before_it_hears() -> None:
    connection = ClientConnection()
    assert "send_request() comes before" in raises_local(connection.next_event)
    assert "must follow the head of a message" in raises_local(lambda: connection.receive_body(Collector(0)))


def test_the_client_has_to_decide_and_to_read_on() -> None:
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x")])
    again = "cannot take a request now"
    assert again in raises_local(lambda: connection.send_request("GET", "/", [("Host", "x")]))
    connection.feed(response(b"12345")[:-1])
    assert isinstance(connection.next_event(), ResponseHead)
    assert "receive_body() after a ResponseHead" in raises_local(connection.next_event)
    connection.receive_body(Collector(9))
    assert "must follow the head of a message" in raises_local(lambda: connection.receive_body(Collector(9)))
    assert connection.next_event() is NEED_DATA
    assert again in raises_local(lambda: connection.send_request("GET", "/", [("Host", "x")]))


def test_a_callback_that_fails_is_reported_and_the_request_can_be_answered() -> None:
    def check(_: object) -> None:
        msg = "a bug of the owner's"
        raise ZeroDivisionError(msg)

    connection = server_at_head()
    connection.receive_body(request_decoder(header_length=REQUEST.header_length, body_length=len(BODY), check=check))
    connection.feed(BODY)
    with pytest.raises(ZeroDivisionError):
        connection.next_event()
    connection.send_response(500)
    driver = Driver(connection)
    driver.push(GET)
    assert [entry[0] for entry in driver.log] == ["head", "end"]
