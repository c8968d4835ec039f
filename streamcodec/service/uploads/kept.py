"""Uploads: inference requests whose bytes come in several messages, because a connection may break. Sans-IO.

An `Upload` is an ordinary `Inference` that outlives its connection. Its decoder has filled the final arrays up to
`offset`, so nothing is copied or read again when the next connection goes on there. At any time one connection at most
brings bytes: its *carrier*. If another connection asks for the upload, the carrier must give way at once, because the
client uses one connection at a time: it has lost the first one, and the server has not noticed yet (section 4.6 of the
draft).

An upload without a carrier is *interrupted*. It is kept for a limited time, counted from the interruption, and in all
for another, counted from its beginning. It keeps its memory in the budget. If another request would have to wait for
memory, interrupted uploads are dropped first, the one that has waited longest before the others.

The number of uploads is limited. Who knows the id of an upload has it; there is no other protection. So ids are
unguessable, and nothing here shows them.

The clock and the source of ids are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.request.inference import Inference

_LOOKS: Final = 4
"""Looks for uploads whose time is over, while one of them is kept."""


class Carrier(Protocol):
    """The connection that brings the bytes of an upload."""

    def give_way(self) -> None:
        """Hand the upload back with `Uploads.keep`, and end: another connection goes on with it."""
        ...


class Upload:
    """One inference request.

    Attributes:
        id: names it.
        inference: receives it.
        length: bytes of the body, all messages together.
        reservation: its memory while it has no carrier.
        carrier: brings bytes now; None while it is interrupted.
        is_whole: whether the last event of the decoder has been taken, though the client may not have ended the upload.
        ends: when it is over at the latest.
        expires: when it is over if nobody goes on with it.
    """

    def __init__(self, name: str, inference: Inference, length: int, reservation: Reservation, ends: float) -> None:
        """Begin before the first byte."""
        self.id: str = name
        self.inference: Inference = inference
        self.length: int = length
        self.reservation: Reservation = reservation
        self.carrier: Carrier | None = None
        self.is_whole: bool = False
        self.ends: float = ends
        self.expires: float = ends

    @property
    def offset(self) -> int:
        """Bytes that are in their places."""
        return self.inference.decoder.offset

    @property
    def can_go_on(self) -> bool:
        """Whether more bytes may come: nothing was wrong with those that have come."""
        decoder = self.inference.decoder
        return decoder.needs_data or decoder.is_paused


class Uploads:
    """The uploads of one server."""

    def __init__(
        self,
        budget: Budget,
        *,
        max_uploads: int,
        keep_seconds: float,
        lifetime_seconds: float,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        """Begin without uploads.

        Args:
            budget: of the memory of all requests; it gets that of interrupted uploads back before a request waits.
            max_uploads: at once.
            keep_seconds: for an interrupted upload.
            lifetime_seconds: from the beginning of an upload to that of its last message.
            clock: returns the time in seconds.
            new_id: makes an unguessable id, of characters that need no escape in a URL.
        """
        self.max_bytes: int = budget.max_bytes
        self._budget = budget
        self._max_uploads = max_uploads
        self._keep_seconds = keep_seconds
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._new_id = new_id
        self._all: dict[str, Upload] = {}
        self._interrupted: dict[Upload, None] = {}
        budget.give_back = self._give_back

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def begin(self, inference: Inference, length: int) -> Upload | None:
        """Begin an upload; None if there are as many as there may be."""
        self.expire()
        if len(self._all) >= self._max_uploads:
            return None
        ends = self._clock() + self._lifetime_seconds
        upload = Upload(self._new_id(), inference, length, Reservation(self._budget), ends)
        self._all[upload.id] = upload
        return upload

    def find(self, name: str) -> Upload:
        """Return the upload with an id, which has no carrier then.

        Raises:
            RemoteProtocolError: `not-found`, status 404.
        """
        self.expire()
        upload = self._all.get(name)
        if upload is not None and upload.carrier is not None:
            upload.carrier.give_way()
            upload = self._all.get(name)  # without its carrier it may have had to make room for others
        if upload is None:
            msg = "there is no such upload: it is complete, or was dropped, or has never begun; send the request again"
            raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
        return upload

    def carry(self, upload: Upload, carrier: Carrier, reservation: Reservation) -> None:
        """Have a connection bring bytes; it takes over the memory."""
        self._interrupted.pop(upload, None)
        upload.carrier = carrier
        upload.reservation.hand_to(reservation)

    def keep(self, upload: Upload, reservation: Reservation) -> None:
        """Keep an upload whose connection brings no more bytes, and take over its memory."""
        upload.carrier = None
        upload.expires = min(self._clock() + self._keep_seconds, upload.ends)
        reservation.hand_to(upload.reservation)
        self._interrupted[upload] = None
        self._budget.relieve()

    def end(self, upload: Upload) -> None:
        """Forget an upload: it is complete, refused or cancelled. Its carrier keeps the memory, if there is one."""
        self._all.pop(upload.id, None)
        self._interrupted.pop(upload, None)
        upload.carrier = None
        upload.reservation.release()

    def seconds_left(self, upload: Upload) -> int:
        """Return for how many seconds an upload is kept at least if nobody goes on with it (`max-age`)."""
        return max(0, int(min(self._keep_seconds, upload.ends - self._clock())))

    def expire(self) -> float:
        """Drop the interrupted uploads whose time is over; return the seconds until the next look."""
        now = self._clock()
        for upload in [upload for upload in self._interrupted if upload.expires <= now]:
            self.end(upload)
        return self._keep_seconds / _LOOKS

    def close(self) -> None:
        """Drop all interrupted uploads: the server stops."""
        while self._give_back():
            pass

    def _give_back(self) -> bool:
        """Drop the upload that has been interrupted for the longest time; return whether there was one."""
        upload = next(iter(self._interrupted), None)
        if upload is None:
            return False
        reservation, upload.reservation = upload.reservation, Reservation(self._budget)
        self.end(upload)
        del upload  # its arrays are gone before somebody else gets their memory
        reservation.release()
        return True
