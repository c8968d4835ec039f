"""Reading: a client's request as the guard asks for it, and how far it has come, under the limits of time.

It says whether the client is the reason that a request has ended. It knows nothing of the server behind. It is no part
of the link, because the limits refer to it, and the link to the limits. A link that referred to itself would keep its
last request until the garbage collector comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NeedData, NeedTurn, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.server.connection.source import RequestSource
from streamcodec.server.connection.waits import ClientWaits


class ClientRequests(RequestSource):
    """The requests of one client.

    Attributes:
        crossing: the current request, from its head to its end.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin before the first request of a connection."""
        super().__init__(limits)
        self.crossing: Crossing | Passed | None = None

    @property
    def has_header(self) -> bool:
        """Whether tensors are awaited, or anything else that has no time limit of its own."""
        return self.crossing is None or self.crossing.has_header

    def next_event(self) -> HttpEvent | NeedData | NeedTurn:
        """Return the next event of the connection.

        Raises:
            RemoteProtocolError: the request is refused.
        """
        return self.connection.next_event()


class BodyReader:
    """Reads the bodies of one connection, and knows whose fault it is if one does not come.

    Attributes:
        failure: the client's, if it has ended the current request: its body breaks a rule, or it has left.
    """

    def __init__(self, waits: ClientWaits) -> None:
        """Read the bodies of requests that are waited for in this way."""
        self._waits = waits
        self.failure: OSError | MessageError | None = None

    async def pieces(self, channel: PieceChannel) -> AsyncGenerator[np.ndarray[Any, Any], None]:
        """Yield the bytes of the tensors; the generator ends when the whole body was accepted."""
        with self._noted():
            while isinstance(event := await self._waits.body_event(channel.next_piece), WindowReceived):
                yield event.array

    async def end(self, channel: PieceChannel) -> None:
        """Wait for the end of a body without tensors: only then it was accepted as a whole."""
        with self._noted():
            await self._waits.body_event(channel.next_event)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except (OSError, MessageError) as error:
            self.failure = error
            raise
