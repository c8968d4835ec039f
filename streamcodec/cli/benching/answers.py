"""AnswerReader: finds the end of each answer on a connection, and reads no more of it than that takes.

A load generator must not be slower than the server. So the body is only counted, and a head is parsed only if it
differs from the one before. The heads of a server usually change once a second, with their date. The answers are not
checked here; one request is made by the ordinary client before the measurement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.http.bodies.chunks import Chunks

_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: |\r)")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r", re.IGNORECASE)
_CLOSES: Final = re.compile(rb"\r\nconnection:[^\r]*\bclose\b", re.IGNORECASE)
_STAYS: Final = re.compile(rb"\r\nconnection:[^\r]*\bkeep-alive\b", re.IGNORECASE)
_INTERIM: Final = range(100, 200)
_MAX_HEAD_BYTES: Final = 64 << 10


class InvalidAnswerError(Exception):
    """The bytes are not an answer of HTTP/1.1, or the answer was not expected."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What a head says about its answer."""

    status: int
    """Of the answer."""
    length: int | None
    """Bytes of the body; None if its chunks say it, or the end of the connection."""
    is_chunked: bool
    """Whether the body comes in chunks."""
    closes: bool
    """Whether the server closes the connection."""


_NO_HEAD: Final = AnswerHead(0, 0, is_chunked=False, closes=False)


class AnswerReader:
    """Reads the answers of one connection, one after the other.

    Attributes:
        head: of the last answer.
    """

    def __init__(self) -> None:
        """Begin before the first answer."""
        self.head: AnswerHead = _NO_HEAD
        self._known = b""
        self._usual_bytes = -1
        self._is_between = True
        self._start = b""
        self._missing = 0
        self._chunks: Chunks | None = None
        self._is_open = False

    def receive(self, data: memoryview) -> bool:
        """Take bytes; return whether the answer is complete.

        Raises:
            InvalidAnswerError: the bytes are no answer, or go on after its end.
        """
        if self._is_between:
            if len(data) == self._usual_bytes and bytes(data[: len(self._known)]) == self._known:
                return True  # the answer is as the one before it
            self._is_between = False
        if self._missing:
            is_complete = self._is_counted(len(data))
        elif self._chunks is not None:
            is_complete = self._is_last_chunk(self._chunks, data)
        else:
            is_complete = not self._is_open and self._is_whole(self._start + bytes(data))
        self._is_between = is_complete
        return is_complete

    def receive_eof(self) -> bool:
        """Report the end of the connection; return whether it was the end of the answer."""
        was_open, self._is_open = self._is_open, False
        self._is_between = was_open
        return was_open

    def _is_whole(self, data: bytes) -> bool:
        """Read a head, and what follows it."""
        start = 0
        while True:
            end = data.find(_END, start)
            if end < 0:
                if len(data) - start > _MAX_HEAD_BYTES:
                    raise InvalidAnswerError
                self._start = data[start:]
                return False
            head, start = data[start : end + len(_END)], end + len(_END)
            if head != self._known:
                self.head, self._known = _parsed(head), head
                is_usual = self.head.length is not None and self.head.status not in _INTERIM
                self._usual_bytes = len(head) + (self.head.length or 0) if is_usual else -1
            if self.head.status not in _INTERIM:
                return self._begin_body(memoryview(data)[start:])

    def _begin_body(self, data: memoryview) -> bool:
        self._start = b""
        if self.head.length is not None:
            self._missing = self.head.length
            return self._is_counted(len(data))
        if self.head.is_chunked:
            self._chunks = Chunks(DEFAULT_LIMITS)
            return self._is_last_chunk(self._chunks, data)
        self._is_open = True
        return False

    def _is_counted(self, nbytes: int) -> bool:
        self._missing -= nbytes
        if self._missing < 0:
            raise InvalidAnswerError
        return not self._missing

    def _is_last_chunk(self, chunks: Chunks, data: memoryview) -> bool:
        try:
            while data and not chunks.is_complete:
                nbytes = min(chunks.room, len(data))
                if nbytes:
                    chunks.data_received(nbytes)
                else:
                    nbytes = chunks.read(data)
                data = data[nbytes:]
        except MessageError:
            raise InvalidAnswerError from None
        if not chunks.is_complete:
            return False
        self._chunks = None
        if data:
            raise InvalidAnswerError
        return True


def _parsed(head: bytes) -> AnswerHead:
    first = _STATUS.match(head)
    if first is None:
        raise InvalidAnswerError
    status = int(first[2])
    closes = _CLOSES.search(head) is not None or (first[1] == b"0" and _STAYS.search(head) is None)
    if status in _INTERIM or status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        return AnswerHead(status, 0, is_chunked=False, closes=closes)
    if _CHUNKED.search(head) is not None:
        return AnswerHead(status, None, is_chunked=True, closes=closes)
    length = _LENGTH.search(head)
    if length is None:
        return AnswerHead(status, None, is_chunked=False, closes=True)
    return AnswerHead(status, int(length[1]), is_chunked=False, closes=closes)
