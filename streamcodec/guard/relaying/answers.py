"""PlainAnswers: reads the heads of plain answers, for relays. Sans-IO.

A plain answer has a body of a known length, and another answer may follow it. Its head has a form in which nothing can
be read in two ways: each field on one line, with one space after the colon. One expression reads it. Every other answer
goes the ordinary way, through h11, and so does what is refused.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.requests import HEAD_END, MAX_ENTRIES, MAX_HEAD_BYTES
from streamcodec.guard.rules.fields import HOPS
from streamcodec.http.heads.statuses import phrase_of

_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9]{2}) [ -~]*((?:\r\n[a-z][a-z0-9-]*: [!-~]+(?: [!-~]+)*)+)\r\n\r\n", re.ASCII | re.IGNORECASE
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}", re.ASCII)
_WITHOUT_CONTENT: Final = {HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT, HTTPStatus.NOT_MODIFIED}
_PLAIN_HOPS: Final = {b"connection", b"keep-alive"}
"""Fields about the connection that say nothing about the answer. With the others, it goes the ordinary way."""


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
    found = _HEAD.fullmatch(text)
    if found is None or len(text) > min(limits.max_head_bytes, limits.max_field_bytes):
        return None
    lines = found[2].split(b"\r\n")[1:]
    if len(lines) > limits.max_head_fields:
        return None
    status, length = int(found[1]), None
    sent = [b"HTTP/1.1 %d %b" % (status, phrase_of(status).encode())]
    for line in lines:
        name, _, value = line.partition(b": ")
        name = name.lower()
        if name == b"content-length":
            if length is not None or not _LENGTH.fullmatch(value):
                return None
            length = int(value)
        elif name in HOPS:
            if (name == b"connection" and value.lower() != b"keep-alive") or name not in _PLAIN_HOPS:
                return None
            continue
        sent.append(b"%b: %b" % (name, value))
    if length is None or status in _WITHOUT_CONTENT:
        return None
    return PlainAnswer(status, text, b"\r\n".join((*sent, b"", b"")), length)
