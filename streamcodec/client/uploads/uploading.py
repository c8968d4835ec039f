"""Uploading: one inference request that goes on where its connection broke. Sans-IO; shared by both clients.

It makes one exchange after the other (draft-ietf-httpbis-resumable-upload, interop version 8)::

    POST .../infer   begins the upload, without a byte of the message: the answer names the upload, so no break of the
      |              link can lose the name
    PATCH upload     brings everything from the offset on; its answer is that of the model
      |
      +-- broken --> HEAD upload   asks for the offset, then PATCH again; or POST, if the server has no such upload

Each break without progress makes the next attempt wait longer; after some in a row, the request fails. A refusal that
no attempt could change is raised at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange, Placing
from streamcodec.client.fields import Field
from streamcodec.client.uploads.rest import UploadRest
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.encoder import EncodedMessage

_MAX_ATTEMPTS: Final = 8
"""Failures in a row without progress: with the pauses between them, half a minute if each fails at once."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0

_MAX_DIGITS: Final = 15
_NOT_FOUND: Final = 404
_CREATED: Final = 201
_WRONG_OFFSET: Final = 409
_TOO_SLOW: Final = 408
_FAILURE: Final = range(500, 600)

_BROKEN: Final = frozenset({ErrorCode.CONNECTION_CLOSED, ErrorCode.TRUNCATED})
"""Errors of an answer that has ended too early."""

_INTEROP: Final = ("Upload-Draft-Interop-Version", "8")


class Record:
    """A file with the name of an upload, for the time after a restart."""

    def __init__(self, path: str) -> None:
        """Use a file, which need not exist."""
        self._path = Path(path)

    def read(self, key: str) -> str | None:
        """Return the location that was kept for a request; None if there is none for this one."""
        try:
            kept = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        location = kept.get("location") if isinstance(kept, dict) and kept.get("request") == key else None
        return location if isinstance(location, str) else None

    def write(self, key: str, location: str) -> None:
        """Keep a location. Who can read the file can go on with the upload, so only its owner can.

        Raises:
            OSError: the file cannot be written.
        """
        new = self._path.with_name(f"{self._path.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"request": key, "location": location}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


class Uploading:
    """One request."""

    def __init__(
        self,
        *,
        origin: str,
        target: str,
        fields: Sequence[Field],
        message_fields: Sequence[Field],
        message: EncodedMessage,
        limits: Limits,
        placing: Placing,
        record: Record | None,
    ) -> None:
        """Prepare to begin, or to go on where the record says.

        Args:
            origin: of the server, as `https://example.org`.
            target: of the request.
            fields: of every request of this call.
            message_fields: of the message, without its length.
            message: what is sent.
            limits: bound the answers.
            placing: chooses the memory for the outputs.
            record: keeps the name of the upload; None to keep it in memory only.

        Raises:
            LocalProtocolError: some parts of the message can be made only once.
        """
        if not ClientExchange("POST", target, fields, message, limits).is_repeatable:
            raise LocalProtocolError(
                "windows of a resumable request are made again after a break; give Rows an iterable, not an iterator"
            )
        self._origin = origin
        self._target = target
        self._fields = fields
        self._message_fields = message_fields
        self._message = message
        self._limits = limits
        self._placing = placing
        self._record = record
        self._key = sha256(
            b"\0".join([origin.encode(), target.encode(), b"%d" % message.body_length, *_header_of(message)])
        ).hexdigest()
        self._location = None if record is None else record.read(self._key)
        self._offset: int | None = None
        self._reached = 0
        self._failures = 0

    def next_exchange(self) -> ClientExchange:
        """Return the exchange to be done next."""
        if self._location is None:
            fields = [
                *self._fields,
                *self._message_fields,
                _INTEROP,
                ("Upload-Complete", "?0"),
                ("Upload-Length", str(self._message.body_length)),
                ("Content-Length", "0"),
            ]
            return ClientExchange("POST", self._target, fields, None, self._limits)
        if self._offset is None:
            return ClientExchange("HEAD", self._location, [*self._fields, _INTEROP], None, self._limits)
        rest = UploadRest(self._message, self._offset)
        fields = [*self._fields, _INTEROP]
        return ClientExchange(
            "PATCH", self._location, fields, self._message, self._limits, placing=self._placing, rest=rest
        )

    def succeeded(self, exchange: ClientExchange) -> bool:
        """Take an exchange that has succeeded; return whether it has the answer of the model.

        Raises:
            RemoteProtocolError: the answer is not one of a server that offers such uploads.
        """
        if self._offset is not None:
            self._forget()
            return True
        if self._location is None:
            self._location = self._location_of(exchange)
            self._offset = 0
            if self._record is not None:
                self._record.write(self._key, self._location)
        else:
            self._offset = self._offset_of(exchange)
            if self._offset > self._reached:
                self._reached, self._failures = self._offset, 0
        return False

    def failed(self, exchange: ClientExchange, error: OSError | MessageError, *, is_over: bool) -> float:
        """Take an exchange that has failed; return the seconds before the next one.

        Args:
            exchange: as of `next_exchange`.
            error: which it has raised.
            is_over: whether the time of the whole call is over.

        Raises:
            OSError: there were too many failures, or the time is over; the text says how far the upload has come.
            MessageError: no further attempt would change this.
        """
        status = exchange.status if isinstance(error, ServerError) else None
        is_final = status is not None and exchange.field(b"upload-complete") == "?1"  # the model has refused it
        if is_final or not self._is_passing(error, status):
            if self._location is None:
                error.add_note("resumable needs a server that offers uploads that can be resumed")
            self._forget()
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        self._failures += 1
        if is_over or self._failures > _MAX_ATTEMPTS:
            raise self._given_up(error) from error
        if status == _NOT_FOUND:
            self._forget()
        self._offset = None
        return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._failures - 1)))

    def _is_passing(self, error: OSError | MessageError, status: int | None) -> bool:
        """Whether another attempt may succeed."""
        if status is not None:
            has_begun = self._location is not None
            return status in _FAILURE or (has_begun and status in {_NOT_FOUND, _WRONG_OFFSET, _TOO_SLOW})
        return isinstance(error, OSError) or error.code in _BROKEN

    def _given_up(self, error: OSError | MessageError) -> OSError:
        reached = f"the server has {self._reached} of {self._message.body_length} bytes of the upload"
        kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
        return kind(f"{error}; gave up after {self._failures} failures without progress, {reached}")

    def _location_of(self, exchange: ClientExchange) -> str:
        location = (exchange.field(b"location") or "").removeprefix(self._origin)
        if exchange.status != _CREATED or not location.startswith("/") or location.startswith("//"):
            msg = "the server has not begun an upload; does it offer uploads that can be resumed?"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        return location

    def _offset_of(self, exchange: ClientExchange) -> int:
        text = exchange.field(b"upload-offset") or ""
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            msg = "the server does not say where the upload goes on (Upload-Offset)"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        if not self._reached <= int(text) <= self._message.body_length:
            msg = f"the server goes on at byte {text}; it had {self._reached} of {self._message.body_length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        return int(text)

    def _forget(self) -> None:
        self._location = self._offset = None
        self._reached = 0
        if self._record is not None:
            with suppress(OSError):  # the next call finds out that the upload is gone
                self._record.forget()


def _header_of(message: EncodedMessage) -> list[bytes]:
    """Return the parts that tell one request from another: the JSON header, not the tensors."""
    first = message.parts[0] if message.parts else b""
    return [first] if isinstance(first, bytes) else []
