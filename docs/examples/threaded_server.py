"""A V2 server with a thread for each connection, in blocking code: `python threaded_server.py [PORT]`.

It shows what a server of your own has to do around `ServerConnection` (HTTP) and `Service` (the V2 protocol), which do
no I/O: move bytes, and decide about time and threads. Tensors come straight into the arrays that the model gets.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from streamcodec import EndOfMessage, ErrorCode, Event, Limits, MessageError, RemoteProtocolError
from streamcodec.http import ConnectionClosed, RequestHead, ServerConnection
from streamcodec.service import (
    ANY_SIZE,
    Inference,
    InferenceRequest,
    Listing,
    Model,
    ModelRegistry,
    Reply,
    Service,
    TensorMetadata,
    error_reply,
)
from streamcodec.transports.source import EventSource
from streamcodec.transports.sync import next_event, send

TIMEOUT_SECONDS = 30.0
LIMITS = Limits(max_tensor_bytes=256 << 20)


def softmax(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Turn rows of scores into rows of probabilities, in the memory that the network has filled."""
    scores = request.inputs["scores"]
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return {"probabilities": scores}


SERVICE = Service(
    ModelRegistry.of(
        [
            Model(
                name="softmax",
                predict=softmax,
                inputs=(TensorMetadata("scores", "FP32", (ANY_SIZE, ANY_SIZE)),),
                outputs=(TensorMetadata("probabilities", "FP32", (ANY_SIZE, ANY_SIZE)),),
            )
        ]
    ),
    limits=LIMITS,
)


def serve_connection(sock: socket.socket) -> None:
    """Answer the requests of one connection until it ends."""
    sock.settimeout(TIMEOUT_SECONDS)
    connection = ServerConnection(LIMITS)
    with sock, suppress(OSError):  # the client has gone, or is idle for too long
        while True:
            head: RequestHead | None = None
            try:
                event = next_event(sock, connection)
                if not isinstance(event, RequestHead):
                    break
                head = event
                reply = answer(sock, connection, head)
            except MessageError as error:
                reply = error_reply(error)
            reply = SERVICE.finish(reply, head)
            send(sock, connection.send_response(reply.status, reply.headers, reply.buffers))
        if connection.has_unread_body:
            linger(sock)


def answer(sock: socket.socket, connection: ServerConnection, head: RequestHead) -> Reply:
    """Receive the body, if it is wanted, and answer it: mostly by calling the model."""
    outcome = SERVICE.begin(head)
    if isinstance(outcome, Reply):
        return outcome
    send(sock, [connection.receive_body(outcome.decoder)])
    try:
        receive(sock, connection, outcome)
    except TimeoutError:
        slow = RemoteProtocolError("the request comes too slowly", code=ErrorCode.TOO_SLOW, status_hint=408)
        connection.give_up(slow)
        return error_reply(slow)
    return outcome.run()


def receive(sock: socket.socket, connection: ServerConnection, request: Inference | Listing) -> None:
    """Receive one body."""
    source: EventSource[Event | RequestHead | ConnectionClosed] = connection  # which mypy does not find out by itself
    while not isinstance(event := next_event(sock, source), EndOfMessage):
        request.receive(event)


def linger(sock: socket.socket) -> None:
    """Let the client read a refusal: closing on what it is still sending would reset the connection."""
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(1.0)
    scratch = bytearray(64 << 10)
    unread = LIMITS.max_drain_bytes
    while unread > 0 and (nbytes := sock.recv_into(scratch)):
        unread -= nbytes


def main() -> None:
    """Accept connections until the program is stopped."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    sys.setswitchinterval(0.001)  # on a slow processor, health checks wait less for the others' long texts
    threading.stack_size(256 << 10)  # of address space, instead of 8 MB for each connection
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve_connection, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    main()
