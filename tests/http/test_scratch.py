"""Scratch: connections share memory for one read, and none has any while it holds no bytes."""

from __future__ import annotations

import gzip
import re
from collections import deque
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    Limits,
    Tensor,
    WindowReceived,
    Windows,
    encode_request,
    request_decoder,
)
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.http import RequestHead, ServerConnection, scratch
from streamcodec.http.scratch import LONG_SCRATCH_BYTES, SCRATCH_BYTES, borrow, give_back

HEAD = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def idle() -> dict[int, deque[memoryview]]:
    """Return the idle memory by its size; there is none at first."""
    blocks = scratch._idle  # noqa: SLF001 - nothing else tells
    blocks.clear()
    return blocks


def _receive(connection: ServerConnection, data: bytes) -> None:
    connection.get_buffer()[: len(data)] = data
    connection.buffer_updated(len(data))


def _answer(connection: ServerConnection) -> None:
    assert isinstance(connection.next_event(), RequestHead)
    connection.send_response(200, [], [])
    connection.end_response()


def test_idle_connections_have_no_memory(idle: dict[int, deque[memoryview]]) -> None:
    connections = [ServerConnection(Limits()) for _ in range(100)]
    memory = set()
    for connection in connections:
        memory.add(id(connection.get_buffer().obj))
        _receive(connection, HEAD)
        _answer(connection)
        assert connection.next_event() is NEED_DATA
        assert connection.incoming._scratch is scratch.NOTHING  # noqa: SLF001 - nothing else tells
    assert len(memory) == 1
    assert len(idle[SCRATCH_BYTES]) == 1


@pytest.mark.parametrize("begun", [b"", HEAD[:9]])
def test_connections_that_end_at_once_keep_only_what_has_come(idle: dict[int, deque[memoryview]], begun: bytes) -> None:
    """An event loop offers memory, is told of the end, and closes all of them later."""
    connections = [ServerConnection(Limits()) for _ in range(100)]
    memory = set()
    for connection in connections:
        if begun:
            _receive(connection, begun)
        memory.add(id(connection.get_buffer().obj))
        connection.receive_eof()
        with pytest.raises(LocalProtocolError, match="cannot have been written"):
            connection.buffer_updated(SCRATCH_BYTES + 1)
    assert len(memory) == (100 if begun else 1)
    assert len(idle[SCRATCH_BYTES]) == (0 if begun else 1)


def test_more_may_be_read_at_once(idle: dict[int, deque[memoryview]]) -> None:
    connection = ServerConnection(Limits())
    _receive(connection, HEAD[:9])
    for _ in range(2):
        connection.incoming.resize(is_long=True)
        assert len(connection.get_buffer()) == LONG_SCRATCH_BYTES - 9
        assert len(idle[SCRATCH_BYTES]) == 1
        connection.feed(b"")
    _receive(connection, HEAD[9:])
    _answer(connection)
    assert (len(idle[SCRATCH_BYTES]), len(idle[LONG_SCRATCH_BYTES])) == (1, 1)
    assert len(connection.get_buffer()) == LONG_SCRATCH_BYTES
    _receive(connection, HEAD[:9])
    connection.incoming.resize(is_long=False)
    assert len(connection.get_buffer()) == SCRATCH_BYTES - 9
    assert len(idle[LONG_SCRATCH_BYTES]) == 1


def test_nothing_that_is_kept_is_lost() -> None:
    """The usual memory has no room for it."""
    connection = ServerConnection(Limits())
    connection.incoming.resize(is_long=True)
    _receive(connection, HEAD + b"?" * SCRATCH_BYTES)
    connection.incoming.resize(is_long=False)
    assert connection.incoming.kept == len(HEAD) + SCRATCH_BYTES
    _answer(connection)


def test_no_memory_is_taken_before_there_are_bytes() -> None:
    connection = ServerConnection(Limits())
    connection.incoming.resize(is_long=True)
    assert connection.incoming._scratch is scratch.NOTHING  # noqa: SLF001 - nothing else tells
    assert len(connection.get_buffer()) == LONG_SCRATCH_BYTES


def test_memory_on_offer_is_not_exchanged() -> None:
    connection = ServerConnection(Limits())
    _receive(connection, HEAD[:9])
    offered = connection.get_buffer()
    connection.incoming.resize(is_long=True)
    offered[: len(HEAD) - 9] = HEAD[9:]
    connection.buffer_updated(len(HEAD) - 9)
    _answer(connection)


@pytest.mark.parametrize("cut", range(1, len(HEAD)))
def test_what_has_arrived_is_safe_from_others(cut: int) -> None:
    """Others read as much as they like between the pieces of a head, and after it."""
    first, others = ServerConnection(Limits()), [ServerConnection(Limits()) for _ in range(3)]
    _receive(first, HEAD[:cut])
    for other in others:
        _receive(other, HEAD.replace(b"v2", b"??"))
        _answer(other)
    _receive(first, HEAD[cut:] + HEAD[:cut])
    for _ in range(2):
        head = first.next_event()
        assert isinstance(head, RequestHead)
        assert head.target == "/v2"
        first.send_response(200, [], [])
        first.end_response()
        for other in others:
            _receive(other, HEAD.replace(b"v2", b"??"))
            _answer(other)
        if first.incoming.kept:
            _receive(first, HEAD[cut:])


def test_memory_on_offer_is_not_given_to_others() -> None:
    """A transport may still write there; that is against the rules, and must not reach another connection."""
    connection, other = ServerConnection(Limits()), ServerConnection(Limits())
    _receive(connection, HEAD)
    assert isinstance(connection.next_event(), RequestHead)
    connection.send_response(200, [], [])
    connection.end_response()
    offered = connection.get_buffer()
    connection.feed(b"")
    connection.incoming.next_cycle()
    assert other.get_buffer().obj is not offered.obj
    _receive(connection, HEAD)
    _answer(connection)


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_bytes_that_wait_for_their_receiver_are_safe_from_others(encoding: str | None, *, paced: bool) -> None:
    """A window is in use while the bytes behind it have arrived already, or memory is awaited for them."""
    values = np.random.default_rng(1).random(2000, np.float32)
    message = encode_request([Tensor(name="x", array=values)])
    body = b"".join(message.buffers)
    sent = body if encoding is None else gzip.compress(body)
    fields = b"Host: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d" % (
        message.header_length or 0,
        len(sent),
    )
    coded = b"" if encoding is None else b"\r\nContent-Encoding: gzip"
    connection, other = ServerConnection(paced=paced), ServerConnection()
    _receive(connection, b"POST /x HTTP/1.1\r\n" + fields + coded + b"\r\n\r\n" + sent)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    decoder = request_decoder(
        header_length=message.header_length,
        body_length=len(body),
        place=lambda _: Windows(max_window_bytes=400),
        pause_after_header=True,
        paced=paced,
    )
    connection.receive_body(decoder)
    found: list[np.ndarray[Any, Any]] = []
    event: object = None
    while not isinstance(event, EndOfMessage):
        other.get_buffer()[:] = b"?" * SCRATCH_BYTES
        event = connection.next_event()
        if event is NEED_TURN:
            connection.work()
        elif isinstance(event, WindowReceived):
            found.append(event.array.copy())
    np.testing.assert_array_equal(np.concatenate(found), values)
    connection.send_response(200)
    assert connection.incoming._scratch is scratch.NOTHING  # noqa: SLF001 - nothing else tells


def test_few_blocks_are_kept(idle: dict[int, deque[memoryview]]) -> None:
    blocks = [borrow(SCRATCH_BYTES) for _ in range(40)]
    for block in blocks:
        give_back(block)
    assert len(idle[SCRATCH_BYTES]) == 16
    assert borrow(SCRATCH_BYTES) is blocks[-1]


def test_a_longer_head_has_longer_memory() -> None:
    connection = ServerConnection(Limits(max_head_bytes=100_000))
    assert len(connection.get_buffer()) == 100_001
    _receive(connection, HEAD.replace(b"Host: x", b"Host: x\r\nA: " + b"y" * 99_000))
    _answer(connection)
    with pytest.raises(LocalProtocolError, match=re.escape("1 bytes cannot have been written to a buffer of 0")):
        connection.buffer_updated(1)
