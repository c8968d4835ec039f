"""Retries: whether a call that has failed is made again, and when. Sans-IO; shared by both clients.

A call is made again only if the server has not run it, or if it does no harm to run it twice:

======================================================  =========================  ==============
failure                                                 `GET`, or `idempotent`     other requests
======================================================  =========================  ==============
no connection                                           again                      again
status 429 or 503 with `Retry-After`                    again                      again
the connection ended or stalled without a byte of an    again                      not
answer
anything after the first byte of an answer              not                        not
======================================================  =========================  ==============

This comes on top of what every call does: if a connection that was kept from an earlier call has died before the
request came to the server, it is sent once on a new one. So is a request that may run twice. A request whose windows
can be made only once is not made again after it has begun.

Nothing is copied: each attempt sends the same buffers. The pauses between attempts double, and each is shortened by
chance, so that clients that have failed together do not come back together.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from random import uniform
from typing import Final

from streamcodec.client.connections.timeouts import Times
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange
from streamcodec.engine.arguments import whole
from streamcodec.engine.errors import LocalProtocolError, RemoteProtocolError

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
_MOST_DOUBLINGS: Final = 10
_MAX_DIGITS: Final = 9

NOT_RUN: Final = frozenset({429, 503})
"""Statuses by which a server that adds `Retry-After` says that it has not run the request (RFC 9110, RFC 6585)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How one call is made again."""

    most: int = 0
    """Attempts after the first one."""
    is_idempotent: bool = False
    """Whether the server may run it twice."""
    hedge: float | None = None
    """Seconds without an answer after which a second attempt is made beside the first; None for none."""

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            LocalProtocolError: `most` is no number of attempts, `hedge` is no time, or the call is not idempotent.
        """
        most = whole(self.most)
        if most is None or most < 0:
            raise LocalProtocolError(f"retries must be an integer of at least 0, not {self.most!r}")
        if self.hedge is None:
            return
        if type(self.hedge) not in {int, float} or not self.hedge > 0:
            raise LocalProtocolError(f"hedge must be a number of seconds greater than 0, not {self.hedge!r}")
        if not self.is_idempotent:
            raise LocalProtocolError("with hedge, the server may run a request twice: say idempotent=True")

    def pause(self, exchange: ClientExchange, error: Exception, failures: int, times: Times) -> float | None:
        """Return the seconds before the next attempt; None if the call has failed.

        Args:
            exchange: has failed.
            error: which it has raised; the text says how many attempts were made.
            failures: how many attempts have failed, this one included.
            times: of the call.
        """
        seconds = self._pause(exchange, error, failures) if failures <= self.most else None
        longest = times.timeout.read  # without progress
        if seconds is not None and times.limit.allows(seconds) and (longest is None or seconds <= longest):
            return seconds
        if failures > 1:
            error.add_note(f"{failures} attempts were made")
        return None

    def _pause(self, exchange: ClientExchange, error: Exception, failures: int) -> float | None:
        wanted = retry_after(error)
        if not (wanted is not None or self._is_harmless(exchange, error)):
            return None
        if exchange.has_begun and not exchange.is_repeatable:
            return None
        pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, _MOST_DOUBLINGS))
        return (wanted or 0) + uniform(pause / 2, pause)  # noqa: S311 - nobody has to be unable to guess it

    def _is_harmless(self, exchange: ClientExchange, error: Exception) -> bool:
        """Whether the server has received nothing; or whether it has not answered, and may run the request twice."""
        if isinstance(error, ssl.SSLError | ServerError):  # it would be the same again
            return False
        if not exchange.has_begun:
            return isinstance(error, OSError)
        return exchange.may_run_twice and exchange.is_silent and isinstance(error, OSError | RemoteProtocolError)


def retry_after(error: Exception) -> int | None:
    """Return the seconds that a server wants to be left alone which has not run a request; None if it has not said so.

    A date is not taken for an answer: clocks differ.
    """
    if not isinstance(error, ServerError) or error.status not in NOT_RUN:
        return None
    text = error.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


ONCE: Final = Retries()
"""For calls that are not made again."""
