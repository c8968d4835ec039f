"""Any calls in any order, on both connections: each is legal or a protocol error, and going on properly works.

Hypothesis plays an owner and a transport who make every mistake there is: events at any time, bodies let in twice or
before there is one, answers before a request, twice, and of another length than they say, updates of memory that was
not asked for. What comes out must stay in step with what was sent: each head once and in order, and of the bodies that
were let in exactly the tensors, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    LocalProtocolError,
    RemoteProtocolError,
    TensorReceived,
    WindowReceived,
    Windows,
    new_array,
    request_decoder,
    response_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import (
    ClientConnection,
    Collector,
    ConnectionClosed,
    Receiver,
    RequestHead,
    ResponseHead,
    ServerConnection,
)
from streamcodec.http.connection import State
from tests.effort import examples
from tests.http.messages import BODY, GET, IHCL, RESPONSE, VALUES, body_of, chunked, framed, response

ANSWER: Final = body_of(RESPONSE)
REQUESTS: Final = (
    framed(BODY, IHCL),
    GET,
    framed(BODY, IHCL, sizes=(7, 300)),
    framed(BODY, IHCL, b"Content-Encoding: identity"),
    GET,
    framed(BODY, IHCL),
)
"""Requests in a row, on one connection."""

RESPONSE_FIELDS: Final = f"Inference-Header-Content-Length: {RESPONSE.header_length}".encode()
RESPONSES: Final = (
    response(ANSWER, RESPONSE_FIELDS),
    b"HTTP/1.1 100 Continue\r\n\r\n" + response(ANSWER, RESPONSE_FIELDS),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + RESPONSE_FIELDS + b"\r\n\r\n" + chunked(ANSWER, (9,)),
    response(b"{}", status=b"404 Not Found"),
)
"""Answers, one to each request."""

SIZES: Final = st.integers(1, 60) | st.integers(1, 2000)
BAD_ANSWERS: Final[list[tuple[int, list[tuple[str, str]], list[bytes]]]] = [
    (99, [], []),
    (101, [], []),
    (200, [("X", "a\r\nb")], []),
    (200, [("Content-Length", "5")], [b"1"]),
    (200, [("Content-Length", "1")], [b"12345"]),
]


class _Owner(RuleBasedStateMachine):
    """What both ends have in common: bytes come in, events come out."""

    connection: ServerConnection | ClientConnection

    def __init__(self) -> None:
        super().__init__()
        self.stream = b""
        self.buffers: list[memoryview] = []
        self.head: RequestHead | ResponseHead | None = None
        self.has_ended = False

    @property
    def incoming_state(self) -> State:
        return self.connection.incoming.state

    @initialize(uses_windows=st.booleans())
    def start(self, *, uses_windows: bool) -> None:
        self.uses_windows = uses_windows
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def note(self, event: object) -> None:
        raise NotImplementedError

    # The transport

    @rule(size=SIZES)
    def feed(self, size: int) -> None:
        taken = self.connection.feed(self.stream[:size])
        self.stream = self.stream[taken:]
        self.buffers = []

    @rule(is_several=st.booleans())
    def get_buffer(self, *, is_several: bool) -> None:
        def act() -> list[memoryview]:
            return self.connection.get_buffers() if is_several else [self.connection.get_buffer()]

        if self.connection.incoming.wants_data or self.connection.incoming.is_filling:
            self.buffers = act()
            assert all(len(buffer) > 0 for buffer in self.buffers)
        else:
            raises_local(act)

    @rule(size=SIZES)
    def update(self, size: int) -> None:
        data, count = self.stream[:size], 0
        if not (data and self.buffers):
            return
        for buffer in self.buffers:
            part = data[count : count + len(buffer)]
            buffer[: len(part)] = part
            count += len(part)
        self.buffers = []
        # What has happened since may have taken the memory back: then it says so, and the bytes have not come.
        with suppress(LocalProtocolError):
            self.connection.buffer_updated(count)
            self.stream = self.stream[count:]
        raises_local(lambda: self.connection.buffer_updated(1))

    @rule(nbytes=st.sampled_from([-1, 0, 1 << 40]))
    def update_wrongly(self, nbytes: int) -> None:
        raises_local(lambda: self.connection.buffer_updated(nbytes))

    @rule(chance=st.integers(0, 9))
    def receive_eof(self, chance: int) -> None:
        """Tell the end of input, seldom, since little comes after it."""
        if chance == 0:
            self.connection.receive_eof()
            self.has_ended = True

    # The owner

    @rule()
    def next_event(self) -> None:
        try:
            event = self.connection.next_event()
        except LocalProtocolError:
            assert self.incoming_state in {State.DECIDE, State.DONE} or not self.may_ask()
        except RemoteProtocolError:
            assert self.has_ended
            self.give_up()
        else:
            self.note(event)

    def may_ask(self) -> bool:
        """Whether events can be asked for."""
        return True

    def give_up(self) -> None:
        """React to a refusal."""

    def receiver(self) -> Receiver:
        raise NotImplementedError

    def place(self) -> Any:  # noqa: ANN401 - a `Place`
        return (lambda _: Windows(max_window_bytes=16)) if self.uses_windows else new_array

    @rule()
    def receive_body(self) -> None:
        if self.incoming_state is State.DECIDE:
            self.connection.receive_body(self.receiver())
        else:
            raises_local(lambda: self.connection.receive_body(Collector(0)))

    def check_values(self, event: object) -> None:
        """Hold a tensor of floats against what was sent."""
        match event:
            case TensorReceived(spec=spec, array=array) if spec.name in {"values", "out"}:
                assert np.array_equal(array, VALUES)
            case WindowReceived(spec=spec, array=array, row=row) if spec.name in {"values", "out"}:
                assert np.array_equal(array, VALUES[row : row + len(array)])


def raises_local(act: Callable[[], object]) -> None:
    """Insist on a `LocalProtocolError`."""
    try:
        act()
    except LocalProtocolError:
        return
    msg = "the call was accepted"
    raise AssertionError(msg)


class _ServerOwner(_Owner):
    connection: ServerConnection

    def begin(self) -> None:
        self.connection = ServerConnection()
        self.stream = b"".join(REQUESTS)
        self.seen = 0
        self.is_closed = False

    def note(self, event: object) -> None:
        self.check_values(event)
        match event:
            case RequestHead():
                assert event.method == ("GET" if REQUESTS[self.seen] is GET else "POST")
                self.seen += 1
                self.head = event
            case ConnectionClosed():
                self.is_closed = True
                self.stream = b""

    def receiver(self) -> Receiver:
        assert isinstance(self.head, RequestHead)
        if self.head.method == "GET":
            return Collector(9)
        fields, body_length = self.head.fields, self.head.body_length
        return request_decoder(header_length=header_length_of(fields), body_length=body_length, place=self.place())

    @rule()
    def send_response(self) -> None:
        if self.head is None:
            raises_local(lambda: self.connection.send_response(200))
            return
        sent = self.connection.send_response(200, [], [b"ok"])
        assert bytes(sent[0]).startswith(b"HTTP/1.1 200 OK\r\n")
        self.after_answer()

    def after_answer(self) -> None:
        self.head = None
        self.connection.end_response()
        raises_local(lambda: self.connection.send_response(200))

    @rule(bad=st.sampled_from(BAD_ANSWERS))
    def send_badly(self, bad: tuple[int, list[tuple[str, str]], list[bytes]]) -> None:
        raises_local(lambda: self.connection.send_response(*bad))

    @rule()
    def end_response(self) -> None:
        self.connection.end_response()

    def give_up(self) -> None:
        """Answer the refusal, as an owner has to."""
        with suppress(LocalProtocolError):  # the request had been answered
            self.connection.send_response(400)
        self.head = None

    def teardown(self) -> None:
        """Go on properly: all requests come, in order, unless an answer had to close the connection."""
        if not hasattr(self, "connection"):
            return
        for _ in range(5000):
            match self.incoming_state:
                case State.DECIDE:
                    self.receive_body()
                case State.DONE:
                    self.send_response()
                case State.CLOSED:
                    return
                case _:
                    if not self.goes_on():
                        break
        assert self.has_ended or self.is_closed or self.seen == len(REQUESTS)

    def goes_on(self) -> bool:
        """Take an event, and bring bytes if it needs some; tell whether there were any."""
        try:
            event = self.connection.next_event()
        except RemoteProtocolError:
            return False
        if event is not NEED_DATA:
            self.note(event)
            return True
        had_data = bool(self.stream) and not self.has_ended
        self.feed(size=1 << 20)
        return had_data


class _ClientOwner(_Owner):
    """Asks, and hears answers that come one by one: no server sends one before it was asked."""

    connection: ClientConnection

    def begin(self) -> None:
        self.connection = ClientConnection()
        self.asked = 0
        self.answered = 0

    def note(self, event: object) -> None:
        self.check_values(event)
        match event:
            case ResponseHead():
                assert event.status == (404 if self.asked == len(RESPONSES) else 200)
                self.head = event
            case EndOfMessage():
                self.answered += 1

    def receiver(self) -> Receiver:
        assert isinstance(self.head, ResponseHead)
        if self.head.status != 200:
            return Collector(9)
        fields, body_length = self.head.fields, self.head.body_length
        return response_decoder(header_length=header_length_of(fields), body_length=body_length, place=self.place())

    def may_ask(self) -> bool:
        return self.asked > self.answered

    @property
    def may_send(self) -> bool:
        """Whether a request can be sent: none is under way, and nothing has come unasked."""
        return self.asked == self.answered < len(RESPONSES) and not self.has_ended

    @rule(is_bad=st.booleans())
    def send_request(self, *, is_bad: bool) -> None:
        fields = [("Host", "x\r\ny" if is_bad else "x")]
        if is_bad or not self.may_send:
            if self.asked < len(RESPONSES):
                raises_local(lambda: self.connection.send_request("GET", "/", fields))
            return
        self.connection.send_request("GET", "/", fields)
        self.stream = RESPONSES[self.asked]
        self.asked += 1

    def teardown(self) -> None:
        """Go on properly: every request is answered, unless the connection was ended."""
        if not hasattr(self, "connection"):
            return
        for _ in range(5000):
            if self.has_ended or (self.asked == self.answered == len(RESPONSES)):
                return
            if self.asked == self.answered:
                self.send_request(is_bad=False)
            elif self.incoming_state is State.DECIDE:
                self.receive_body()
            elif (event := self.connection.next_event()) is NEED_DATA:
                assert self.stream, "it waits for what has come"
                self.feed(size=1 << 20)
            else:
                self.note(event)
        msg = "it does not come to an end"
        raise AssertionError(msg)


_SETTINGS: Final = settings(max_examples=examples(60), stateful_step_count=30)
_ServerOwner.TestCase.settings = _ClientOwner.TestCase.settings = _SETTINGS
TestServer = _ServerOwner.TestCase
TestClient = _ClientOwner.TestCase
