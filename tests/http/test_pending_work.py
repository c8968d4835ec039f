"""What there will be to do when bytes have come, told beforehand: an event loop can have it done by a thread."""

from __future__ import annotations

import gzip

import numpy as np

from streamcodec import EndOfMessage, Tensor, encode_request, request_decoder
from streamcodec.http import Collector, RequestHead, ServerConnection
from tests.http.messages import GET, length, post

TEXTS = np.array([b"abcd"] * 100, dtype=object)
MESSAGE = encode_request([Tensor(name="x", array=TEXTS)])
HEADER, TENSOR = (bytes(buffer) for buffer in MESSAGE.buffers)
IHCL = b"Inference-Header-Content-Length: %d" % len(HEADER)


def begin(*fields: bytes) -> ServerConnection:
    connection = ServerConnection()
    connection.feed(post(IHCL, *fields))
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    connection.receive_body(request_decoder(header_length=head.fields.header_length, body_length=head.body_length))
    return connection


def test_nothing_is_to_be_done_between_bodies() -> None:
    assert ServerConnection().pending_work(1 << 30) == 0


def test_a_header_and_then_the_elements_of_bytes_are_work_when_they_are_whole() -> None:
    connection = begin(length(HEADER + TENSOR))
    assert connection.pending_work(len(HEADER) - 1) == 0
    assert connection.pending_work(len(HEADER)) == len(HEADER)
    connection.feed(HEADER + TENSOR[:10])
    connection.get_buffer()
    connection.buffer_updated(10)
    assert connection.pending_work(len(TENSOR) - 21) == 0
    assert connection.pending_work(len(TENSOR) - 20) == len(TENSOR)


def test_a_compressed_body_may_be_whole_sooner_than_its_bytes_say() -> None:
    connection = begin(length(gzip.compress(HEADER + TENSOR)), b"Content-Encoding: gzip")
    assert connection.pending_work(1) == len(HEADER)


def test_collecting_is_no_work() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)
    connection.receive_body(Collector(10))
    assert connection.pending_work(1 << 30) == 0
    assert connection.next_event() == EndOfMessage(nbytes=0)
