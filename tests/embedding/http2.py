"""HTTP/2: a client that blocks, over h2, without TLS: it knows that the server speaks HTTP/2."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

import h2.config
import h2.connection
import h2.errors
import h2.events

_SECONDS: Final = 20.0


class Stream:
    """One request and its answer.

    Attributes:
        fields: of the answer; none before it has begun.
        body: of the answer, as far as it has come.
        has_ended: whether that is all.
        is_reset: whether the server has broken it off.
    """

    def __init__(self, number: int) -> None:
        """Begin."""
        self.number = number
        self.fields: dict[str, str] = {}
        self.body = bytearray()
        self.has_ended = False
        self.is_reset = False

    @property
    def status(self) -> int:
        """Of the answer."""
        return int(self.fields[":status"])


class Http2Client:
    """A connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Connect."""
        self._sock = socket.create_connection(address, _SECONDS)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._streams: dict[int, Stream] = {}
        self._h2.initiate_connection()
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sock.close()

    def begin(self, method: str, path: str, fields: Iterable[tuple[str, str]] = (), *, ends: bool = False) -> Stream:
        """Send the head of a request."""
        stream = Stream(self._h2.get_next_available_stream_id())
        self._streams[stream.number] = stream
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
        sent = [(name.lower(), value) for name, value in fields]
        self._h2.send_headers(stream.number, [*pseudo, *sent], end_stream=ends)
        self._flush()
        return stream

    def send(self, stream: Stream, data: bytes | memoryview, *, ends: bool = False) -> None:
        """Send a part of a body, as fast as the server takes it."""
        view = memoryview(data).cast("B")
        while view:
            room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if not room:
                self.receive()
                continue
            self._h2.send_data(stream.number, view[:room].tobytes())
            view = view[room:]
            self._flush()
        if ends:
            self._h2.end_stream(stream.number)
            self._flush()

    def reset(self, stream: Stream) -> None:
        """Break a request off."""
        self._h2.reset_stream(stream.number, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def finish(self, stream: Stream) -> Stream:
        """Receive the rest of an answer."""
        while not stream.has_ended:
            self.receive()
        return stream

    def receive(self) -> None:
        """Receive once.

        Raises:
            ConnectionError: the server has closed.
        """
        if not (data := self._sock.recv(1 << 18)):
            raise ConnectionResetError("the server has closed")
        for event in self._h2.receive_data(data):
            self._take(event)
        self._flush()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=int(number), headers=headers):
                self._streams[number].fields = {str(name): str(value) for name, value in headers or ()}
            case h2.events.DataReceived(stream_id=int(number), data=data, flow_controlled_length=length):
                self._streams[number].body += data or b""
                self._h2.acknowledge_received_data(length or 0, number)
            case h2.events.StreamReset(stream_id=int(number)):
                self._streams[number].is_reset = self._streams[number].has_ended = True
            case h2.events.StreamEnded(stream_id=int(number)):
                self._streams[number].has_ended = True

    def _flush(self) -> None:
        self._sock.sendall(self._h2.data_to_send())
