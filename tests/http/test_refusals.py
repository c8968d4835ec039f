"""Refusals: what becomes of a connection when a request is not wanted, before its body, within it or behind it."""

from __future__ import annotations

import gc
import gzip
import weakref

import pytest

from streamcodec import (
    DEFAULT_LIMITS,
    NEED_DATA,
    EndOfMessage,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    request_decoder,
)
from streamcodec.http import Collector, ConnectionClosed, RequestHead, ServerConnection
from tests.http.driver import Driver, raises_local, refuses, server, triad
from tests.http.messages import BODY, GET, IHCL, chunked, length, post

MAX_DRAIN = DEFAULT_LIMITS.max_drain_bytes
EXPECT = b"Expect: 100-continue"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


CHUNKED = b"Transfer-Encoding: chunked"


def asked(*fields: bytes, begun: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> ServerConnection:
    """Make a connection whose owner has just seen the head of a request."""
    connection = ServerConnection(limits)
    data = post(*fields) + begun
    assert connection.feed(data) == len(data)
    assert isinstance(connection.next_event(), RequestHead)
    return connection


def answer(connection: ServerConnection, status: int = 400) -> bytes:
    return b"".join(connection.send_response(status))


def drain(connection: ServerConnection, nbytes: int, step: int) -> None:
    """Send the rest of a refused body; nothing must come out."""
    for start in range(0, nbytes, step):
        assert connection.next_event() is NEED_DATA
        size = min(step, nbytes - start)
        assert connection.feed(b"d" * size) == size
    assert connection.next_event() is NEED_DATA


@pytest.mark.parametrize("begun", [0, 1, 1000])
@pytest.mark.parametrize("nbytes", [1001, MAX_DRAIN])
@pytest.mark.parametrize("step", [999, 70_000])
def test_the_short_rest_of_a_refused_body_is_dropped_and_the_connection_goes_on(
    begun: int, nbytes: int, step: int
) -> None:
    connection = asked(b"Content-Length: %d" % nbytes, begun=b"b" * begun)
    assert b"Connection: close" not in answer(connection)
    assert not connection.has_unread_body
    drain(connection, nbytes - begun, step)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_the_next_head_may_come_together_with_the_end_of_what_is_dropped() -> None:
    connection = asked(b"Content-Length: 10", begun=b"12345")
    answer(connection)
    assert connection.feed(b"67890" + GET) == 5  # the rest after the next turn, as always
    assert connection.feed(GET) == 0
    driver = Driver(connection)
    driver.pump()
    driver.push(GET)
    assert [entry[0] for entry in driver.log] == ["head", "end"]


def test_all_of_a_refused_body_and_the_next_head_may_have_come_before_the_answer() -> None:
    connection = asked(b"Content-Length: 10", begun=b"1234567890" + GET)
    answer(connection)
    assert isinstance(connection.next_event(), RequestHead)


@pytest.mark.parametrize("nbytes", [MAX_DRAIN + 1, 5_000_000_000])
def test_a_long_rest_closes_the_connection_after_the_answer(nbytes: int) -> None:
    connection = asked(b"Content-Length: %d" % nbytes)
    assert b"Connection: close\r\n" in answer(connection, 413)
    assert connection.has_unread_body
    assert connection.next_event() == ConnectionClosed()
    assert connection.feed(b"d") == 0


@pytest.mark.parametrize(("nbytes", "is_closed"), [(0, False), (1, True)])
def test_nothing_is_dropped_when_nothing_may_be(nbytes: int, is_closed: bool) -> None:
    connection = asked(b"Content-Length: %d" % nbytes, limits=Limits(max_drain_bytes=0))
    assert (b"Connection: close" in answer(connection)) == is_closed
    assert connection.has_unread_body == is_closed


def test_the_end_of_input_while_dropping_just_ends_the_connection() -> None:
    connection = asked(b"Content-Length: 10", begun=b"123")
    answer(connection)
    assert connection.next_event() is NEED_DATA
    connection.receive_eof()
    assert connection.next_event() == ConnectionClosed()


def test_the_end_of_input_before_a_refusal_just_ends_the_connection() -> None:
    connection = asked(b"Content-Length: 10", begun=b"123")
    connection.receive_eof()
    answer(connection)
    assert connection.next_event() == ConnectionClosed()


@pytest.mark.parametrize("begun", [b"", b"5\r\nabcde\r\n", chunked(b"abcde")])
def test_a_chunked_body_that_is_refused_unseen_closes_the_connection(begun: bytes) -> None:
    connection = asked(b"Transfer-Encoding: chunked", begun=begun)
    assert b"Connection: close" in answer(connection)
    assert connection.has_unread_body
    assert connection.next_event() == ConnectionClosed()


def test_a_chunked_body_that_is_refused_within_closes_the_connection() -> None:
    driver = server()
    driver.push(post(b"Transfer-Encoding: chunked", IHCL) + chunked(b"x" * len(BODY), [60])[:-9])
    assert refuses(driver, code=ErrorCode.INVALID_JSON, status=400)
    assert driver.log[-1] == ("closed",)


@pytest.mark.parametrize(
    "body",
    [
        chunked(b"x" * len(BODY), [60]),
        chunked(BODY, [60])[:-5] + b"x\r\n",
        chunked(BODY + b"!", [60]),
        chunked(BODY[:-1]),
        b"0\r\n\r\n",
        b"x",
    ],
    ids=["of a bad message", "with a bad line", "too long", "too short", "of nothing", "that is none"],
)
def test_a_chunked_body_that_is_refused_closes_the_connection_however_it_was_cut(body: bytes) -> None:
    message = post(IHCL, CHUNKED) + body
    driver = triad(server, message, tail=GET)
    assert [entry[0] for entry in driver.log][-2:] == ["error", "closed"]
    assert driver.sent.count(b"Connection: close") == 1


def test_a_chunked_body_that_is_answered_before_its_end_was_asked_for_closes_the_connection() -> None:
    connection = asked(IHCL, CHUNKED, begun=chunked(BODY))
    connection.receive_body(Collector(0))
    assert b"Connection: close" in answer(connection, 503)
    assert connection.next_event() == ConnectionClosed()


def test_a_bad_header_is_refused_before_the_tensors_and_these_are_dropped() -> None:
    driver = server()
    bad = b'{"inputs": 1}'
    message = post(b"Inference-Header-Content-Length: %d" % len(bad), b"Content-Length: 9000") + bad
    driver.push(message)
    assert refuses(driver, code=ErrorCode.INVALID_MEMBER, status=400)
    driver.pull(b"t" * (9000 - len(bad)) + GET, [7, 4000])
    assert [entry[0] for entry in driver.log] == ["head", "error", "head", "end"]


def test_an_answer_in_the_middle_of_a_good_body_works_the_same() -> None:
    connection = asked(IHCL, length(BODY), begun=BODY[:50])
    connection.receive_body(request_decoder(header_length=300, body_length=len(BODY)))
    assert connection.next_event() is NEED_DATA
    assert b"Connection: close" not in answer(connection, 503)
    drain(connection, len(BODY) - 50, 33)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_the_owner_can_give_a_request_up() -> None:
    connection = asked(IHCL, length(BODY), begun=BODY[:50])
    connection.receive_body(request_decoder(header_length=300, body_length=len(BODY)))
    slow = RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408)
    connection.give_up(slow)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert (str(caught.value), caught.value.code, caught.value.status_hint) == (str(slow), slow.code, slow.status_hint)
    assert answer(connection, 408).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert connection.next_event() == ConnectionClosed()


def test_the_owner_can_give_up_in_the_middle_of_a_head_of_a_later_request() -> None:
    connection = asked()
    answer(connection)
    connection.feed(GET[:-1])
    assert connection.next_event() is NEED_DATA
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    assert b"Connection: close" in answer(connection, 408)


# Expect: 100-continue


@pytest.mark.parametrize("framing", [length(BODY), b"Transfer-Encoding: chunked"])
def test_continue_is_sent_when_the_body_is_wanted(framing: bytes) -> None:
    driver = server()
    driver.push(post(EXPECT, IHCL, framing))
    assert driver.sent == CONTINUE
    driver.push((BODY if framing == length(BODY) else chunked(BODY)) + GET)
    assert [entry[0] for entry in driver.log] == ["head", "header", *["tensor"] * 4, "end", "head", "end"]
    assert driver.sent.count(CONTINUE) == 1


def test_continue_is_not_sent_when_the_body_has_begun() -> None:
    driver = server()
    driver.push(post(EXPECT, IHCL, length(BODY)) + BODY[:1])
    assert driver.sent == b""
    driver.push(BODY[1:])
    assert driver.log[-1][0] == "end"


@pytest.mark.parametrize("fields", [[], [b"Content-Length: 0"]])
def test_continue_is_not_sent_for_a_body_of_nothing(fields: list[bytes]) -> None:
    driver = server()
    driver.push(post(EXPECT, *fields) + GET)
    assert CONTINUE not in driver.sent
    assert [entry[0] for entry in driver.log] == ["head", "error", "head", "end"]
    assert asked(EXPECT, *fields).receive_body(Collector(9)) == b""


def test_continue_is_not_sent_to_a_client_of_http_1_0() -> None:
    driver = server()
    driver.push(post(EXPECT, IHCL, length(BODY), version=b"1.0"))
    assert driver.sent == b""


@pytest.mark.parametrize("nbytes", [10, MAX_DRAIN + 1])
def test_a_waiting_client_that_is_refused_at_once_is_not_kept(nbytes: int) -> None:
    connection = asked(EXPECT, b"Content-Length: %d" % nbytes)
    sent = answer(connection, 413)
    assert sent.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close\r\n" in sent
    assert connection.next_event() == ConnectionClosed()


def test_a_waiting_client_that_the_decoder_refuses_at_once_is_not_kept() -> None:
    """Its next request would be taken for the body that it does not send."""
    connection = asked(EXPECT, b"Inference-Header-Content-Length: 99", b"Content-Length: 9")
    assert connection.receive_body(request_decoder(header_length=99, body_length=9)) == b""
    with pytest.raises(RemoteProtocolError):
        connection.next_event()
    assert b"Connection: close\r\n" in answer(connection)


def test_a_client_that_was_told_to_continue_is_drained_like_any_other() -> None:
    connection = asked(EXPECT, IHCL, length(BODY))
    assert connection.receive_body(Collector(0)) == CONTINUE
    assert b"Connection: close" not in answer(connection, 503)
    drain(connection, len(BODY), 100)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


# Compression that is not understood


@pytest.mark.parametrize("encoding", [b"br", b"gzip, gzip", b"zstd", b"gzip, br"])
def test_an_unknown_encoding_is_415_and_the_body_is_dropped(encoding: bytes) -> None:
    connection = asked(b"Content-Encoding: " + encoding, b"Content-Length: 5")
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_body(Collector(9))
    assert (caught.value.code, caught.value.status_hint) == (ErrorCode.UNSUPPORTED_ENCODING, 415)
    with pytest.raises(LocalProtocolError):
        connection.next_event()
    assert answer(connection, 415).startswith(b"HTTP/1.1 415 Unsupported Media Type\r\n")
    drain(connection, 5, 1)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_a_compressed_body_that_is_refused_leaves_nothing_to_the_collector() -> None:
    """Its end is missing, too, because the rest was dropped, and nobody asks for that error."""
    limits = Limits(max_header_bytes=100)
    body = gzip.compress(b'{"inputs":[' + b"{}," * 100_000)
    connection = asked(length(body), b"Content-Encoding: gzip", begun=body, limits=limits)
    decoder = request_decoder(header_length=None, body_length=None, limits=limits)
    left = weakref.ref(decoder)
    gc.disable()
    try:
        connection.receive_body(decoder)
        with pytest.raises(LimitExceededError):
            connection.next_event()
        assert answer(connection, 413)
        del decoder
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("fields", [(), (EXPECT,)])
@pytest.mark.parametrize("times", [1, 3])
def test_an_interim_response_asks_whether_the_client_is_there(fields: tuple[bytes, ...], times: int) -> None:
    connection = asked(IHCL, length(BODY), *fields)
    assert [connection.interim() for _ in range(times)] == [CONTINUE] * times
    assert connection.send_response(400)[0].startswith(b"HTTP/1.1 400 ")


def test_http_1_0_knows_none() -> None:
    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)).replace(b"HTTP/1.1", b"HTTP/1.0"))
    connection.next_event()
    assert connection.interim() == b""


def test_nor_is_there_one_without_a_request() -> None:
    assert "no request" in raises_local(ServerConnection().interim)


LOCATION = [("Location", "/v2/uploads/1")]


def test_a_client_is_told_that_its_upload_can_be_resumed() -> None:
    connection = asked(IHCL, length(BODY))
    told = connection.resumption_supported(LOCATION)
    assert told == b"HTTP/1.1 104 Upload Resumption Supported\r\nLocation: /v2/uploads/1\r\n\r\n"
    assert connection.send_response(200)[0].startswith(b"HTTP/1.1 200 ")


def test_a_client_of_http_1_0_is_not() -> None:
    connection = ServerConnection()
    connection.feed(post(IHCL, length(BODY)).replace(b"HTTP/1.1", b"HTTP/1.0"))
    connection.next_event()
    assert connection.resumption_supported(LOCATION) == b""


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_rest_of_a_body_can_be_dropped(*, has_begun: bool) -> None:
    """All bytes that have come are in the memory of the receiver, and no other ever is."""
    connection = asked(IHCL, length(BODY))
    kept = Collector(1 << 20)
    if has_begun:
        connection.receive_body(kept)
        connection.feed(BODY[:5])
    connection.drop_body()
    assert connection.feed(BODY[5 * has_begun :]) == len(BODY) - 5 * has_begun
    assert isinstance(connection.next_event(), EndOfMessage)
    assert kept.data == BODY[: 5 * has_begun]
