"""Windows over HTTP: every framing and every cut gives the same windows, and what waits is bounded and goes on."""

from __future__ import annotations

import gc
import gzip
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    RemoteProtocolError,
    RequestHeader,
    Tensor,
    WindowReceived,
    Windows,
    encode_request,
    encode_response,
    request_decoder,
    response_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ConnectionClosed, Receiver, RequestHead, ResponseHead, ServerConnection
from streamcodec.http.scratch import SCRATCH_BYTES
from tests.http.driver import Driver, Entry, client, open_message, raises_local, refuses, server, triad
from tests.http.messages import BODY, GET, IHCL, body_of, chunked, compress, framed, head, length, post

CHUNKED = b"Transfer-Encoding: chunked"
EXPECTED = [("values", 0), ("values", 1), ("as_json", 0), ("as_json", 1), ("flags", 0)]
"""The windows of `BODY`, of at most 12 bytes: names and first rows."""


def open_windows(head: RequestHead | ResponseHead, *, buffer_count: int, nbytes: int) -> Receiver:
    """Decode inferences into windows."""
    if isinstance(head, RequestHead) and head.method != "POST":
        return open_message(head)
    windows = Windows(max_window_bytes=nbytes, buffer_count=buffer_count)
    make = response_decoder if isinstance(head, ResponseHead) else request_decoder
    return make(header_length=header_length_of(head.fields), body_length=head.body_length, place=lambda _: windows)


def into_windows(
    make: Callable[..., Driver] = server, *, buffer_count: int = 1, nbytes: int = 12
) -> Callable[[], Driver]:
    """Return what makes drivers whose tensors come in windows."""
    return partial(make, partial(open_windows, buffer_count=buffer_count, nbytes=nbytes))


def windows_of(driver: Driver) -> list[Entry]:
    """Names and first rows."""
    return [(entry[1][0], entry[2]) for entry in driver.log if entry[0] == "window"]  # type: ignore[index] # as `describe_spec` has made it


def content(driver: Driver) -> list[Entry]:
    """What came out without the heads, which tell the framings apart."""
    return [entry for entry in driver.log if entry[0] not in {"head", "closed"}]


def content_of_plain(buffer_count: int) -> list[Entry]:
    driver = into_windows(buffer_count=buffer_count)()
    driver.push(framed(BODY, IHCL) + GET)
    assert windows_of(driver) == EXPECTED
    return content(driver)


@pytest.mark.parametrize("buffer_count", [1, 2])
@pytest.mark.parametrize("sizes", [None, [1], [7, 100], [len(BODY)]], ids=str)
@pytest.mark.parametrize("encoding", ["plain", "gzip", "raw"])
def test_every_framing_and_every_cut_gives_the_same_windows(
    buffer_count: int, sizes: list[int] | None, encoding: str
) -> None:
    names = {"plain": b"identity", "gzip": b"gzip", "raw": b"deflate"}
    message = framed(compress(BODY, encoding), IHCL, b"Content-Encoding: " + names[encoding], sizes=sizes)
    start = message.index(b"\r\n\r\n")
    cuts = range(start, len(message), 2 if sizes is None else 41)
    driver = triad(into_windows(buffer_count=buffer_count), message, cuts=cuts, tail=GET)
    assert content(driver) == content_of_plain(buffer_count)
    assert driver.sent.count(b"200 OK") == 2


@pytest.mark.parametrize("until_close", [True, False])
def test_a_response_in_windows(until_close: bool) -> None:
    values = np.arange(100, dtype="<i2").reshape(25, 4)
    answer = encode_response([Tensor(name="out", array=values)], model_name="m")
    body = body_of(answer)
    fields = [b"Inference-Header-Content-Length: %d" % (answer.header_length or 0)]
    message = head(b"HTTP/1.1 200 OK", *fields, *([] if until_close else [length(body)])) + body
    driver = triad(into_windows(client, nbytes=80), message)
    assert windows_of(driver) == [("out", 0), ("out", 10), ("out", 20)]
    assert b"".join(entry[3] for entry in driver.log if entry[0] == "window") == values.tobytes()  # type: ignore[misc] # as `describe_array` has made it


@pytest.mark.parametrize("sizes", [None, [5]])
@pytest.mark.parametrize("is_early", [False, True])
def test_the_end_of_input_anywhere_in_windows_is_an_error(sizes: list[int] | None, is_early: bool) -> None:
    message = framed(BODY, IHCL, sizes=sizes)
    for cut in range(message.index(b"\r\n\r\n") + 4, len(message)):
        driver = into_windows()()
        if is_early:  # the connection knows of the end before the body has been let in
            driver.connection.feed(message[:cut])
        else:
            driver.push(message[:cut])
        driver.end()
        assert refuses(driver, code=ErrorCode.TRUNCATED, status=400), (cut, sizes)
        whole = EXPECTED[: len(windows_of(driver))]
        assert windows_of(driver) == whole
        assert driver.log[-1] == ("closed",)


@pytest.mark.parametrize("encoding", ["plain", "gzip"])
def test_what_follows_the_last_window_is_refused(encoding: str) -> None:
    array = np.arange(4, dtype="<i2")
    body = body_of(encode_request([Tensor(name="x", array=array)]))
    ihcl = b"Inference-Header-Content-Length: %d" % (len(body) - array.nbytes)
    encodings = [b"Content-Encoding: gzip"] if encoding == "gzip" else []
    message = framed(compress(body + b"!", encoding), ihcl, *encodings, sizes=[1000])
    driver = triad(into_windows(nbytes=4), message)
    assert windows_of(driver) == [("x", 0), ("x", 2)]
    assert refuses(driver, code=ErrorCode.TRAILING_BYTES, status=400)
    assert driver.log[3][0] == "window"
    assert driver.log[4][4] == len(body)


# What waits


VALUES = np.arange(30_000, dtype="<i4")
MESSAGE = encode_request([Tensor(name="x", array=VALUES)])
LARGE = body_of(MESSAGE)
LARGE_IHCL = b"Inference-Header-Content-Length: %d" % (MESSAGE.header_length or 0)


def begin(*fields: bytes, nbytes: int = 4000) -> tuple[ServerConnection, Decoder[RequestHeader]]:
    connection = ServerConnection()
    connection.feed(post(LARGE_IHCL, *fields))
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    receiver = request_decoder(
        header_length=header_length_of(event.fields),
        body_length=event.body_length,
        place=lambda _: Windows(max_window_bytes=nbytes),
    )
    connection.receive_body(receiver)
    return connection, receiver


FRAMINGS = {
    "plain": ([length(LARGE)], LARGE),
    "chunked": ([CHUNKED], chunked(LARGE, [50_000])),
    "gzip": ([length(gzip.compress(LARGE)), b"Content-Encoding: gzip"], gzip.compress(LARGE)),
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_slow_consumer_makes_the_connection_take_no_more(framing: str) -> None:
    fields, data = FRAMINGS[framing]
    connection, _ = begin(*fields)
    taken = connection.feed(data)
    assert taken <= SCRATCH_BYTES + 4000
    seen = []
    while True:
        if isinstance(event := connection.next_event(), WindowReceived):
            for _ in range(3):
                assert not connection.incoming.wants_data
                assert connection.feed(data[taken:]) == 0
                assert "no bytes can be taken now" in raises_local(connection.get_buffer)
                assert "no bytes can be taken now" in raises_local(connection.get_buffers)
            seen.append(event.array.copy())
        elif event is NEED_DATA:
            taken += connection.feed(data[taken:])
        elif isinstance(event, EndOfMessage):
            break
    np.testing.assert_array_equal(np.concatenate(seen), VALUES)
    assert [len(array) for array in seen] == [1000] * 30
    incoming = connection.incoming
    connection.send_response(200)
    assert incoming.received_copied + incoming.received_direct == len(LARGE)
    assert connection.feed(GET) == len(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_windows_are_written_by_the_transport_itself() -> None:
    connection, _ = begin(length(LARGE))
    position = 0
    addresses = set()
    while not isinstance(event := connection.next_event(), EndOfMessage):
        if event is NEED_DATA:
            buffer = connection.get_buffer()
            addresses.add(np.frombuffer(buffer, np.uint8).ctypes.data)
            buffer[:] = LARGE[position : position + len(buffer)]
            connection.buffer_updated(len(buffer))
            position += len(buffer)
    assert len(addresses) == 2  # the header's, and that of the one buffer
    connection.send_response(200)
    assert connection.incoming.received_copied == 0


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_request_given_up_within_a_window_is_answered_and_leaves_nothing_behind(framing: str) -> None:
    fields, data = FRAMINGS[framing]
    connection, receiver = begin(*fields)
    connection.feed(data)
    assert isinstance(connection.next_event(), HeaderReceived)
    event = connection.next_event()
    assert isinstance(event, WindowReceived)
    memory = weakref.ref(event.array.base)
    del receiver, event
    gc.disable()
    try:
        connection.send_response(500, [("Connection", "close")])
        assert memory() is None
    finally:
        gc.enable()
    assert isinstance(connection.next_event(), ConnectionClosed)


def test_a_request_given_up_within_a_window_keeps_the_connection_if_little_is_left() -> None:
    connection, _ = begin(length(LARGE))
    taken = connection.feed(LARGE)
    connection.next_event()
    connection.next_event()
    connection.send_response(500)
    assert connection.next_event() is NEED_DATA
    assert connection.feed(LARGE[taken:]) == len(LARGE) - taken
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


def test_a_decoder_that_is_resumed_behind_its_connections_back_loses_nothing() -> None:
    connection, receiver = begin(CHUNKED)
    data = chunked(LARGE)
    taken = connection.feed(data)
    assert isinstance(receiver.next_event(), HeaderReceived)
    assert isinstance(receiver.next_event(), WindowReceived)
    assert receiver.next_event() is NEED_DATA
    assert not connection.incoming.wants_data
    windows = 1
    while not isinstance(event := connection.next_event(), EndOfMessage):
        windows += isinstance(event, WindowReceived)
        if event is NEED_DATA:
            taken += connection.feed(data[taken:])
    assert windows == 30


def test_chunks_that_break_behind_a_window_are_an_error_after_it() -> None:
    connection, _ = begin(CHUNKED)
    connection.feed(chunked(LARGE[: (MESSAGE.header_length or 0) + 4000], [9000])[:-5] + b"zz\r\n")
    assert isinstance(connection.next_event(), HeaderReceived)
    assert isinstance(connection.next_event(), WindowReceived)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert (caught.value.code, caught.value.offset) == (ErrorCode.INVALID_HTTP, (MESSAGE.header_length or 0) + 4000)
    connection.send_response(400)


def test_windows_of_a_byte_take_linear_time_and_no_recursion() -> None:
    body = body_of(encode_request([Tensor(name="x", array=np.zeros(30_000, np.int8))]))
    ihcl = b"Inference-Header-Content-Length: %d" % (len(body) - 30_000)
    driver = into_windows(nbytes=1)()
    driver.push(framed(body, ihcl, sizes=[60_000]))
    assert len(windows_of(driver)) == 30_000
