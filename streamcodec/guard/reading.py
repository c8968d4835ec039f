"""Reading: a client's request as the guard asks for it, and how far it has come, under the limits of time.

It says whether the client is the reason that a request has ended. It knows nothing of the server behind. It is no part
of the link, because the limits refer to it, and the link to the limits. A link that referred to itself would keep its
last request until the garbage collector comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
import numpy as np

from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.events import WindowReceived
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.http.connection import State
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.http.server import ServerConnection
from streamcodec.runtime.timeouts import Phase, ReadTimeout


class Progress:
    """What `ReadTimeout` looks at.

    Attributes:
        crossing: the current request, from its head to its end.
        request_count: requests whose head has come.
        has_lost: never: there is no memory that others could wait for.
    """

    has_lost: Final = False

    def __init__(self, connection: ServerConnection) -> None:
        """Begin before the first request of a connection."""
        self._connection = connection
        self.crossing: Crossing | Passed | None = None
        self.request_count: int = 0

    @property
    def phase(self) -> Phase:
        """How much of the current request has come."""
        incoming = self._connection.incoming
        if incoming.state is State.HEAD:
            return Phase.HEAD if incoming.has_input else Phase.IDLE
        return Phase.BODY if self.crossing is None or self.crossing.has_header else Phase.HEADER

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self._connection.incoming.received

    @property
    def has_work(self) -> bool:
        """Whether what has come waits to be worked on."""
        return self._connection.incoming.has_work


class Reading:
    """Reads the bodies of one connection.

    Attributes:
        failure: the client's, if it has ended the current request: its body breaks a rule, or it has left.
    """

    def __init__(self, connection: ServerConnection, patience: ReadTimeout) -> None:
        """Read from a connection; patience says how long it waits."""
        self._connection = connection
        self._patience = patience
        self.failure: OSError | MessageError | None = None

    async def pull(self, channel: PieceChannel, *, is_piece: bool = False) -> HttpEvent:
        """Wait for the next event of the body, which is a piece of it or its end, or anything.

        Raises:
            RemoteProtocolError: the body breaks a rule, or comes too slowly.
            OSError: the client has left.
        """
        self._patience.resume()
        wait = channel.next_piece if is_piece else channel.next_event
        try:
            return await wait(self._connection, self._patience.look)
        except TimeoutError:
            raise self.too_slow() from None
        finally:
            self._patience.pause(anyio.current_time())

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

    def too_slow(self) -> RemoteProtocolError:
        """Give the connection up, and return the error for a request that comes too slowly."""
        msg = "the request comes too slowly"
        error = RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)
        self._connection.give_up(error)
        return error
