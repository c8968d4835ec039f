"""Timeouts: how long a call waits without progress, phase by phase, and how long it may take in all."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.timelimit import TimeLimit

SECONDS: Final = 60.0
"""Without progress, if nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Seconds without progress before a call gives up, for each of its phases. None is for ever.

    Example::

        Client(url, timeout=Timeout(connect=2, pool=5, read=600))
    """

    connect: float | None = SECONDS
    """Of looking up the server's name, of connecting to each of its addresses, of each step of the TLS handshake."""
    read: float | None = SECONDS
    """In which nothing of the answer comes, once the request has been sent. A model that thinks for long needs more."""
    write: float | None = SECONDS
    """In which nothing moves in either direction, as long as some of the request is to be sent."""
    pool: float | None = SECONDS
    """Of waiting until one of the client's connections is free, in all."""

    def __post_init__(self) -> None:
        """Refuse times that are none.

        Raises:
            LocalProtocolError: one of them is not greater than 0.
        """
        for seconds in astuple(self):
            if seconds is not None and not seconds > 0:
                raise LocalProtocolError(f"a timeout is a number of seconds greater than 0, or None, not {seconds!r}")

    @classmethod
    def of(cls, timeout: float | Timeout | None) -> Timeout:
        """Take one number for all phases, or a `Timeout`.

        Raises:
            LocalProtocolError: the number is not greater than 0.
        """
        if isinstance(timeout, Timeout):
            return timeout
        return cls(connect=timeout, read=timeout, write=timeout, pool=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of one call, which runs."""

    timeout: Timeout
    """Without progress."""
    limit: TimeLimit
    """In all."""
