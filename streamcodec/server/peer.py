"""Peer: the interface between the frontend and a framework: one request, and the client that waits for its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamcodec.engine.decoder import Buffer


class Peer(Protocol):
    """One request of a framework.

    Attributes:
        is_decoded: whether the framework decompresses bodies.
        can_close: whether `Connection: close` means something to the client: not in HTTP/2.
    """

    is_decoded: bool
    can_close: bool

    async def receive(self) -> Buffer | None:
        """Return the next piece of the body, an empty one if nothing has come; None at its end.

        Raises:
            ConnectionError: the client has left.
        """
        ...

    async def gone(self) -> None:
        """Wait until the client has left. Called after the end of the body, and cancelled when the answer exists."""
        ...

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin the answer."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer; it belongs to the framework then. Wait until the client can take more."""
        ...
