"""Exchanges: requests that our clients do not send, made with our encoder and our HTTP.

Such as a raw binary request, the headerless form, or binary and JSON inputs mixed.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from streamcodec import EncodedMessage, EndOfMessage, HeaderReceived, ResponseHeader, TensorReceived, response_decoder
from streamcodec.engine.events import NEED_DATA
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ClientConnection, Collector, Fields, ResponseHead
from streamcodec.transports import sync
from tests.interop.tensors import Array

TIMEOUT = 60.0
_MAX_TEXT = 1 << 20
_OK = 200


@dataclass(slots=True)
class Answer:
    """What a server answered."""

    status: int
    fields: Fields
    header: ResponseHeader | None = None
    """None if the answer is an error."""
    outputs: dict[str, Array] = field(default_factory=dict)
    text: str = ""
    """The body, if the answer is an error."""

    def value(self, name: bytes) -> str | None:
        """Return the value of a field (lower case), if it is there."""
        values = self.fields.values(name)
        return values[0].decode() if values else None

    def forms(self) -> dict[str, str]:
        """Tell in which form each output came."""
        assert self.header is not None, self.text
        return {spec.name: "binary" if spec.is_binary else "json" for spec in self.header.tensors}


def post(url: str, path: str, message: EncodedMessage, *, fields: Iterable[tuple[str, str]] = ()) -> Answer:
    """Send a message to `/v2/models/` and the path, with more fields if wanted."""
    return send(url, path, [*message.headers, *fields], message.buffers)


def send(
    url: str,
    path: str,
    fields: Iterable[tuple[str, str]],
    buffers: Iterable[bytes | memoryview],
    *,
    awaits_continue: bool = False,
) -> Answer:
    """Send a body with exactly these fields (and `Host`); the body only when the server bids it, if that is awaited."""
    address = urlsplit(url)
    connection = ClientConnection()
    with socket.create_connection((address.hostname, address.port), TIMEOUT) as sock:
        head, *body = connection.send_request(
            "POST", f"/v2/models/{path}", [("Host", address.netloc), *fields], buffers
        )
        sync.send(sock, [head])
        if awaits_continue:
            _await_continue(sock, connection)
        sync.send(sock, body)
        return _receive(sock, connection)


def without(message: EncodedMessage, *names: str) -> list[tuple[str, str]]:
    """Return the fields of a message but for some."""
    return [(name, value) for name, value in message.headers if name not in names]


def _await_continue(sock: socket.socket, connection: ClientConnection) -> None:
    """Read the interim answer; anything else is an event, which fails the test."""
    assert select.select([sock], [], [], TIMEOUT)[0], "the server does not say that the body may come"
    sync.received(connection, sock.recv_into(connection.get_buffer()))
    assert connection.next_event() is NEED_DATA


def _receive(sock: socket.socket, connection: ClientConnection) -> Answer:
    head = sync.next_event(sock, connection)
    assert isinstance(head, ResponseHead)
    answer = Answer(head.status, head.fields)
    collector = Collector(_MAX_TEXT)
    if head.status == _OK:
        decoder = response_decoder(header_length=header_length_of(head.fields), body_length=head.body_length)
        connection.receive_body(decoder)
    else:
        connection.receive_body(collector)
    while not isinstance(event := sync.next_event(sock, connection), EndOfMessage):
        if isinstance(event, TensorReceived):
            answer.outputs[event.spec.name] = event.array
        elif isinstance(event, HeaderReceived):
            assert isinstance(event.header, ResponseHeader)
            answer.header = event.header
    answer.text = collector.data.decode()
    return answer
