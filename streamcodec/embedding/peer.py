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
        waited: from when to when `whole` has waited; None if it did not, or was not called.
        has_piece: whether a piece has come that `receive` returns without waiting.
    """

    is_decoded: bool
    can_close: bool
    waited: tuple[float, float] | None
    has_piece: bool

    async def whole(self, length: int, seconds: float) -> bytes | None:
        """Return the body, if the first piece is all of it; `receive` returns what has come once more.

        Args:
            length: of the body, as its head says.
            seconds: how long to wait for the first piece. If it has not come by then, `receive` raises `TimeoutError`.

        Returns:
            The body; None if it has to be received in pieces.
        """
        ...

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
