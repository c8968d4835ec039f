"""Uploading: one inference request that goes on where its connection broke. Sans-IO; shared by both clients.

It makes one exchange after the other (draft-ietf-httpbis-resumable-upload, interop version 8)::

    POST .../infer   begins the upload, without a byte of the message: the answer names the upload, so no break of the
      |              link can lose the name
    PATCH upload     brings everything from the offset on; its answer is that of the model
      |
      +-- broken --> HEAD upload   asks for the offset, then PATCH again; or POST, if the server has no such upload

Each break without progress makes the next attempt wait longer; after an *outage* of a given length, the request fails.
What counts are pauses, questions, and the time for which nothing had moved when a message was broken off. The time in
which a message moves does not count, nor does the wait for the model's answer, which has its own timeout. The offset
may go back: a server whose machine has stopped has only what was on its disk. Then the bytes from there on are sent
again. Progress is more than the server has ever had, so that one which loses again and again ends, too. A refusal that
waiting does not change is raised at once. A server that has no room for uploads gets the request as any other, in one
message.

A `Record` keeps the name of the upload for the time after a restart. The same request is then one with the same bytes:
the record has a digest of all of them, because the server has the first part of these and gets the rest of those. It is
removed when the upload is over: the model has answered, or the server has no such upload. After any other refusal, as
of a token that has expired, the next call can go on. The clock is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from streamcodec.client.connections.address import UNSENDABLE
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange, Placing
from streamcodec.client.fields import Field
from streamcodec.client.repeating.retries import NOT_RUN, retry_after
from streamcodec.client.uploads.record import Record, is_path
from streamcodec.client.uploads.rest import UploadRest
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.encoder import EncodedMessage

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_MOST_DOUBLINGS: Final = 10

_SHORTEST_ATTEMPT: Final = 1.0
"""Seconds that the last attempts have, if the outage is not shorter: some round trips."""

_MAX_DIGITS: Final = 15
_NOT_FOUND: Final = 404
_GONE: Final = {_NOT_FOUND, 410}
"""A server's words for an upload that it does not have, or has no more."""

_NOT_ABOUT_UPLOADS: Final = {401, 403, _NOT_FOUND}
"""Refusals of a request for an upload that a server without uploads would give to any other, too."""
_CREATED: Final = 201
_WRONG_OFFSET: Final = 409
_TOO_SLOW: Final = 408
_TOO_EARLY: Final = 425
_FAILURE: Final = range(500, 600)
_UNAVAILABLE: Final = 503

_BROKEN: Final = frozenset({ErrorCode.CONNECTION_CLOSED, ErrorCode.TRUNCATED})
"""Errors of an answer that has ended too early."""

_INTEROP: Final = ("Upload-Draft-Interop-Version", "8")

_TLS_HINT: Final = "; the server may expect TLS"

OnResume = Callable[[int, int], object]
"""Called with the bytes that the server has, and those of the whole request, whenever the request goes on."""

_NEEDED: Final = (
    "resumable needs a server that offers uploads that can be resumed, as `serve --resumable-uploads 4` does"
)


class Uploading:
    """One request."""

    def __init__(
        self,
        *,
        origin: str,
        target: str,
        make_fields: Callable[[], Sequence[Field]],
        message: EncodedMessage,
        media_type: str | None,
        limits: Limits,
        placing: Placing | None,
        record: Record | None,
        outage: float,
        on_resume: OnResume | None,
    ) -> None:
        """Prepare to begin; call `begin` next.

        Args:
            origin: of the server, as `https://example.org`.
            target: of the request.
            make_fields: returns the fields of a request; called for each, because a token may expire meanwhile.
            message: what is sent.
            media_type: of the message, if it gives the header's length; None for the usual one.
            limits: bound the answers.
            placing: chooses the memory for the outputs; None for new arrays.
            record: keeps the name of the upload; None to keep it in memory only.
            outage: seconds without progress before the request fails.
            on_resume: is told how many bytes the server has.

        Raises:
            LocalProtocolError: some parts of the message can be made only once, or `outage` is no time.
        """
        if type(outage) not in {int, float} or not outage > 0:
            msg = f"outage must be a number of seconds above 0, not {outage!r}"
            raise LocalProtocolError(msg)
        if not ClientExchange("POST", target, (), message, limits).is_repeatable:
            raise LocalProtocolError(
                "windows of a resumable request are made again after a break; give Rows an iterable, not an iterator"
            )
        self._origin = origin
        self._target = target
        self._make_fields = make_fields
        self._message = message
        self._media_type = media_type
        self._limits = limits
        self._placing = placing
        self._record = record
        self._outage = outage
        self._on_resume = on_resume
        self._key = ""
        self._location: str | None = None
        self._offset: int | None = None
        self._said: int | None = None
        self._most = 0
        self._failures = 0
        self._idle = 0.0
        self._idle_since: float | None = None
        self._begun_at = 0.0
        self._write_timeout: float | None = None
        self._is_plain = False

    @property
    def is_recorded(self) -> bool:
        """Whether `begin` reads all bytes of the request, which takes a second for some hundred MB."""
        return self._record is not None

    def begin(self) -> None:
        """Go on where the record says, if there is one for this request.

        Raises:
            LocalProtocolError: its file has another purpose.
        """
        if self._record is None:
            return
        digest = blake2b(b"\0".join([self._origin.encode(), self._target.encode(), b""]), digest_size=32)
        for buffer in self._message.buffers_from(0):
            digest.update(buffer)
        self._key = digest.hexdigest()
        self._location = self._record.read(self._key)

    def next_exchange(self, now: float) -> ClientExchange:
        """Return the exchange to be done next.

        Args:
            now: seconds, on any clock.

        Raises:
            LocalProtocolError: a field cannot be sent, or a token is invalid.
            Exception: any exception of the function that returns the token.
        """
        own = self._make_fields()
        self._idle, self._begun_at = self._idle_seconds(now), now
        self._idle_since = None if self._sends_message else now
        if self._is_plain:
            return ClientExchange(
                "POST",
                self._target,
                own,
                self._message,
                self._limits,
                placing=self._placing,
                media_type=self._media_type,
            )
        if self._location is None:
            message = self._message
            usual = message.headers if self._media_type is None else message.headers_with(self._media_type)
            fields = [
                *own,
                *(field for field in usual if field[0] != "Content-Length"),
                _INTEROP,
                ("Upload-Complete", "?0"),
                ("Upload-Length", str(message.body_length)),
                ("Content-Length", "0"),
            ]
            return ClientExchange("POST", self._target, fields, None, self._limits)
        if self._offset is None:
            return ClientExchange("HEAD", self._location, [*own, _INTEROP], None, self._limits)
        rest = UploadRest(self._message, self._offset)
        fields = [*own, _INTEROP]
        return ClientExchange(
            "PATCH", self._location, fields, self._message, self._limits, placing=self._placing, rest=rest
        )

    def timeout(self, usual: Timeout) -> Timeout:
        """Return the timeout for the exchange of `next_exchange`, so that it ends with the outage.

        Nobody takes bytes on a connection that has died in silence. So sending has half of the time that is left, and a
        new connection the other half. The wait for the model's answer is as long as usual.

        Args:
            usual: that of the call.
        """
        left = self._outage - self._idle
        longest = max(min(_SHORTEST_ATTEMPT, self._outage / 2), left / 2 if self._sends_message else left)
        self._write_timeout = _at_most(usual.write, longest)
        return replace(
            usual,
            connect=_at_most(usual.connect, longest),
            write=self._write_timeout,
            read=usual.read if self._sends_message else _at_most(usual.read, longest),
        )

    def succeeded(self, exchange: ClientExchange) -> bool:
        """Take an exchange that has succeeded; return whether it has the answer of the model.

        Raises:
            RemoteProtocolError: the answer is not one of a server that offers such uploads.
        """
        if self._is_plain or self._offset is not None:
            self._forget()
            return True
        if self._location is None:
            self._location = self._location_of(exchange)
            self._offset = 0
            if self._record is not None:
                self._record.write(self._key, self._location)
        else:
            self._offset = self._offset_of(exchange)
            if self._offset > self._most:
                self._most, self._failures, self._idle, self._idle_since = self._offset, 0, 0.0, None
        self._said = self._offset
        if self._on_resume is not None:
            self._on_resume(self._offset, self._message.body_length)
        return False

    def failed(self, exchange: ClientExchange, error: OSError | MessageError, now: float, *, is_over: bool) -> float:
        """Take an exchange that has failed; return the seconds before the next one.

        Args:
            exchange: as of `next_exchange`.
            error: which it has raised.
            now: seconds, on the clock of `next_exchange`.
            is_over: whether the time of the whole call is over.

        Raises:
            OSError: the outage has lasted too long, or the time is over; the text says how far the upload has come.
            MessageError: waiting would not change this. The record stays, unless the model has answered.
        """
        status = exchange.status if isinstance(error, ServerError) else None
        is_final = status is not None and exchange.field(b"upload-complete") == "?1"  # the model has refused it
        if is_final or not self._is_passing(error, status):
            if not (self._location is not None or is_final or status in _NOT_ABOUT_UPLOADS):
                error.add_note(_NEEDED)
            if is_final:
                self._forget()
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        if self._has_no_room(exchange, status):
            self._is_plain = True
            return 0.0
        self._is_plain = False
        self._failures += 1
        if self._idle_since is None:
            has_stalled = isinstance(error, TimeoutError) and not is_over
            stalled = self._write_timeout if has_stalled and self._write_timeout is not None else 0.0
            self._idle_since = max(self._begun_at, now - stalled)
        idle = self._idle_seconds(now)
        wanted, left = retry_after(error) or 0, self._outage - idle
        if is_over or wanted >= left:
            raise self._given_up(error, idle, wanted) from error
        if status in _GONE:
            self._forget()
        self._offset = None
        pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, _MOST_DOUBLINGS))
        return min(wanted + pause, left)

    @property
    def _sends_message(self) -> bool:
        return self._is_plain or self._offset is not None

    def _idle_seconds(self, now: float) -> float:
        return self._idle + (0.0 if self._idle_since is None else now - self._idle_since)

    def _has_no_room(self, exchange: ClientExchange, status: int | None) -> bool:
        """Whether the server takes the request, and not as an upload: it has as many as it may have."""
        if self._location is not None or status != _UNAVAILABLE:
            return False
        limits = (exchange.field(b"upload-limit") or "").replace(" ", "").split(",")
        most = next((limit.removeprefix("max-size=") for limit in limits if limit.startswith("max-size=")), "")
        return most.isascii() and most.isdigit() and int(most[:_MAX_DIGITS]) < self._message.body_length

    def _is_passing(self, error: OSError | MessageError, status: int | None) -> bool:
        """Whether another attempt may succeed."""
        if status is not None:
            has_begun = self._location is not None
            if status in _FAILURE or status in NOT_RUN or status == _TOO_EARLY:
                return True
            return has_begun and (status in _GONE or status in {_WRONG_OFFSET, _TOO_SLOW})
        return isinstance(error, OSError) or error.code in _BROKEN

    def _given_up(self, error: OSError | MessageError, seconds: float, wanted: int) -> OSError:
        reason, total = str(error), self._message.body_length
        reached = f"the server has not said how many of the {total} bytes it has"
        if self._said is not None:
            reason = reason.partition(_TLS_HINT)[0]
            reached = f"the server had {self._said} of {total} bytes when it last said so"
        if wanted:
            reason = f"{reason}; the server is to be left alone for {wanted} s"
        kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
        return kind(f"{reason}; gave up after {self._failures} failures in {seconds:.1f} s without progress, {reached}")

    def _location_of(self, exchange: ClientExchange) -> str:
        location = (exchange.field(b"location") or "").removeprefix(self._origin)
        if exchange.status != _CREATED or not is_path(location):
            msg = "the server has not begun an upload; does it offer uploads that can be resumed?"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        if found := UNSENDABLE.search(location):
            msg = f"the server's Location of the upload has {found[0]!a} as character {found.start() + 1} of its path"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        return location

    def _offset_of(self, exchange: ClientExchange) -> int:
        text = exchange.field(b"upload-offset") or ""
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            msg = "the server does not say where the upload goes on (Upload-Offset)"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        if int(text) > self._message.body_length:
            msg = f"the server goes on at byte {text} of {self._message.body_length} bytes"
            raise RemoteProtocolError(msg, code=ErrorCode.UPLOAD_MISMATCH, status_hint=502)
        return int(text)

    def _forget(self) -> None:
        self._location = self._offset = self._said = None
        self._most = 0
        if self._record is not None:
            with suppress(OSError):  # the next call finds out that the upload is gone
                self._record.forget()


def _at_most(usual: float | None, longest: float) -> float | None:
    """Return the shorter one of two times; None for a usual one is no limit."""
    shorter = longest if usual is None else min(usual, longest)
    return None if shorter == math.inf else shorter
