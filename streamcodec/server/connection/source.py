"""RequestSource: the requests of one connection, as those see them who wait for them and share out turns. Sans-IO.

A server and a guard do different things with a request. How far it has come, whether the client is waited for, whether
it is a health check, and how a client is refused that is too slow, is the same for both, and is said here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.http.connection import State
from streamcodec.http.methods import Receives
from streamcodec.http.server import ServerConnection
from streamcodec.runtime.timeouts import Phase, too_slow
from streamcodec.service.routes import URGENT_BYTES, begins_health_check

_HEAD: Final = State.HEAD
_IDLE: Final = Phase.IDLE
"""To look up a member of an enum takes as long as three calls, and every request needs these."""


class RequestSource(Receives, ABC):
    """What is known of the requests of a connection. With `next_event`, this is an event source.

    Attributes:
        connection: reads requests and writes answers.
        request_count: requests whose head has come.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin before the first request; the limits are those of `ServerConnection`."""
        self.connection: ServerConnection = ServerConnection(limits, paced=True)
        self.request_count: int = 0
        super().__init__(self.connection.incoming)

    @property
    @abstractmethod
    def has_header(self) -> bool:
        """Whether the JSON header of the current request has come, or there is none."""

    @property
    def has_lost(self) -> bool:
        """Whether the request has been too slow while others wait for its memory."""
        return False

    @property
    def phase(self) -> Phase:
        """How much of the current request has been received."""
        incoming = self.incoming
        if incoming.state is _HEAD:
            return Phase.HEAD if incoming.has_input else _IDLE
        return Phase.BODY if self.has_header else Phase.HEADER

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self.incoming.received

    @property
    def has_work(self) -> bool:
        """Whether received bytes wait to be worked on, so that nobody waits for the client."""
        return self.incoming.has_work

    @property
    def is_urgent(self) -> bool:
        """Whether a health check comes or is answered, before others have their turn."""
        incoming = self.incoming
        if incoming.state is _HEAD:
            return begins_health_check(incoming.begun(URGENT_BYTES))
        return self.connection.is_urgent

    @property
    def is_light(self) -> bool:
        """Whether the next event takes no time, so that the end of a connection does not wait behind others' work."""
        return self.incoming.is_light

    def too_slow(self) -> RemoteProtocolError:
        """Return the error for a request that arrives too slowly; the connection can bring no other request."""
        error = too_slow(self.phase)
        self.connection.give_up(error)
        return error
