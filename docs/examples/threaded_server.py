"""A V2 server with a thread for each connection, in blocking code: `python threaded_server.py [PORT]`.

It shows what a server of your own has to do around `ServerConnection` (HTTP) and `Service` (the V2 protocol), which do
no I/O: move bytes, and decide about time and threads. Tensors come straight into the arrays that the model gets.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
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
WAITING_THREADS = 4
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


class Acceptor:
    """Accepts connections in threads, each of which serves what it has accepted. One of them always waits.

    Some threads are kept for the next connections: to start one takes longer than to answer a health check.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Start the first thread."""
        self._listener = listener
        self._lock = threading.Lock()
        self._waiting = 0
        with self._lock:
            self._start()

    def _start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._waiting += 1

    def _run(self) -> None:
        """Serve one connection after the other, until enough other threads wait for the next one."""
        is_needed = True
        while is_needed:
            sock = self._accept()
            with self._lock, suppress(RuntimeError):  # no more threads: those that there are will come back
                self._waiting -= 1
                if not self._waiting:
                    self._start()
            serve_connection(sock)
            with self._lock:
                is_needed = self._waiting < WAITING_THREADS
                self._waiting += is_needed

    def _accept(self) -> socket.socket:
        while True:
            with suppress(OSError):  # there are too many open files; other connections will end
                return self._listener.accept()[0]
            time.sleep(0.1)


def main() -> None:
    """Accept connections until the program is stopped."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    sys.setswitchinterval(0.001)  # on a slow processor, health checks wait less for the others' long texts
    threading.stack_size(256 << 10)  # of address space, instead of 8 MB for each connection
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        Acceptor(listener)
        threading.Event().wait()


if __name__ == "__main__":
    main()
