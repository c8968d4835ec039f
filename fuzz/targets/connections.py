"""Connections: one of ours and one of h11 alone, each brought to read the bytes of a case.

Both collect what they read as `Message`s, so that `http` can hold one against the other. Here is what an owner and a
transport do, and no opinion of what is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import h11

from streamcodec import NEED_DATA, EndOfMessage, Limits, MessageError
from streamcodec.http import (
    ClientConnection,
    Collector,
    ConnectionClosed,
    Fields,
    RequestHead,
    ResponseHead,
    ServerConnection,
)
from streamcodec.testing import describe_error
from targets.case import Face
from targets.choices import Choices, ChoicesWriter
from targets.cuts import piece_sizes

_BOTH = (False, True)
_FACES = tuple(Face)
_SIZES = range(256)
_METHODS = ("POST", "GET", "HEAD")
_PIECES = 12
_REFUSAL = 404
_MAX_BODY_BYTES = 1 << 20
_SMALL_LIMITS = Limits(max_head_bytes=150, max_head_fields=4, max_drain_bytes=10, max_compression_ratio=4)


class Role(Enum):
    """Which end of the connection is ours."""

    SERVER = auto()
    CLIENT = auto()


_ROLES = tuple(Role)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the peer sends, and how it arrives."""

    stream: bytes
    role: Role = Role.SERVER
    method: str = "POST"
    """Of the request that a client has sent."""
    is_limited: bool = False
    """Whether limits apply that short messages can exceed."""
    refuses: bool = False
    """Whether a server answers before it reads a body, which is then dropped."""
    has_short_chunks: bool = False
    """Whether chunks of a few bytes already are written to the receiver's memory directly, as long ones are."""
    has_eof: bool = True
    face: Face = Face.PULL
    first_piece: int = 0
    """Bytes of the first piece of the second run; 0 leaves it out."""
    piece: int = 0
    """Bytes of each of the next few pieces; 0 is all that there is, as is the last piece."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(
            role=choices.pick(_ROLES),
            method=choices.pick(_METHODS),
            is_limited=choices.pick(_BOTH),
            refuses=choices.pick(_BOTH),
            has_short_chunks=choices.pick(_BOTH),
            has_eof=choices.pick(_BOTH),
            face=choices.pick(_FACES),
            first_piece=choices.number(),
            piece=choices.pick(_SIZES),
            stream=choices.rest(),
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_ROLES, self.role)
        choices.pick(_METHODS, self.method)
        choices.pick(_BOTH, self.is_limited)
        choices.pick(_BOTH, self.refuses)
        choices.pick(_BOTH, self.has_short_chunks)
        choices.pick(_BOTH, self.has_eof)
        choices.pick(_FACES, self.face)
        choices.number(self.first_piece)
        choices.pick(_SIZES, self.piece)
        return choices.finish(self.stream)

    @property
    def pieces(self) -> Iterator[int]:
        """Sizes of the pieces of the second run."""
        return piece_sizes(self.first_piece, self.piece, max(1, len(self.stream)), count=_PIECES)


@dataclass
class Message:
    """One message: what is known of it once its head has come."""

    start: tuple[str, ...] = ()
    fields: Fields = field(default_factory=lambda: Fields(()))
    body: bytes | None = None
    """None until it has ended."""
    error: MessageError | None = None
    """Why it was refused."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it, comparable."""
        return (self.start, self.fields, self.body, self.error and describe_error(self.error))

    @property
    def is_cut_dependent(self) -> bool:
        """Whether what follows depends on how much had come when it was refused: a short rest is dropped, for a long
        one the connection is closed; and a client that waits to be told to go on may have gone on."""
        is_refused_midway = bool(self.start) and self.error is not None
        return is_refused_midway or (self.body is None and bool(self.fields.values(b"expect")))


@dataclass
class Outcome:
    """What came of a connection."""

    messages: list[Message] = field(default_factory=list)
    """The last one may be incomplete."""
    is_closed: bool = False
    is_reusable: bool = False
    """Of a client: whether the next request can follow."""

    @property
    def log(self) -> list[tuple[Any, ...]]:
        """What must be the same whatever the cuts."""
        entries = []
        for message in self.messages:
            entries.append(message.parts)
            if message.is_cut_dependent:
                return entries
        return [*entries, (self.is_closed, self.is_reusable)]


def run(case: Case, face: Face, pieces: Iterator[int]) -> Outcome:
    """Bring the bytes of a case to one of our connections."""
    limits = _SMALL_LIMITS if case.is_limited else Limits()
    driver = _Server(case, limits) if case.role is Role.SERVER else _Client(case, limits)
    connection, stream, position = driver.connection, memoryview(case.stream), 0
    driver.pump()
    while position < len(stream) and not driver.is_over:
        count = next(pieces)
        if face is Face.PUSH:
            chunk = bytearray(stream[position : position + count])
            taken = connection.feed(chunk)
            chunk[:] = bytes(len(chunk))  # a connection that kept a reference would show it
        else:
            buffers = connection.get_buffers() if face is Face.SCATTER else [connection.get_buffer()]
            taken = _write(buffers, stream[position : position + count])
            connection.buffer_updated(taken)
        assert taken, "a connection that waits for bytes does not take them"
        position += taken
        driver.pump()
    driver.finish(position)
    return driver.outcome


def _write(buffers: Sequence[memoryview], data: memoryview) -> int:
    """Write data to the buffers, one after the other; return how many bytes had room."""
    taken = 0
    for buffer in buffers:
        part = data[taken : taken + len(buffer)]
        buffer[: len(part)] = part
        taken += len(part)
    return taken


class _Server:
    """Collects the bodies of requests, and answers each with a refusal, which ends no protocol and switches none."""

    def __init__(self, case: Case, limits: Limits) -> None:
        self.connection = ServerConnection(limits)
        self.outcome = Outcome()
        self._case = case
        self._collector = Collector(_MAX_BODY_BYTES)

    @property
    def is_over(self) -> bool:
        return self.outcome.is_closed

    def pump(self) -> None:
        """Take events until there are none."""
        messages = self.outcome.messages
        head_count = 0
        while not self.is_over:
            try:
                event = self.connection.next_event()
                match event:
                    case RequestHead():
                        messages.append(Message((event.method, event.target), event.fields))
                        self._take_body()
                    case EndOfMessage():
                        messages[-1].body = bytes(self._collector.data)
                        self._answer()
                    case ConnectionClosed():
                        self.outcome.is_closed = True
                    case _:
                        assert event is NEED_DATA
                        return
            except MessageError as error:  # the one answer to bad bytes
                self._refuse(error)
            head_count += 1
            assert head_count <= 3 * len(self._case.stream) + 3, "events without end"

    def finish(self, position: int) -> None:  # noqa: ARG002 - the client's asks for it
        """Tell the end of input."""
        if self._case.has_eof and not self.is_over:
            self.connection.receive_eof()
            self.pump()

    def _take_body(self) -> None:
        self._is_begun = True
        if self._case.refuses:
            self._answer()
            return
        self._collector = Collector(_MAX_BODY_BYTES)
        self.connection.receive_body(self._collector)

    def _refuse(self, error: MessageError) -> None:
        messages = self.outcome.messages
        if not messages or messages[-1].error or messages[-1].body is not None or not self._is_begun:
            messages.append(Message())  # its head was not one
        messages[-1].error = error
        self._answer()

    def _answer(self) -> None:
        self._is_begun = False
        self.connection.send_response(_REFUSAL)

    _is_begun = False


class _Client:
    """Has sent one request, and collects the response."""

    def __init__(self, case: Case, limits: Limits) -> None:
        self.connection = ClientConnection(limits)
        self.connection.send_request(case.method, "/", [("Host", "x")])
        self.outcome = Outcome()
        self.is_over = False
        self._case = case
        self._collector = Collector(_MAX_BODY_BYTES)

    def pump(self) -> None:
        """Take events until there are none."""
        messages = self.outcome.messages
        try:
            while not self.is_over:
                event = self.connection.next_event()
                match event:
                    case ResponseHead():
                        messages.append(Message((str(event.status),), event.fields))
                        self.connection.receive_body(self._collector)
                    case EndOfMessage():
                        messages[-1].body = bytes(self._collector.data)
                        self.is_over = True
                    case _:
                        assert event is NEED_DATA
                        return
        except MessageError as error:  # the one answer to bad bytes
            if not messages:
                messages.append(Message())
            messages[-1].error = error
            self.is_over = True

    def finish(self, position: int) -> None:
        """Tell the end of input; a connection with bytes left is not where the next response begins."""
        if self._case.has_eof and not (self.is_over and position < len(self._case.stream)):
            self.connection.receive_eof()
            self.pump()
        self.outcome.is_reusable = self.connection.is_reusable and position == len(self._case.stream)


def ask_h11(case: Case) -> tuple[Outcome, str]:
    """Have h11 alone read a case; return what it has read, and its complaint if there is one."""
    return _ask_server(case) if case.role is Role.SERVER else _ask_client(case)


def _ask_server(case: Case) -> tuple[Outcome, str]:
    """Have h11 alone read requests; return them, and its complaint if there is one."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_BODY_BYTES)
    _give(connection, case)
    outcome = Outcome()
    try:
        while _read_message(connection, outcome):
            connection.send(h11.Response(status_code=_REFUSAL, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        return outcome, str(error)
    return outcome, ""


def _ask_client(case: Case) -> tuple[Outcome, str]:
    """Have h11 alone read a response; return it, and its complaint if there is one."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_BODY_BYTES)
    connection.send(h11.Request(method=case.method, target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    _give(connection, case)
    outcome = Outcome()
    try:
        if _read_message(connection, outcome):
            states = {connection.our_state, connection.their_state}
            outcome.is_reusable = states == {h11.DONE} and connection.trailing_data == (b"", False)
    except h11.RemoteProtocolError as error:
        return outcome, str(error)
    return outcome, ""


def _give(connection: h11.Connection, case: Case) -> None:
    if case.stream:
        connection.receive_data(case.stream)
    if case.has_eof:
        connection.receive_data(b"")


def _read_message(connection: h11.Connection, outcome: Outcome) -> bool:
    """Read one message; tell whether it is complete."""
    data = bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.Request():
                start = (event.method.decode(), event.target.decode())
                outcome.messages.append(Message(start, Fields(tuple(event.headers))))
            case h11.Response():
                outcome.messages.append(Message((str(event.status_code),), Fields(tuple(event.headers))))
            case h11.Data():
                data += event.data
            case h11.EndOfMessage():
                outcome.messages[-1].body = bytes(data)
                return True
            case h11.InformationalResponse():
                pass
            case _:  # needs data, paused, or closed
                return False
