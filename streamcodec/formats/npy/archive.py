"""Reading an archive: first its members as they come, then the directory, which must have the same entries.

Other readers of zip files use the directory at the end. A stream has to be read from its beginning. So the members and
the directory are compared, and everything that could make them differ is refused: members that are compressed,
encrypted or of unknown size (with data descriptors), gaps, a comment, and duplicate names.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.format import format_decoder
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place, new_array, scratch_bytes
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.formats.npy import zipping
from streamcodec.formats.npy.order import in_its_order
from streamcodec.formats.npy.reading import NpyHeader, read
from streamcodec.formats.npy.unzipping import (
    read_central_header,
    read_end_records,
    read_local_header,
    refused,
)
from streamcodec.formats.npy.zipping import Entry


class Archive:
    """Reads an npz archive from a stream, each array as a message of its own. It `is_complete` after the directory.

    Example:
        >>> import numpy as np
        >>> from streamcodec import EndOfMessage, TensorReceived
        >>> from streamcodec.formats.npy import Archive, encode_archive
        >>> data = b"".join(encode_archive({"a": np.arange(2), "b": np.array(5)}).buffers)
        >>> archive = Archive()
        >>> while not archive.is_complete:
        ...     decoder = archive.decoder()
        ...     data = data[decoder.feed(data) :]
        ...     _ = data or decoder.receive_eof()
        ...     while not isinstance(event := decoder.next_event(), EndOfMessage):
        ...         if isinstance(event, TensorReceived):
        ...             print(event.spec.name, event.array.tolist())
        a [0, 1]
        b 5
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin before the first byte.

        Args:
            limits: caps on each array and on the directory; `max_tensors` is for the whole archive.
        """
        self.is_complete: bool = False
        self._limits = limits
        self._entries: list[Entry] = []
        self._names: set[str] = set()
        self._position = 0
        self._directory_bytes = 0
        self._checksum: int | None = None
        self._is_open = False

    def decoder(self, *, place: Place = new_array, **options: Any) -> Decoder[NpyHeader]:  # noqa: ANN401 - as described
        """Make the decoder for the next message: an array, or the directory, whose header has no tensors.

        Args:
            place: returns the placement of the array, as for `npy.decoder`.
            options: `check`, `pause_after_header` and `paced` of `format_decoder`.

        Raises:
            LocalProtocolError: the previous message is not complete, or the archive is complete.
        """
        if self._is_open or self.is_complete:
            msg = "the archive is read one message after the other, and each to its end"
            raise LocalProtocolError(msg)
        self._is_open = True
        return format_decoder(
            self._read, read_end=self._read_end, limits=self._limits, place=in_its_order(place), **options
        )

    def _read(self, reader: Reader) -> Reading[NpyHeader]:
        signature = bytes((yield from reader.read(len(zipping.LOCAL))))
        if signature == zipping.LOCAL:
            return (yield from self._read_member(reader))
        self._checksum = None
        yield from self._read_directory(reader, signature)
        return NpyHeader(tensors=())

    def _read_member(self, reader: Reader) -> Reading[NpyHeader]:
        entry, nbytes = yield from read_local_header(reader, self._position)
        self._directory_bytes += nbytes
        reader.check_header_length(self._directory_bytes)
        if len(self._entries) == reader.limits.max_tensors:
            msg = f"the archive has more than {reader.limits.max_tensors} members"
            raise LimitExceededError(msg, limit="max_tensors")
        if not entry.name.endswith(".npy") or "\0" in entry.name:
            raise refused(entry.name, "is no npy file", ErrorCode.INVALID_MEMBER)
        if entry.name in self._names:
            raise refused(entry.name, "comes twice", ErrorCode.DUPLICATE_NAME)
        self._entries.append(entry)
        self._names.add(entry.name)
        start, self._checksum, reader.on_filled = reader.position, 0, self._count_in
        header = yield from read(reader, entry.name.removesuffix(".npy"))
        nbytes = reader.position - start + header.tensors[0].nbytes
        if nbytes != entry.nbytes:
            raise refused(entry.name, f"does not have the {nbytes} bytes of its array", ErrorCode.BINARY_SIZE_MISMATCH)
        return header

    def _count_in(self, part: memoryview) -> None:
        self._checksum = crc32(part, self._checksum or 0)

    def _read_directory(self, reader: Reader, signature: bytes) -> Fill:
        """Read the directory, and compare it with the members that have come."""
        for entry in self._entries:
            if signature != zipping.CENTRAL or (yield from read_central_header(reader)) != entry:
                raise refused(entry.name, "is not so in the directory", ErrorCode.INVALID_HEADER)
            signature = bytes((yield from reader.read(len(zipping.END))))
        size = reader.position - len(zipping.END)
        if not (yield from read_end_records(reader, signature, len(self._entries), size, self._position)):
            msg = "the end of the archive does not fit what has come"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=reader.position)

    def _read_end(self, reader: Reader) -> Fill:
        """Compare the checksum of a member, or check that the input ends with the directory."""
        if self._checksum is None:
            if (yield from reader.look_ahead(scratch_bytes(1))):
                raise reader.trailing_bytes()
            self.is_complete = True
        elif self._checksum != self._entries[-1].crc:
            raise refused(self._entries[-1].name, "has another checksum than was said", ErrorCode.INVALID_DATA)
        self._position += reader.position
        self._is_open = False
