"""Progress: how far the requests of one connection have come, for the limits of time. Sans-IO.

It is no part of the link, because the limits refer to it, and the link to the limits. A link that referred to itself
would keep its last request until the garbage collector comes.
"""

from __future__ import annotations

from typing import Final

from streamcodec.guard.crossing import Crossing
from streamcodec.guard.passing import Passed
from streamcodec.http.connection import State
from streamcodec.http.server import ServerConnection
from streamcodec.server.patience import Phase


class Progress:
    """What `Patience` looks at.

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
