"""Timeouts: how long a call waits without progress in each phase, and how long it may take in all."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from numbers import Real
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.record import record
from streamcodec.transports.timelimit import TimeLimit

SECONDS: Final = 60.0
"""Default seconds without progress."""


def check_seconds(name: str, seconds: object) -> None:
    """Refuse what is no limit in seconds; None is one, and infinity.

    Raises:
        LocalProtocolError: it is no number, or not greater than 0.
    """
    if seconds is None:
        return
    if isinstance(seconds, bool) or not (isinstance(seconds, Real) and float(seconds) > 0):
        raise LocalProtocolError(f"{name} must be a number of seconds greater than 0, or None, not {seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Seconds without progress before a call gives up, for each of its phases. None for no limit.

    Example::

        Client(url, timeout=Timeout(connect=2, pool=5, read=600))
    """

    connect: float | None = SECONDS
    """For the look-up of the server's name, for connecting to each of its addresses, and for each step of the TLS
    handshake."""
    read: float | None = SECONDS
    """Without bytes of the answer, once the request has been sent. A slow model needs more."""
    write: float | None = SECONDS
    """Without progress in either direction, while there is something of the request to send."""
    pool: float | None = SECONDS
    """Waiting until one of the client's connections is free, in all."""

    def __post_init__(self) -> None:
        """Refuse invalid times.

        Raises:
            LocalProtocolError: one of them is not greater than 0.
        """
        for seconds in astuple(self):
            check_seconds("a timeout", seconds)

    @classmethod
    def of(cls, timeout: float | Timeout | None) -> Timeout:
        """Return a `Timeout`; one number stands for all phases.

        Raises:
            LocalProtocolError: the number is not greater than 0.
        """
        if isinstance(timeout, Timeout):
            return timeout
        return cls(connect=timeout, read=timeout, write=timeout, pool=timeout)


@record()
class Times:
    """The time limits of one running call."""

    timeout: Timeout
    """Without progress."""
    limit: TimeLimit
    """In all."""
