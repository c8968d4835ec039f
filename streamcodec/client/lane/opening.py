"""Opening: offers the memory of a lane to the server of a new connection."""

from __future__ import annotations

import os
import socket
from typing import cast

from streamcodec.client.connections.connection import Connection
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.lane.tensors import Lane, MemoryLane
from streamcodec.transports.sockets.memfd import send_descriptors


def send_opening(connection: Connection, exchange: ClientExchange, memory: MemoryLane) -> Lane:
    """Send the request that opens a lane, with the descriptors of its memory; return the lane.

    Raises:
        OSError: the connection is broken, or there is no memory.
    """
    descriptors, own, lane = memory.new_answers()
    try:
        opening = b"".join(cast("list[bytes]", connection.start(exchange)))
        if send_descriptors(cast("socket.socket", connection.socket), opening, descriptors) < len(opening):
            raise ConnectionAbortedError("the server does not read")
    finally:
        os.close(own)
    return lane
