"""Receiving: receives a request for a user's own endpoint, from any framework that has a `Peer`."""

from __future__ import annotations

import anyio

from streamcodec.engine.decoder import Buffer
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.server.peer import Peer
from streamcodec.service.reception import ReceivedRequest, Reception
from streamcodec.transports import turns


async def receive_from(peer: Peer, reception: Reception, timeout: float | None) -> ReceivedRequest:
    """Receive a request.

    Args:
        peer: brings the body.
        reception: takes it; paced.
        timeout: seconds without a byte; None waits for ever.

    Raises:
        RemoteProtocolError: the request is refused; `too-slow`, or `connection-closed` if the client has left.
        OutOfMemoryError: as above, for want of memory.
    """
    body = reception.body
    while True:
        event = body.next_event()
        if event is NEED_TURN:
            await turns.work(body)
        elif event is NEED_DATA:
            piece = await _piece(peer, timeout)
            if piece is None:
                body.receive_eof()
            else:
                body.feed(piece)
        elif (request := reception.receive(event)) is not None:
            return request


async def _piece(peer: Peer, timeout: float | None) -> Buffer | None:
    try:
        with anyio.fail_after(timeout):
            return await peer.receive()
    except TimeoutError:
        msg = f"no byte of the request has arrived for {timeout:g} seconds"
        raise RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408) from None
    except ConnectionError as error:
        raise RemoteProtocolError(str(error), code=ErrorCode.CONNECTION_CLOSED) from None
