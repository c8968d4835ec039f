"""Blocking transports: sockets, plain or with TLS; everything else is in `files`.

Each function drives an *event source*: a `Decoder`, a `ServerConnection`, a `ClientConnection`, or an object with the
same methods. The socket writes straight into the memory that the source provides. If that is several small tensors in
a row, one read of a socket fills many of them. Time limits are those of the socket (`settimeout`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.message import Part
from streamcodec.transports.sockets.system import HAS_RECVMSG, new_poll, send_some
from streamcodec.transports.sockets.vectors import SendQueue
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.tls.sockets import POLLIN, Socket, TlsSocket

LONG_READ_BYTES: Final = 1 << 20
"""Size of one read into a long buffer, when no other connection has to be served meanwhile: as much as a turn of `aio`.
Against reads of `READ_BYTES`, 64 MiB over loopback into new memory took 0.8 of the processor time and of the time; into
memory that was used before 0.85 of the processor time, and the same time. Reads of 4 MiB gained nothing more."""


def receive(sock: Socket, source: EventSource[object], most: int = READ_BYTES) -> int:
    """Read once, into as many of the source's buffers as there are bytes for; return how many bytes, 0 at the end.

    Args:
        sock: blocking or not.
        source: provides the buffers.
        most: largest number of bytes to read into one long buffer.
    """
    buffers = source.get_buffers()
    if len(buffers) > 1 and (HAS_RECVMSG or isinstance(sock, TlsSocket)):
        return sock.recvmsg_into(buffers)[0]
    return sock.recv_into(buffers[0], min(len(buffers[0]), most))


def received(source: EventSource[object], nbytes: int) -> None:
    """Report the result of a read to the source; 0 is the end of input."""
    if nbytes:
        source.buffer_updated(nbytes)
    else:
        source.receive_eof()


def next_event(sock: Socket, source: EventSource[EventT]) -> EventT:
    """Return the source's next event, reading from a blocking socket as needed.

    Raises:
        RemoteProtocolError: the peer's bytes break a rule.
        OSError: the connection is broken, or timed out (`TimeoutError`).
    """
    while (event := source.next_event()) is NEED_DATA or event is NEED_TURN:
        if event is NEED_DATA:
            received(source, receive(sock, source, LONG_READ_BYTES))
        else:
            source.work()
    return event


def send(sock: Socket, parts: Iterable[Part]) -> None:
    """Send the parts of a message over a blocking socket.

    Args:
        sock: blocking.
        parts: bytes, byte views, and `Rows`. The windows of `Rows` are requested when it is their turn.

    Raises:
        LocalProtocolError: windows differ from the declaration. Then only a part of the message has been sent, and the
            connection must be closed. The same holds for any exception of the source of the windows.
        OSError: the connection is broken, or timed out (`TimeoutError`).
    """
    queue = SendQueue(parts)
    while queue:
        queue.sent(send_some(sock, queue.vectors()))


@contextmanager
def new_socket(family: int, kind: int, protocol: int) -> Iterator[socket.socket]:
    """Open a TCP socket that sends without delay; it is closed if the block ends with an exception.

    Args:
        family: this and the other arguments are as returned by `socket.getaddrinfo`.
        kind: of the socket.
        protocol: of the family.
    """
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock
    except BaseException:
        sock.close()
        raise


def input_test(sock: Socket) -> Callable[[], object]:
    """Return a function that tells whether a read would return at once: with bytes, with the end, or with an error.

    Call it only between two messages: with TLS it takes a byte, if there is one.
    """
    if isinstance(sock, TlsSocket):
        return lambda: sock.has_input
    return partial(input_poll(sock).poll, 0)


def input_poll(sock: socket.socket) -> Any:  # noqa: ANN401 - a `select.poll`, or what is used instead
    """Return what tells by `poll` whether a read of a socket without TLS would return at once."""
    poll = new_poll()
    poll.register(sock, POLLIN)
    return poll
