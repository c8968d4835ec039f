"""Several buffers at once: never beyond the body, and the same tensors as through one."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    ErrorCode,
    RemoteProtocolError,
    Tensor,
    encode_request,
    encode_response,
    request_decoder,
    response_decoder,
)
from streamcodec.http import ClientConnection, Collector, RequestHead, ResponseHead, ServerConnection
from tests.http.driver import raises_local, server, triad
from tests.http.messages import GET, body_of, framed, head, post

ARRAYS = [np.arange(3, dtype="<i2") + 10 * index for index in range(100)]
MESSAGE = encode_request([Tensor(name=f"t{index}", array=array) for index, array in enumerate(ARRAYS)])
BODY = body_of(MESSAGE)
START = MESSAGE.header_length or 0
IHCL = b"Inference-Header-Content-Length: %d" % START


def after_header(content_length: int) -> ServerConnection:
    connection = ServerConnection()
    connection.feed(post(IHCL, b"Content-Length: %d" % content_length))
    assert isinstance(connection.next_event(), RequestHead)
    connection.receive_body(request_decoder(header_length=START, body_length=None))
    connection.feed(BODY[:START])
    while connection.next_event() is not NEED_DATA:
        pass
    return connection


def fill(connection: ServerConnection, data: bytes) -> None:
    count = 0
    for buffer in connection.get_buffers():
        buffer[:] = data[count : count + len(buffer)]
        count += len(buffer)
    connection.buffer_updated(count)


@pytest.mark.parametrize(
    ("missing", "sizes"),
    [
        (582, [6, 6, 6]),
        (584, [6, 6, 4]),
        (594, [6]),
        (599, [1]),
        (0, [6] * 64),
    ],
)
def test_buffers_end_where_the_body_ends(missing: int, sizes: list[int]) -> None:
    connection = after_header(len(BODY) - missing)
    assert list(map(len, connection.get_buffers())) == sizes
    room = sum(sizes)
    text = raises_local(lambda: connection.buffer_updated(room + 1))
    assert f"{room + 1} bytes cannot have been written to a buffer of {room}" in text
    fill(connection, BODY[START:])
    assert connection.incoming.remaining == 600 - missing - room
    connection.incoming.close()
    assert connection.incoming.received_direct == START + room


def test_where_the_body_ends_with_the_connection_the_tensors_end_the_buffers() -> None:
    message = encode_response(
        [Tensor(name=f"t{size}", array=np.zeros(size, "<i2")) for size in (1, 2, 3)], model_name="m"
    )
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x")])
    connection.feed(head(b"HTTP/1.1 200 OK"))
    assert isinstance(connection.next_event(), ResponseHead)
    connection.receive_body(response_decoder(header_length=message.header_length, body_length=None))
    connection.feed(body_of(message)[: message.header_length])
    while connection.next_event() is not NEED_DATA:
        pass
    assert list(map(len, connection.get_buffers())) == [2, 4, 6]


def test_a_body_that_is_shorter_than_its_tensors_is_truncated() -> None:
    connection = after_header(START + 15)
    fill(connection, BODY[START:])
    for _ in range(2):
        connection.next_event()
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, START + 15)


def test_a_part_of_the_first_buffer_stays_in_this_room() -> None:
    connection = after_header(len(BODY))
    connection.get_buffers()
    connection.buffer_updated(2)
    assert connection.next_event() is NEED_DATA
    assert list(map(len, connection.get_buffers()))[:3] == [4, 6, 6]
    connection.buffer_updated(12)
    assert connection.next_event() is not NEED_DATA
    assert list(map(len, connection.get_buffers()))[:2] == [4, 6]


def test_between_bodies_and_for_what_is_collected_there_is_one_buffer() -> None:
    connection = ServerConnection()
    assert len(connection.get_buffers()) == 1
    connection.feed(post(b"Content-Length: 3"))
    connection.next_event()
    connection.receive_body(Collector(9))
    assert list(map(len, connection.get_buffers())) == [3]


@pytest.mark.parametrize("sizes", [None, [100]])
def test_many_tensors_in_every_way(sizes: list[int] | None) -> None:
    message = framed(BODY, IHCL, sizes=sizes)
    driver = triad(server, message, cuts=range(START, len(message), 200), tail=GET)
    assert [array.tolist() for array in driver.arrays] == [array.tolist() for array in ARRAYS]
