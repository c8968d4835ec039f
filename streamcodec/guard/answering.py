"""Answering: sends the answer of the server behind to a client, on the ordinary way, while it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import cast

from streamcodec.engine.events import EndOfMessage, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import zeros
from streamcodec.guard.pieces import Pieces
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed
from streamcodec.guard.upstream import Held
from streamcodec.http.bodies.chunks import Chunks
from streamcodec.http.heads.messages import HttpEvent, ResponseHead
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.http.server import ServerConnection
from streamcodec.transports.duplex import AsyncDuplex


async def pass_back(
    channel: PieceChannel,
    held: Held,
    duplex: AsyncDuplex[HttpEvent],
    answer: ResponseHead,
    passed: Passed | None,
    *,
    piece_bytes: int,
    limits: Limits,
    client: ServerConnection,
    begin: Callable[[], bytes],
) -> None:
    """Send an answer whose head has been read.

    A short one is sent when all of it has come, so that there can be another answer if it breaks off.

    Args:
        channel: of the client.
        held: the connection on which the answer comes.
        duplex: reads it.
        answer: its head.
        passed: how far a relay has come with it; None without a relay.
        piece_bytes: of the longest piece.
        limits: of chunks.
        client: the connection to the client.
        begin: returns the head for the client, when that is sent.

    Raises:
        TimeoutError: nothing has moved for too long, on either side.
        OSError: one of the two has broken off.
        RemoteProtocolError: the answer breaks a rule.
    """
    length = left = answer.content_length
    begun = None if passed is None else passed.answer
    if passed is not None and begun is not None:
        left = passed.answer_left
    chunks = Chunks(limits) if length is None and answer.fields.is_chunked else None
    # An answer whose length is not known may be a stream of events, and the client waits for each of them.
    held.connection.http.incoming.read_body(
        Pieces(left, piece_bytes=piece_bytes), content_length=left, chunks=chunks, is_prompt=length is None
    )
    is_short = begun is None and length is not None and length <= SCRATCH_BYTES
    async with aclosing(_pieces(held, duplex)) as pieces:
        whole = [bytes(piece) async for piece in pieces] if is_short else []
        unsent: list[bytes | memoryview] = [begin()]
        for piece in whole:
            unsent += client.response_piece(piece)
        if passed is not None and begun is not None:
            client.response_piece(zeros(begun.length - passed.answer_left))  # this much the relay has taken
            unsent = [*passed.answer_unsent]
        async for view in pieces:
            await channel.send_buffers([*unsent, *client.response_piece(view)])
            unsent = []
    await channel.send_buffers(unsent)


async def _pieces(held: Held, duplex: AsyncDuplex[HttpEvent]) -> AsyncGenerator[memoryview, None]:
    """Yield the body of an answer; each piece is valid until the next one is asked for."""
    while not isinstance(event := await held.next_piece(duplex), EndOfMessage):
        yield cast("WindowReceived", event).array.data
