"""Driver: brings bytes to a connection in any cut and through either face, and keeps a log of everything that came out.

Two runs are the same if their logs are equal: events, tensor bytes, errors with code, message, offset and path, and the
bytes that a server sent. A driver does what a transport and an owner do together, and nothing else: it asks for events
until there are none, opens a receiver on a head, answers what has ended or was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    HeaderReceived,
    LocalProtocolError,
    MessageError,
    TensorReceived,
    WindowReceived,
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
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.testing import describe_array, describe_error, describe_spec
from tests.effort import places

Entry = tuple[object, ...]
"""A line of the log."""

Open = Callable[[RequestHead | ResponseHead], Receiver]
"""Says where the body behind a head goes; may refuse it."""

Start = Callable[[], "Driver"]
"""Makes a driver that is ready for the first byte."""

Deliver = Callable[["Driver", bytes], None]
"""A way to bring bytes to a connection."""


def open_message(head: RequestHead | ResponseHead) -> Receiver:
    """Decode what is an inference, collect the rest, as a service and a client would."""
    if isinstance(head, ResponseHead):
        if head.status != 200 or head.fields.values(b"x-kind") == [b"plain"]:
            return Collector(1 << 20)
        return response_decoder(header_length=header_length_of(head.fields), body_length=head.body_length)
    if head.method != "POST":
        return Collector(1 << 20)
    return request_decoder(header_length=header_length_of(head.fields), body_length=head.body_length)


class Driver:
    """One connection, driven. `log` is what came out, `sent` what a server answered."""

    def __init__(self, connection: ServerConnection | ClientConnection, open_body: Open = open_message) -> None:
        self.connection = connection
        self.log: list[Entry] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.sent = b""
        self.is_over = False
        self.turns = 0
        self._open = open_body
        self._receiver: Receiver | None = None

    def push(self, data: bytes) -> None:
        """Bring bytes through `feed`, and poison them afterwards."""
        chunk = bytearray(data)
        view = memoryview(chunk)
        while view and not self.is_over:
            taken = self.connection.feed(view)
            view[:taken] = b"\xee" * taken
            view = view[taken:]
            self.pump()

    def pull(self, data: bytes, reads: Iterable[int] = (1 << 20,)) -> None:
        """Bring bytes through `get_buffer`, with reads of these sizes, over and over."""
        view = memoryview(data)
        sizes = cycle(reads)
        while view and not self.is_over:
            buffer = self.connection.get_buffer()
            assert len(buffer) > 0
            assert not buffer.readonly
            assert buffer.format == "B"
            count = min(len(buffer), len(view), next(sizes))
            buffer[:count] = view[:count]
            self.connection.buffer_updated(count)
            view = view[count:]
            self.pump()

    def scatter(self, data: bytes, reads: Iterable[int] = (1 << 20,)) -> None:
        """Bring bytes through `get_buffers`, as `recvmsg_into` would, with reads of these sizes, over and over."""
        view = memoryview(data)
        sizes = cycle(reads)
        while view and not self.is_over:
            count, size = 0, next(sizes)
            for buffer in self.connection.get_buffers():
                part = view[count : min(size, count + len(buffer))]
                buffer[: len(part)] = part
                count += len(part)
            self.connection.buffer_updated(count)
            view = view[count:]
            self.pump()

    def end(self) -> None:
        """Bring the end of input."""
        self.connection.receive_eof()
        self.pump()

    def pump(self) -> None:
        """Take events until there are none, and do what each of them asks for."""
        while not self.is_over:
            try:
                event = self.connection.next_event()
                if event is NEED_DATA:
                    return
                if event is NEED_TURN:
                    self._work()
                    continue
                self._note(event)
            except MessageError as failure:
                self.log.append(error_entry(failure))
                self._answer(failure.status_hint, failure.code)

    def _work(self) -> None:
        """Do a piece of work. Bytes cannot be brought before."""
        connection = self.connection
        assert not connection.incoming.wants_data
        assert connection.feed(b"more") == 0
        before = connection.incoming.received_copied
        self.turns += 1
        connection.work()
        assert connection.incoming.received_copied - before <= SCRATCH_BYTES

    def _note(self, event: object) -> None:
        match event:
            case RequestHead() | ResponseHead():
                self.log.append(("head", event))
                self._receiver = receiver = self._open(event)
                self.sent += self.connection.receive_body(receiver) or b""
            case HeaderReceived():
                self.log.append(("header", event.header.id, tuple(map(describe_spec, event.header.tensors))))
            case TensorReceived():
                self.arrays.append(event.array)
                self.log.append(("tensor", describe_spec(event.spec), describe_array(event.array).values))
            case WindowReceived():
                self.log.append(
                    ("window", describe_spec(event.spec), event.row, describe_array(event.array).values, event.is_last)
                )
            case EndOfMessage():
                collected = bytes(self._receiver.data) if isinstance(self._receiver, Collector) else None
                self.log.append(("end", event.nbytes, collected))
                self._answer(200, "ok")
            case ConnectionClosed():
                self.log.append(("closed",))
                self.is_over = True
            case _:
                raise AssertionError(event)

    def _answer(self, status: int, text: str) -> None:
        if isinstance(self.connection, ServerConnection):
            self.sent += b"".join(self.connection.send_response(status, (), [text.encode()]))
        else:
            self.is_over = True


def error_entry(error: MessageError) -> Entry:
    """Everything that must not depend on how the bytes were cut."""
    return ("error", *describe_error(error))


def server(open_body: Open = open_message, *, paced: bool = False) -> Driver:
    """Make a driver of a server's connection."""
    return Driver(ServerConnection(paced=paced), open_body)


def client(open_body: Open = open_message, method: str = "POST", *, paced: bool = False) -> Driver:
    """Make a driver of a client's connection that has sent its request."""
    connection = ClientConnection(paced=paced)
    connection.send_request(method, "/v2/models/m/infer", [("Host", "x"), ("Content-Length", "0")])
    return Driver(connection, open_body)


def ways(message: bytes, cuts: Iterable[int], tail: bytes = b"") -> Iterator[tuple[str, Callable[[Driver], None]]]:
    """Yield named ways to deliver a message: whole, cut in two at each of `cuts`, byte by byte; both faces.

    With a `tail`, the bytes of a following message come together with the last ones.
    """

    def two(deliver: Deliver, cut: int) -> Callable[[Driver], None]:
        def run(driver: Driver) -> None:
            deliver(driver, message[:cut])
            deliver(driver, message[cut:] + tail)

        return run

    def single(deliver: Deliver) -> Callable[[Driver], None]:
        def run(driver: Driver) -> None:
            for index in range(len(message) - 1):
                deliver(driver, message[index : index + 1])
            deliver(driver, message[-1:] + tail)

        return run

    yield "whole, pushed", two(Driver.push, 0)
    yield "whole, pulled", two(Driver.pull, 0)
    yield "pulled with reads of 1, 3 and 1000 bytes", lambda driver: driver.pull(message + tail, (1, 3, 1000))
    yield "scattered", lambda driver: driver.scatter(message + tail)
    yield "scattered in reads of 1, 30 and 200 bytes", lambda driver: driver.scatter(message + tail, (1, 30, 200))
    yield "byte by byte, pushed", single(Driver.push)
    yield "byte by byte, pulled", single(Driver.pull)
    for cut in cuts:
        yield f"cut at {cut}, pushed", two(Driver.push, cut)
        yield f"cut at {cut}, pulled", two(Driver.pull, cut)


def triad(
    start: Start, message: bytes, *, cuts: Sequence[int] | None = None, tail: bytes = b"", is_sent_alike: bool = True
) -> Driver:
    """Show that all ways of delivery give one log, and return a driver that has it.

    What is sent may differ (`is_sent_alike=False`) where the client waits for `100 Continue`: who has begun with the
    body is not told to go on.
    """
    reference: Driver | None = None
    for name, deliver in ways(message, places(range(1, len(message)) if cuts is None else cuts), tail):
        driver = start()
        deliver(driver)
        driver.end()
        reference = reference or driver
        assert driver.log == reference.log, name
        assert driver.sent == reference.sent or not is_sent_alike, name
    assert reference is not None
    return reference


def refuses(driver: Driver, *, code: str, status: int) -> bool:
    """Whether the last error that came out has this code and status."""
    errors = [entry for entry in driver.log if entry[0] == "error"]
    return bool(errors) and errors[-1][2] == code and errors[-1][6] == status


def raises_local(call: Callable[[], object]) -> str:
    """Return the message of the `LocalProtocolError` that a call raises."""
    try:
        call()
    except LocalProtocolError as error:
        return str(error)
    msg = "nothing was raised"
    raise AssertionError(msg)
