"""Whole frames: a message of a WebSocket or a queue is one object in memory, and its tensors are views of it.

A transport that delivers whole messages has already copied the bytes of the tensors. To copy them once more into arrays
would cost memory and time, so the arrays show the bytes where they are. It is also the quickest way for small messages
over a socket: the head of a frame says how many bytes follow, and one read brings all of them.

The decoder reads each frame that begins unlike the frame before it. If head and JSON header are the same, byte for
byte, then the tensors and their places are the same, too, and only lengths and the checksum are left to be compared. So
a robot that sends the same form of message again and again pays for its header once. A frame with BYTES or BOOL has
content that must be checked, and one with JSON values has them in its header, so the decoder reads each of these. All
verdicts and errors are the decoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic
from zlib import crc32

import numpy as np

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, TensorReceived
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import NewArray, Placement
from streamcodec.engine.memory.windows import Discard
from streamcodec.engine.receiving import Buffer
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.frame.head import CHECKSUM_BYTES, HEAD_BYTES, Checksum, read_head
from streamcodec.formats.frame.layout import request_frame_decoder, response_frame_decoder
from streamcodec.formats.v2.header.cache import is_immutable
from streamcodec.formats.v2.model import MessageT

_NEW_ARRAY: Final = NewArray()
_DISCARD: Final = Discard()
_MAKERS: Final[tuple[object, ...]] = (request_frame_decoder, response_frame_decoder)

_View = tuple[str, tuple[int, ...], np.dtype[Any], int]
"""Name, shape, dtype, and offset in the frame."""


@record()
class WholeFrame(Generic[MessageT]):
    """The content of a frame."""

    header: MessageT
    """The header of the message."""
    arrays: Mapping[str, np.ndarray[Any, Any]]
    """Arrays by name, in the order of the message. Binary tensors are views of the frame, which stays in memory as long
    as one of them. They can be written to if the frame can. Their addresses are not aligned; copy an array that needs
    it. BYTES are object arrays of `bytes`."""


class WholeFrames(Generic[MessageT]):
    """Reads frames that are whole in memory, one after the other. Use one object for each sender.

    Example:
        >>> import numpy as np
        >>> from streamcodec import encode_request
        >>> from streamcodec.formats.frame import Kind, WholeFrames, encode_frame, request_frame_decoder
        >>> frames = WholeFrames(request_frame_decoder)
        >>> data = b"".join(encode_frame(encode_request({"x": np.arange(3)}), Kind.REQUEST).buffers)
        >>> frames.read(data).arrays["x"].tolist()
        [0, 1, 2]
    """

    def __init__(self, make_decoder: Callable[..., Decoder[MessageT]], *, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin without knowing a frame. The beginning of one frame is kept, at most 24 bytes and `max_header_bytes`.

        Args:
            make_decoder: `request_frame_decoder` or `response_frame_decoder`.
            limits: caps on everything that is read.

        Raises:
            LocalProtocolError: `make_decoder` is something else.
        """
        if make_decoder not in _MAKERS:
            msg = f"whole frames are read by request_frame_decoder or response_frame_decoder, not by {make_decoder!r}"
            raise LocalProtocolError(msg)
        self._make_decoder = make_decoder
        self._limits = limits
        self._known: _Known[MessageT] | None = None

    def length_of(self, head: Buffer) -> int:
        """Return the length of the frame with this head, in bytes, for a transport that delivers no whole frames.

        Args:
            head: the first `HEAD_BYTES` of the frame, or more.

        Raises:
            RemoteProtocolError: as from the decoder, which refuses some frames for their heads; or `truncated`.
            LimitExceededError: the frame is longer than `max_message_bytes` allows.
        """
        data = bytes(head[:HEAD_BYTES])
        known = self._known
        if known is not None and known.beginning[:HEAD_BYTES] == data:
            return known.nbytes
        decoder = self._make_decoder(limits=self._limits)
        decoder.feed(data)
        if len(data) < HEAD_BYTES:
            decoder.receive_eof()
        decoder.next_event()
        return read_head(data).frame_length

    def read(self, data: Buffer) -> WholeFrame[MessageT]:
        """Read a frame.

        Args:
            data: exactly the frame. It must not change as long as its arrays are in use. Memory that another process
                can write to has to be copied first, or values could change after they have been checked.

        Raises:
            RemoteProtocolError: as from the decoder; or `trailing-bytes`: the frame ends before the data.
        """
        if not isinstance(data, bytes):
            data = memoryview(data).cast("B")
        known = self._known
        if known is None or not known.is_like(data):
            return self._read_new(data)
        return WholeFrame(header=known.header, arrays=_arrays(known.views, data))

    def _read_new(self, data: Buffer) -> WholeFrame[MessageT]:
        """Have the decoder read a frame, and remember its beginning."""
        header, arrays = self._decoded(data)
        views = tuple(
            (spec.name, spec.shape, spec.datatype.dtype, HEAD_BYTES + (spec.offset or 0))
            for spec in header.tensors
            if spec.name not in arrays
        )
        arrays |= _arrays(views, data)
        head = read_head(bytes(data[:HEAD_BYTES]))
        if is_immutable(header) and not any(spec.datatype.kind in "bO" for spec in header.tensors):
            self._known = _Known(
                beginning=bytes(data[: HEAD_BYTES + head.header_length]),
                nbytes=len(data),
                is_summed=head.checksum is Checksum.CRC32,
                header=header,
                views=views,
            )
        return WholeFrame(header=header, arrays={spec.name: arrays[spec.name] for spec in header.tensors})

    def _decoded(self, data: Buffer) -> tuple[MessageT, dict[str, np.ndarray[Any, Any]]]:
        """Check a frame; return its header, and the arrays that are no views of it."""
        headers: list[MessageT] = []
        decoder = self._make_decoder(limits=self._limits, check=headers.append, place=_place)
        taken = decoder.feed(data)
        decoder.receive_eof()
        events = iter(decoder.next_event, EndOfMessage(nbytes=taken))
        arrays = {event.spec.name: event.array for event in events if isinstance(event, TensorReceived)}
        if taken < len(data):
            msg = f"{len(data) - taken} bytes follow the frame"
            raise RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=taken)
        return headers[0], arrays


@record()
class _Known(Generic[MessageT]):
    """A frame that the decoder has read, and whose like it need not read."""

    beginning: bytes
    """Head and JSON header."""
    nbytes: int
    is_summed: bool
    header: MessageT
    views: tuple[_View, ...]

    def is_like(self, data: Buffer) -> bool:
        """Whether the decoder would accept a frame with the same header and the same places."""
        if len(data) != self.nbytes or data[: len(self.beginning)] != self.beginning:
            return False
        return not self.is_summed or crc32(memoryview(data)[:-CHECKSUM_BYTES]) == int.from_bytes(
            data[-CHECKSUM_BYTES:], "little"
        )


def _place(spec: TensorSpec) -> Placement:
    """Place nothing but the values that came as JSON: the others stay where they are."""
    return _DISCARD if spec.data is None else _NEW_ARRAY


def _arrays(views: tuple[_View, ...], data: Buffer) -> dict[str, np.ndarray[Any, Any]]:
    memory = np.frombuffer(data, np.uint8)  # unlike `np.ndarray`, it keeps a `bytearray` from being resized
    return {name: np.ndarray(shape, dtype, memory, offset) for name, shape, dtype, offset in views}
