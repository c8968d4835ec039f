"""StoredUploads: uploads in files, which outlive the process, and which each process of a server can go on with.

An interrupted upload is a file, and takes no memory. Whoever goes on with it begins an ordinary `Inference`, whose
decoder first gets what is in the file: it passes over the tensors that lie there, and reads the rest again, piece by
piece, in turns of the event loop and in the memory of the budget, like bytes that come.

An upload that is complete is kept until the model has answered. If the server ends before, the client comes again, and
only the model is called once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn, TensorReceived
from streamcodec.engine.receiving import Buffer
from streamcodec.formats.v2.model import Event
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.uploads.file import UploadFile
from streamcodec.runtime.uploads.folder import UploadFolder
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.replies import Reply, unavailable_reply
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.uploads.kept import no_such_upload
from streamcodec.service.uploads.upload import Carrier, UploadPart

_PIECE_BYTES: Final = 64 << 10
"""Of the file that is read again in one turn, unless a tensor lies there."""

_LOOK_SECONDS: Final = 0.1
"""Between two looks whether another process wants an upload. Its client waits for so long."""

_SWEEP_LOOKS: Final = 50


class StoredUpload:
    """An upload whose file this process has; for the attributes see `Upload`."""

    def __init__(self, upload_id: str, file: UploadFile) -> None:
        """Begin, or go on."""
        self.id: str = upload_id
        self.file: UploadFile = file
        self.head: RequestHead = file.head
        self.carrier: Carrier | None = None
        self.is_whole: bool = False
        self.inference: Inference

    @property
    def length(self) -> int:
        """See `Upload`."""
        return self.file.length

    @property
    def offset(self) -> int:
        """See `Upload`."""
        return self.file.received

    def go_on(self, resolved: ResolvedHead) -> bool:
        """See `Upload`. Whether the model takes the request is found out anew, by its header."""
        place = partial(self.file.place, otherwise=resolved.place)
        self.inference = resolved.begin(pause_after_header=True, paced=True, place=place)
        return True

    def part(self, nbytes: int, *, is_last: bool, interim: list[tuple[str, str]] | None = None) -> UploadPart:
        """See `Upload`."""
        return StoredPart(self, nbytes, is_last=is_last, interim=interim)


class StoredPart(UploadPart):
    """The body of one message, which is written to the file, too."""

    def __init__(
        self, upload: StoredUpload, nbytes: int, *, is_last: bool, interim: list[tuple[str, str]] | None
    ) -> None:
        """Begin with the first byte of the message; the decoder may be behind the file."""
        super().__init__(upload, nbytes, is_last=is_last, interim=interim)
        self._file = upload.file
        self._offered: list[memoryview] = []

    @property
    def _is_behind(self) -> bool:
        """Whether the decoder has not got yet what the file has."""
        return self._decoder.offset < self._file.received

    @property
    def needs_data(self) -> bool:
        """See `Decoder`."""
        return self._decoder.needs_data and not self._is_behind

    @property
    def is_paused(self) -> bool:
        """See `Decoder`."""
        return self._decoder.is_paused or (self._is_behind and self._decoder.needs_data)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """See `Decoder`."""
        self._offered = [self._decoder.get_buffer(sizehint)]
        return self._offered[0]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """See `Decoder`."""
        self._offered = self._decoder.get_buffers(sizehint)
        return self._offered

    def buffer_updated(self, nbytes: int) -> None:
        """See `Decoder`."""
        at = self._file.received
        offered, self._offered = self._offered, []
        missing = nbytes
        for buffer in offered:
            count = min(len(buffer), missing)
            if not self._file.holds(at + nbytes - missing):
                self._file.write(at + nbytes - missing, buffer[:count])
            missing -= count
        self._decoder.buffer_updated(nbytes)
        self._file.count(at + nbytes)

    def feed(self, chunk: Buffer) -> int:
        """See `Decoder`."""
        at = self._file.received
        taken = self._decoder.feed(chunk)
        with memoryview(chunk) as view, view.cast("B") as source:
            self._file.write(at, source[:taken])  # over a tensor that lies there, the same bytes
        self._file.count(at + taken)
        return taken

    def receive_eof(self) -> None:
        """See `UploadPart`; the decoder is told when it has got what the file has."""
        if self._is_behind:
            self._has_ended = True
        else:
            super().receive_eof()

    def work(self) -> None:
        """Do one piece of work: that of the decoder, or have it get the next piece of the file."""
        if not (self._is_behind and self._decoder.needs_data):
            self._decoder.work()
            return
        at = self._decoder.offset
        target = self._decoder.get_buffer()[: self._file.received - at]
        if not self._file.holds(at):
            target = target[:_PIECE_BYTES]
            target[:] = self._file.body[at : at + len(target)]
        self._decoder.buffer_updated(len(target))
        if self._has_ended and self._decoder.offset == self._file.received:
            super().receive_eof()

    def next_event(self) -> Event | NeedData | NeedTurn:
        """See `UploadPart`."""
        is_behind = self._is_behind
        event = self._decoder.next_event() if is_behind else super().next_event()
        if isinstance(event, TensorReceived) and (own := self._file.for_model(event.spec)) is not None:
            return TensorReceived(spec=event.spec, values=own.array)
        return NEED_TURN if is_behind and event is NEED_DATA else event


class StoredUploads:
    """The uploads of one process of a server; see `UploadStore`."""

    def __init__(self, folder: UploadFolder, *, max_bytes: int, new_id: Callable[[], str]) -> None:
        """Begin with the uploads of a folder.

        Args:
            folder: has the files.
            max_bytes: memory of all requests of this process.
            new_id: makes an unguessable id, of characters that need no escape in a URL.
        """
        self.max_bytes: int = min(max_bytes, folder.max_bytes)
        self._folder = folder
        self._new_id = new_id
        self._used: dict[str, StoredUpload] = {}
        self._looks = 0

    def __len__(self) -> int:
        """Return how many there are, those of other processes too."""
        return len(self._folder)

    def begin(self, resolved: ResolvedHead, head: RequestHead) -> StoredUpload | None:
        """See `UploadStore`."""
        upload_id = self._new_id()
        file = self._folder.create(upload_id, head)
        if file is None:
            return None
        upload = StoredUpload(upload_id, file)
        upload.go_on(resolved)
        return upload

    def find(self, name: str) -> StoredUpload | Reply:
        """See `UploadStore`."""
        carried = self._used.get(name)
        if carried is not None and carried.carrier is not None:
            carried.carrier.give_way()
        try:
            file = self._folder.find(name)
        except FileNotFoundError:
            raise no_such_upload() from None
        if file is None:
            return unavailable_reply("another process has the upload and gives it back; ask again", retry_after=1)
        return StoredUpload(name, file)

    def let_be(self, upload: StoredUpload) -> None:
        """See `UploadStore`."""
        upload.file.close()

    def carry(self, upload: StoredUpload, carrier: Carrier, reservation: Reservation) -> None:  # noqa: ARG002 - it has none yet
        """See `UploadStore`."""
        upload.carrier = carrier
        self._used[upload.id] = upload

    def keep(self, upload: StoredUpload, reservation: Reservation) -> None:
        """See `UploadStore`."""
        self._forget(upload)
        self._folder.keep(upload.file)
        reservation.release()

    def complete(self, upload: StoredUpload) -> bool:
        """See `UploadStore`."""
        upload.carrier = None
        return True

    def end(self, upload: StoredUpload) -> None:
        """See `UploadStore`."""
        self._forget(upload)
        upload.file.remove()

    def seconds_left(self, upload: StoredUpload) -> int:
        """See `UploadStore`."""
        return self._folder.seconds_left(upload.file)

    def expire(self) -> float:
        """Give away what other processes want, and from time to time drop what is over; return the seconds to wait.

        What is brought, or worked on, gets its whole time anew: this process may be killed in the next moment.
        """
        for upload in [*self._used.values()]:
            self._folder.use(upload.file)
            if upload.file.is_asked_for and upload.carrier is not None:
                upload.carrier.give_way()
        self._looks = (self._looks + 1) % _SWEEP_LOOKS
        if not self._looks:
            self._folder.sweep()
        return _LOOK_SECONDS

    def close(self) -> None:
        """Have all that is interrupted on the disk: the server stops."""
        self._folder.sync()
        self._folder.close()

    def _forget(self, upload: StoredUpload) -> None:
        self._used.pop(upload.id, None)
        upload.carrier = None
