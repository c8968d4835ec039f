"""A server whose answer grows while the request comes: it sends each window back before it reads the next one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from streamcodec import (
    HeaderReceived,
    RequestHeader,
    Rows,
    Tensor,
    WindowReceived,
    Windows,
    encode_response,
    request_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import RequestHead, ServerConnection
from streamcodec.transports import sync
from tests.server.wire import TIMEOUT


@contextmanager
def growing(window_bytes: int) -> Iterator[str]:
    """Serve connections one after the other, each with one request of one tensor, which comes back doubled."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, window_bytes))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, window_bytes: int) -> None:
    with suppress(OSError):  # the test has ended
        while True:
            sock, _ = listener.accept()
            sock.settimeout(TIMEOUT)
            with sock, suppress(ConnectionError):  # the client has gone, as it may
                _answer(sock, ServerConnection(), window_bytes)


def _answer(sock: socket.socket, connection: ServerConnection, window_bytes: int) -> None:
    head = sync.next_event(sock, connection)
    assert isinstance(head, RequestHead)
    decoder = request_decoder(
        header_length=header_length_of(head.fields),
        body_length=head.body_length,
        place=lambda _: Windows(max_window_bytes=window_bytes),
    )
    connection.receive_body(decoder)
    event = sync.next_event(sock, connection)
    assert isinstance(event, HeaderReceived)
    assert isinstance(event.header, RequestHeader)
    (spec,) = event.header.tensors
    doubled = Rows(spec.datatype.name, spec.shape, _doubled(sock, connection))
    message = encode_response([Tensor(name=spec.name, array=doubled)], model_name="double")
    fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
    sync.send(sock, [f"HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}\r\n".encode(), *message.parts])


def _doubled(sock: socket.socket, connection: ServerConnection) -> Iterator[np.ndarray[Any, Any]]:
    while isinstance(event := sync.next_event(sock, connection), WindowReceived):
        yield event.array * event.array.dtype.type(2)
