"""The states of the receiving half and of a server's connection: each is reached, and left as the drawings say."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    LocalProtocolError,
    NewArray,
    Rows,
    TensorSpec,
    request_decoder,
)
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.http.connection import State
from streamcodec.http.server import Cycle
from tests.http.messages import BODY, GET, IHCL, REQUEST, framed


def decoder(place: Place = new_array) -> Decoder[RequestHeader]:
    return request_decoder(header_length=REQUEST.header_length, body_length=None, place=place)


def state(connection: ServerConnection) -> State:
    return connection.incoming.state


def cycle(connection: ServerConnection) -> Cycle:
    return connection._cycle  # noqa: SLF001 - nobody but the connection itself asks for it


def test_a_connection_may_read_ahead_of_its_answer() -> None:
    connection = ServerConnection()
    incoming = connection.incoming
    request = framed(BODY, IHCL)
    connection.feed(request)
    connection.next_event()
    connection.receive_body(decoder())
    connection.feed(request[incoming.received :])
    while not isinstance(connection.next_event(), EndOfMessage):
        pass
    assert connection.feed(GET) == 0
    incoming.reads_ahead = True
    assert connection.feed(GET) == len(GET)
    assert state(connection) is State.DONE
    assert connection.feed(bytes(incoming.scratch_bytes)) == incoming.scratch_bytes - len(GET)
    connection.send_response(200)
    assert not incoming.reads_ahead
    assert isinstance(connection.next_event(), RequestHead)


def test_a_request_goes_through_the_states() -> None:
    connection = ServerConnection()
    incoming, request = connection.incoming, framed(BODY, IHCL)
    begin = request.index(b"\r\n\r\n") + 4
    assert state(connection) is State.HEAD
    connection.feed(request[:begin])
    connection.next_event()
    assert state(connection) is State.DECIDE
    connection.receive_body(decoder())
    assert state(connection) is State.BODY
    connection.feed(request[begin:-1])
    assert state(connection) is State.FILLING
    assert incoming.is_filling
    assert connection.next_event() is NEED_DATA
    assert connection.feed(request[-1:]) == 1
    assert state(connection) is State.BODY
    while not isinstance(connection.next_event(), EndOfMessage):
        pass
    assert state(connection) is State.DONE
    connection.send_response(200)
    assert state(connection) is State.HEAD


def test_the_receiver_runs_in_a_state_of_its_own_in_which_no_event_can_be_asked_for() -> None:
    connection = ServerConnection()
    seen = []

    def place(_: TensorSpec) -> NewArray:
        seen.append((connection.incoming.state, connection.incoming.has_work, connection.incoming.wants_data))
        with pytest.raises(LocalProtocolError, match="from the callbacks"):
            connection.next_event()
        return NewArray()

    connection.feed(framed(BODY, IHCL))
    connection.next_event()
    connection.receive_body(decoder(place))
    assert seen == [(State.BUSY, True, False)] * 3
    assert state(connection) is State.BODY


def test_work_to_be_done_is_a_state_that_work_leaves() -> None:
    connection = ServerConnection(paced=True)
    connection.feed(framed(gzip.compress(BODY, mtime=0), IHCL, b"Content-Encoding: gzip"))
    connection.next_event()
    connection.receive_body(decoder())
    turns = 0
    while not isinstance(event := connection.next_event(), EndOfMessage):
        if event is NEED_TURN:
            assert state(connection) is State.NEEDS_TURN
            assert connection.incoming.has_work
            assert not connection.incoming.wants_data
            connection.work()
            turns += 1
    assert turns
    assert (connection.incoming.state, connection.incoming.has_work) == (State.DONE, False)


def test_a_server_answers_and_drains() -> None:
    connection = ServerConnection()
    request = framed(BODY, IHCL)
    connection.feed(request[:-5])
    connection.next_event()
    rows = Rows("INT16", (2, 2), iter([np.zeros((2, 2), "<i2")]))
    assert cycle(connection) is Cycle.RECEIVING
    connection.send_response(200, [], [rows])
    assert cycle(connection) is Cycle.ANSWERING
    connection.end_response()
    assert cycle(connection) is Cycle.DRAINING
    assert connection.next_event() is NEED_DATA
    assert connection.feed(request[-5:]) == 5
    assert connection.next_event() is NEED_DATA
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)
    assert cycle(connection) is Cycle.RECEIVING
    connection.receive_body(Collector(0))
    connection.send_response(200)
    assert cycle(connection) is Cycle.RECEIVING
