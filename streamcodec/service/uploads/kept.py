"""Uploads in memory: interrupted ones stay as they are, and the next connection goes on with them. Sans-IO.

An upload is an ordinary `Inference` that outlives its connection. Its decoder has filled the final arrays up to
`offset`, so nothing is copied or read again when the next connection goes on there.

An interrupted upload is kept for a limited time, counted from the interruption, and in all for another, counted from
its beginning. It keeps its memory in the budget. If another request would have to wait for memory, interrupted uploads
are dropped first, the one that has waited longest before the others.

The number of uploads is limited. If there are as many as there may be, an interrupted one makes room for a new one:
first those without a byte, whose clients may not even know them, then the one that has waited longest. Who knows the id
of an upload has it; there is no other protection. So ids are unguessable, and nothing here shows them.

The clock and the source of ids are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.uploads.upload import Carrier, UploadPart

_LOOKS: Final = 4
"""Looks for uploads whose time is over, while one of them is kept."""


class KeptUpload:
    """An upload in memory.

    Attributes:
        reservation: its memory while it has no carrier.
        ends: when it is over at the latest.
        expires: when it is over if nobody goes on with it.
    """

    def __init__(
        self, name: str, head: RequestHead, inference: Inference, reservation: Reservation, ends: float
    ) -> None:
        """Begin before the first byte; for the attributes see `Upload`."""
        self.id: str = name
        self.head: RequestHead = head
        self.length: int = head.content_length or 0
        self.inference: Inference = inference
        self.carrier: Carrier | None = None
        self.is_whole: bool = False
        self.reservation: Reservation = reservation
        self.ends: float = ends
        self.expires: float = ends

    @property
    def offset(self) -> int:
        """See `Upload`."""
        return self.inference.decoder.offset

    def go_on(self, resolved: ResolvedHead) -> bool:
        """See `Upload`."""
        return self.inference.resolved.model is resolved.model

    def part(self, nbytes: int, *, is_last: bool, interim: list[tuple[str, str]] | None = None) -> UploadPart:
        """See `Upload`."""
        return UploadPart(self, nbytes, is_last=is_last, interim=interim)


class Uploads:
    """The uploads of one server, in its memory; see `UploadStore`."""

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
        self._all: dict[str, KeptUpload] = {}
        self._interrupted: dict[KeptUpload, None] = {}
        budget.give_back = self._give_back

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def begin(self, resolved: ResolvedHead, head: RequestHead) -> KeptUpload | None:
        """See `UploadStore`."""
        self.expire()
        if len(self._all) >= self._max_uploads:  # an interrupted one makes room, first one of which nothing has come
            empty = next((each for each in self._interrupted if not each.offset), None)
            if not (self._drop(empty) or self._give_back()):
                return None
        inference = resolved.begin(pause_after_header=True, paced=True)
        ends = self._clock() + self._lifetime_seconds
        upload = KeptUpload(self._new_id(), head, inference, Reservation(self._budget), ends)
        self._all[upload.id] = upload
        return upload

    def find(self, name: str) -> KeptUpload:
        """See `UploadStore`."""
        self.expire()
        upload = self._all.get(name)
        if upload is not None and upload.carrier is not None:
            upload.carrier.give_way()
            upload = self._all.get(name)  # without its carrier it may have had to make room for others
        if upload is None:
            raise no_such_upload()
        return upload

    def let_be(self, upload: KeptUpload) -> None:
        """See `UploadStore`: it stays as it is."""

    def carry(self, upload: KeptUpload, carrier: Carrier, reservation: Reservation) -> None:
        """See `UploadStore`."""
        self._interrupted.pop(upload, None)
        upload.carrier = carrier
        upload.reservation.hand_to(reservation)

    def keep(self, upload: KeptUpload, reservation: Reservation) -> None:
        """See `UploadStore`."""
        upload.carrier = None
        upload.expires = min(self._clock() + self._keep_seconds, upload.ends)
        reservation.hand_to(upload.reservation)
        self._interrupted[upload] = None
        self._budget.relieve()

    def complete(self, upload: KeptUpload) -> bool:
        """See `UploadStore`: the carrier has all of it."""
        self.end(upload)
        return False

    def end(self, upload: KeptUpload) -> None:
        """See `UploadStore`."""
        self._all.pop(upload.id, None)
        self._interrupted.pop(upload, None)
        upload.carrier = None
        upload.reservation.release()

    def seconds_left(self, upload: KeptUpload) -> int:
        """See `UploadStore`."""
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
        return self._drop(next(iter(self._interrupted), None))

    def _drop(self, upload: KeptUpload | None) -> bool:
        if upload is None:
            return False
        reservation, upload.reservation = upload.reservation, Reservation(self._budget)
        self.end(upload)
        del upload  # its arrays are gone before somebody else gets their memory
        reservation.release()
        return True


def no_such_upload() -> RemoteProtocolError:
    """Return the error for an id that no upload has."""
    msg = "there is no such upload: it is complete, or was dropped, or has never begun; send the request again"
    return RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
