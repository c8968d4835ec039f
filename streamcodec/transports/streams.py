"""Streams: messages through anyio's streams, on asyncio and trio: sockets, TLS, processes, files, queues.

A `ByteReceiveStream` returns new `bytes`. So each byte is copied once into its tensor, from at most 64 KiB that are
still in the processor's cache. (With your own socket, `aio` needs no copy.) The stream is never asked for more than the
message still needs. So what follows stays in it: the next message, or another protocol.

Streams of objects return whole `bytes`, even if a part belongs to the next reader. Put such a stream into anyio's
`BufferedByteReceiveStream`, which keeps the rest for the next reader.

Received bytes are in the decoder before another task runs. So a wait that is cancelled or times out loses nothing: the
next call continues.
"""

from __future__ import annotations

from contextlib import aclosing

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectSendStream

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderT
from streamcodec.transports import turns
from streamcodec.transports.sockets.received import Collecting, MessageEvent, Received
from streamcodec.transports.sockets.vectors import async_batches, pieces
from streamcodec.transports.source import READ_BYTES, Encoded, EventSource, EventT


async def receive_message(
    stream: ByteReceiveStream, decoder: Decoder[HeaderT], *, timeout: float | None = None
) -> Received[HeaderT]:
    """Receive one message; what follows it stays in the stream.

    Args:
        stream: at the beginning of the message; for an object stream of bytes, a `BufferedByteReceiveStream` around it.
        decoder: a new one, of any format. It chooses the memory of the tensors. Make it with `paced=True`, so that
            other tasks run while it reads a long header.
        timeout: seconds without a byte before giving up; None waits for ever.

    Returns:
        The message, with all of its tensors.

    Raises:
        RemoteProtocolError: the message breaks a rule, or the stream ends too early.
        LocalProtocolError: a tensor is placed in windows; take its events one by one with `next_event`.
        TimeoutError: no byte arrived for `timeout` seconds. To continue, take the events with `next_event`.
        BrokenResourceError: from anyio: the connection is broken, or a TLS connection ended without TLS's own end.
        ClosedResourceError: from anyio: the stream has been closed here.
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
        stream: of bytes. Anyio's file streams treat a read of no bytes as the end, and cannot be interrupted while they
            read. So do not use them for a serial line or a non-blocking file; call `files.next_event` in a thread
            instead.
        source: a `Decoder`, a `FrameReader`, or an object with the same methods, made with `paced=True`.
        timeout: seconds without a byte before giving up; None waits for ever.

    Raises:
        RemoteProtocolError: the received bytes break a rule.
        TimeoutError: no byte arrived for `timeout` seconds. Nothing is lost, and the next call continues.
        BrokenResourceError: from anyio: the connection is broken, or a TLS connection ended without TLS's own end.
        ClosedResourceError: from anyio: the stream has been closed here.
    """
    while True:
        if turns.is_over():  # a stream that has bytes already need not wait
            await turns.wait()
        event = source.next_event()
        if event is NEED_TURN:
            await turns.work(source)
            continue
        if event is not NEED_DATA:
            return event
        buffers = source.get_buffers()
        try:
            chunk = await _receive(stream, min(sum(map(len, buffers)), READ_BYTES), timeout)
        except anyio.EndOfStream:
            source.receive_eof()
        else:
            rest = memoryview(chunk)
            for buffer in buffers:
                part, rest = rest[: len(buffer)], rest[len(buffer) :]
                buffer[: len(part)] = part
            source.buffer_updated(len(chunk))


async def send_message(
    stream: ByteSendStream | ObjectSendStream[bytes], message: Encoded, *, timeout: float | None = None
) -> None:
    """Send a message in pieces of at most 256 KiB; it is not held as a whole anywhere.

    Args:
        stream: gets pieces as separate `bytes`, so it may keep them, and windows may share their memory. It stays open:
            its owner says when no more will come.
        message: of any format. Its `Rows` may be asynchronous; otherwise each window is made on the event loop.
        timeout: seconds for each piece before giving up; None waits for ever.

    Raises:
        LocalProtocolError: windows differ from the declaration. Then only a part of the message has been sent, and the
            stream must be closed. The same holds after any other exception or a cancellation.
        TimeoutError: the peer took nothing for `timeout` seconds.
        BrokenResourceError: from anyio: the connection is broken.
        ClosedResourceError: from anyio: the stream has been closed here.
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
