"""Streams: messages through the streams of anyio, on asyncio and trio: sockets, TLS, processes, files, queues.

A `ByteReceiveStream` returns bytes of its own, so each is copied once, into its tensor, from 64 KiB that are still in
the processor's cache. (Who owns the socket has `aio`, which needs no copy.) It is never asked for more than the message
still needs, so what follows stays in it: the next message, or another protocol.

Streams of objects hand over whole `bytes`, whoever they are for. Put one into anyio's `BufferedByteReceiveStream`,
which keeps what is too much and gives it to the next who asks.

What comes is in the decoder before anybody else has a turn. So a wait that is cancelled, or too long, loses nothing:
the next call goes on.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectSendStream
from anyio.lowlevel import checkpoint

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderT
from streamcodec.transports import turns
from streamcodec.transports.received import Collecting, MessageEvent, Received
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.vectors import async_batches, pieces

_TURN_READS: Final = 16
"""After so many, others have their turn: a stream that has bytes already need not give them one."""


async def receive_message(
    stream: ByteReceiveStream, decoder: Decoder[HeaderT], *, timeout: float | None = None
) -> Received[HeaderT]:
    """Receive one message; what follows it stays in the stream.

    Args:
        stream: at the beginning of the message; an object stream of bytes as a `BufferedByteReceiveStream` over it.
        decoder: a new one, of any format, which says where the tensors go. Make it `paced=True`: then a long header is
            read in turns with everybody else's business.
        timeout: seconds without a byte before giving up; None waits for ever.

    Raises:
        RemoteProtocolError: the message breaks a rule, or the stream ends too early.
        LocalProtocolError: a tensor is placed in windows: take its events one by one, by `next_event`.
        TimeoutError: nothing came for `timeout` seconds. Who wants to go on then takes the events by `next_event`.
        BrokenResourceError: of anyio: the connection is broken; of TLS, also if it ends without its end.
        ClosedResourceError: of anyio: the stream has been closed here.
    """
    collecting = Collecting[HeaderT]()
    source: EventSource[MessageEvent[HeaderT]] = decoder
    received = None
    while received is None:
        received = collecting.receive(await next_event(stream, source, timeout=timeout))
    return received


async def next_event(stream: ByteReceiveStream, source: EventSource[EventT], *, timeout: float | None = None) -> EventT:
    """Return the source's next event, receiving from a stream as needed.

    Args:
        stream: of bytes. A file stream of anyio takes a read of no bytes for the end, whoever says so, and is not
            interrupted while it reads: a serial line, or a file that does not block, is no such file. For these,
            `files.next_event` may be called in a thread.
        source: a `Decoder`, a `FrameReader`, or what has the same methods; to be made `paced=True`.
        timeout: seconds without a byte before giving up; None waits for ever.

    Raises:
        RemoteProtocolError: what has come breaks a rule.
        TimeoutError: nothing came for `timeout` seconds. Nothing is lost, and the next call goes on.
        BrokenResourceError: of anyio: the connection is broken; of TLS, also if it ends without its end.
        ClosedResourceError: of anyio: the stream has been closed here.
    """
    reads = 0
    while (event := source.next_event()) is NEED_DATA or event is NEED_TURN:
        if event is NEED_TURN:
            await turns.work(source)
            continue
        reads += 1
        if reads % _TURN_READS == 0:
            await checkpoint()
        buffers = source.get_buffers()
        try:
            chunk = await _receive(stream, min(sum(map(len, buffers)), READ_BYTES), timeout)
        except anyio.EndOfStream:
            source.receive_eof()
        else:
            _fill(buffers, chunk)
            source.buffer_updated(len(chunk))
    return event


async def send_message(
    stream: ByteSendStream | ObjectSendStream[bytes], message: Encoded, *, timeout: float | None = None
) -> None:
    """Send a message in pieces of at most 256 KiB; it is nowhere held whole.

    Args:
        stream: takes pieces as `bytes` of their own, so that it may keep them, and windows may share their memory. It
            stays open: its owner says when no more will come.
        message: of any format; its `Rows` may be asynchronous, else each window is made on the event loop.
        timeout: seconds for each piece before giving up; None waits for ever.

    Raises:
        LocalProtocolError: windows are not what was declared. What was sent is no whole message then, nor after any
            other exception or a cancellation: the stream must be closed.
        TimeoutError: the peer took nothing for `timeout` seconds.
        BrokenResourceError: of anyio: the connection is broken.
        ClosedResourceError: of anyio: the stream has been closed here.
    """
    async with aclosing(async_batches(message.parts)) as coming:
        async for batch in coming:
            for piece in pieces(batch):
                await _send(stream, bytes(piece), timeout)


async def _receive(stream: ByteReceiveStream, max_bytes: int, timeout: float | None) -> bytes:
    with anyio.move_on_after(timeout):
        return await stream.receive(max_bytes)
    raise _too_long(timeout)


async def _send(stream: ByteSendStream | ObjectSendStream[bytes], piece: bytes, timeout: float | None) -> None:
    with anyio.move_on_after(timeout):
        return await stream.send(piece)
    raise _too_long(timeout)


def _too_long(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"nothing has moved for {timeout or 0:g} seconds")


def _fill(buffers: list[memoryview], chunk: bytes) -> None:
    """Copy bytes to where they belong."""
    rest = memoryview(chunk)
    for buffer in buffers:
        part, rest = rest[: len(buffer)], rest[len(buffer) :]
        buffer[: len(part)] = part
