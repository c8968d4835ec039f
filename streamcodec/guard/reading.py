"""Reading: a client's request as the guard asks for it, and how far it has come, under the limits of time.

It says whether the client is the reason that a request has ended. It knows nothing of the server behind. It is no part
of the link, because the limits refer to it, and the link to the limits. A link that referred to itself would keep its
last request until the garbage collector comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import numpy as np

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NeedData, NeedTurn, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime.timeouts import ReadTimeout
from streamcodec.server.connection.source import RequestSource


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
    """Reads the bodies of one connection.

    Attributes:
        failure: the client's, if it has ended the current request: its body breaks a rule, or it has left.
    """

    def __init__(self, requests: ClientRequests, read_timeout: ReadTimeout) -> None:
        """Read the bodies of these requests; the timeout says how long it waits."""
        self._requests = requests
        self._read_timeout = read_timeout
        self.failure: OSError | MessageError | None = None

    async def pull(self, channel: PieceChannel, *, is_piece: bool = False) -> HttpEvent:
        """Wait for the next event of the body, which is a piece of it or its end, or anything.

        Raises:
            RemoteProtocolError: the body breaks a rule, or comes too slowly.
            OSError: the client has left.
        """
        self._read_timeout.resume()
        wait = channel.next_piece if is_piece else channel.next_event
        try:
            return await wait(self._requests.connection, self._read_timeout.look)
        except TimeoutError:
            raise self._requests.too_slow() from None
        finally:
            self._read_timeout.pause(anyio.current_time())

    async def pieces(self, channel: PieceChannel) -> AsyncGenerator[np.ndarray[Any, Any], None]:
        """Yield the bytes of the tensors; the generator ends when the whole body was accepted."""
        try:
            while isinstance(event := await self.pull(channel, is_piece=True), WindowReceived):
                yield event.array
        except (OSError, MessageError) as error:
            self.failure = error
            raise

    async def end(self, channel: PieceChannel) -> None:
        """Wait for the end of a body without tensors: only then it was accepted as a whole."""
        try:
            await self.pull(channel)
        except (OSError, MessageError) as error:
            self.failure = error
            raise
