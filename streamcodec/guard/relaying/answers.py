"""PlainAnswers: reads the heads of plain answers, for relays. Sans-IO.

A plain answer has a plain head (`read_plain_response`) and a body of a known length, and another answer may follow it.
Every other answer goes the ordinary way, and so does what is refused.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.requests import HEAD_END, MAX_ENTRIES, MAX_HEAD_BYTES
from streamcodec.guard.rules.fields import HOPS, response_fields
from streamcodec.http.heads.plain import read_plain_response
from streamcodec.http.heads.statuses import has_content
from streamcodec.http.responses import response_head

_ODD_HOPS: Final = HOPS - {b"connection", b"keep-alive"}
"""Fields about the connection that may say something about the answer. With them, it goes the ordinary way."""


class PlainAnswer:
    """The head of a plain answer.

    Attributes:
        status: of the answer.
        text: the head, as it came.
        outgoing: the head, as it is sent to a client that may send another request.
        length: bytes of the body.
    """

    __slots__ = ("length", "outgoing", "status", "text")

    def __init__(self, status: int, text: bytes, outgoing: bytes, length: int) -> None:
        """Store the parts."""
        self.status: int = status
        self.text: bytes = text
        self.outgoing: bytes = outgoing
        self.length: int = length


class PlainAnswers:
    """Reads the heads of answers; one for all connections of a guard.

    Servers send the same head for a second, until its date changes. So heads are remembered by their exact bytes.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin with none; the limits bound heads."""
        self._limits = limits
        self._known: Cache[bytes, PlainAnswer] = Cache(MAX_ENTRIES, MAX_HEAD_BYTES)

    def find(self, data: bytes) -> PlainAnswer | None:
        """Read the head with which some bytes begin.

        Args:
            data: what has come of an answer.

        Returns:
            The answer; None if it is not plain, or its head has not come.
        """
        end = data.find(HEAD_END, 0, MAX_HEAD_BYTES) + len(HEAD_END)
        if end < len(HEAD_END):
            return None
        text = data[:end]
        known = self._known.get(text)
        if known is None and (known := _read(text, self._limits)) is not None:
            self._known.put(text, known)
        return known


def _read(text: bytes, limits: Limits) -> PlainAnswer | None:
    """Read a head."""
    head = read_plain_response(text, limits, is_for_head=False)
    if head is None or head.content_length is None or not has_content(head.status) or head.fields.closes:
        return None
    if not _ODD_HOPS.isdisjoint([name for name, _ in head.fields.items]):
        return None
    outgoing = response_head(head.status, response_fields(head, is_last=False))
    return PlainAnswer(head.status, text, outgoing, head.content_length)
