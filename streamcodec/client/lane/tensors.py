"""Lane: the client's side of a memory lane: which tensors are in shared memory, and what the places in an answer mean.

The memory for requests belongs to the user's `MemoryLane`, and all connections share it. The memory for answers belongs
to one connection. When a call fails, its connection is closed. So a server that is late writes to memory that no later
answer uses.

The server may write to the memory for answers at any time. So the client follows the same rules as the server: the JSON
header comes over the socket, places are checked, and BYTES and BOOL are copied before they are checked.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from streamcodec.client.lane.arena import Arena, ArenaBlock, Octets
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, TensorReceived
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import response_decoder
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.header.parsing import parse_response_header
from streamcodec.formats.v2.lane import (
    LANE_ALIGNMENT,
    MAX_LANE_TENSORS,
    ROOM_FIELD,
    TENSOR_FIELD,
    check_inside,
    in_memory,
    parse_places,
)
from streamcodec.formats.v2.model import ResponseHeader
from streamcodec.transports.sockets.memfd import MIN_MEMORY_BYTES, new_memory

_LEAST_BYTES: Final = 64 << 10
"""Smaller requests go through the socket: a server answers them faster there."""

_PIECE_BYTES: Final = 1 << 20

_CHECKED_KINDS: Final = frozenset("Ob")
"""Kinds of datatypes whose bytes are checked, so they are copied before."""


class MemoryLane:
    """Memory that a client shares with the server of a Unix socket, so that tensors are not sent.

    The server must offer a memory lane; else tensors are sent as usual. Arrays that `empty` has made are not even
    copied. Others are copied once, to memory that was used before. Outputs are arrays of the shared memory, which is
    used again when the last of them is deleted.

    While a call is in progress, do not write to its inputs: the server reads them. The server can write to outputs as
    long as the connection is open. An honest one does not; copy outputs of one that you do not trust before you check
    them.

    Attributes:
        calls: how many answers came to requests whose tensors were not sent.

    Example::

        lane = MemoryLane(request_bytes=1 << 30, answer_bytes=1 << 30)
        with Client("http+unix://%2Frun%2Fmodels.sock", memory_lane=lane) as client:
            image = lane.empty((1024, 1024, 3), np.float32)
            image[:] = 0.5
            result = client.infer("segment", {"image": image})
    """

    def __init__(self, *, request_bytes: int = 256 << 20, answer_bytes: int = 256 << 20) -> None:
        """Take the memory for requests.

        Args:
            request_bytes: for the inputs of all calls at once; at least 1 MiB.
            answer_bytes: for the outputs that exist at once, for each connection; at least 1 MiB.

        Raises:
            LocalProtocolError: a number is too small, or this system has no memory files (it is not Linux).
            OSError: there is no memory, or the system is older than Linux 5.1.
        """
        if min(request_bytes, answer_bytes) < MIN_MEMORY_BYTES:
            raise LocalProtocolError(f"a memory lane has at least {MIN_MEMORY_BYTES} bytes for each direction")
        self._answer_bytes = answer_bytes
        self._descriptor, memory = new_memory(request_bytes, seals_writing=True)
        weakref.finalize(self, os.close, self._descriptor)
        self._requests = Arena(memory)
        self.calls: int = 0

    def empty(self, shape: int | Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - as numpy's
        """Return a new array in the memory for requests, whose values are undefined.

        Args:
            shape: of the array.
            dtype: of the array; not `object`.

        Raises:
            LocalProtocolError: the dtype has objects, or there is no room in one piece.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise LocalProtocolError(
                "objects have no place in a memory lane; BYTES are copied to it when they are sent"
            )
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = kind.itemsize
        for size in dimensions:
            nbytes *= int(size)
        block = self._requests.take(nbytes) if nbytes >= 0 else None
        if block is None:
            free = self._requests.free_bytes
            raise LocalProtocolError(
                f"there is no room for {nbytes} bytes in the memory lane, {free} are free: delete arrays that you no "
                "longer need, or make the lane larger (request_bytes)"
            )
        return np.ndarray(dimensions, kind, block.octets)

    def new_answers(self) -> tuple[list[int], int, Lane]:
        """Make the memory for the answers of one connection.

        Returns:
            Both descriptors, to be sent; the second one, which the caller closes; and the lane.

        Raises:
            OSError: there is no memory.
        """
        descriptor, memory = new_memory(self._answer_bytes, seals_writing=False)
        return [self._descriptor, descriptor], descriptor, Lane(self, self._requests, Arena(memory))


class Lane:
    """The lane of one connection."""

    def __init__(self, owner: MemoryLane, requests: Arena, answers: Arena) -> None:
        """Begin with a connection whose server has accepted the memory."""
        self._owner = owner
        self.requests = requests
        self.answers = answers

    def begin(self, message: EncodedMessage) -> LaneCall | None:
        """Put the tensors of a request into the memory; None if they have to be sent."""
        tensors = message.parts[1:]
        if not message.header_length or message.content_encoding is not None or message.is_streamed:
            return None
        if not tensors or len(tensors) > MAX_LANE_TENSORS or message.body_length < _LEAST_BYTES:
            return None
        sent: list[tuple[int, Octets]] = []
        for octets in [np.frombuffer(part, np.uint8) for part in cast("tuple[bytes | memoryview, ...]", tensors)]:
            offset = self.requests.offset_of(octets)
            if offset is not None and offset % LANE_ALIGNMENT == 0:
                sent.append((offset, octets))
                continue
            block = self.requests.take(octets.nbytes)
            if block is None:
                return None
            np.copyto(block.octets, octets)
            sent.append((block.offset, block.octets))
        return LaneCall(message, sent, self.answers.take_largest())

    def answered(self) -> None:
        """Count a call."""
        self._owner.calls += 1


class LaneCall:
    """One request in the lane, and its answer.

    Attributes:
        message: the request without its tensors.
    """

    def __init__(self, message: EncodedMessage, sent: list[tuple[int, Octets]], room: ArenaBlock | None) -> None:
        """Begin with tensors that are in the memory, and with room for the answer."""
        self.message: EncodedMessage = replaced(message, parts=message.parts[:1], body_length=message.header_length)
        self._sent = sent
        self._room = room
        self._used = 0

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The fields of the request."""
        fields = [(TENSOR_FIELD, ", ".join(str(offset) for offset, _ in self._sent))]
        if self._room is not None:
            fields.append((ROOM_FIELD, f"{self._room.offset}, {self._room.octets.nbytes}"))
        return fields

    def finish(
        self, text: bytes, values: Sequence[bytes], limits: Limits, place: Place | None
    ) -> tuple[ResponseHeader, dict[str, TensorReceived]]:
        """Read an answer whose tensors are in the memory.

        Args:
            text: its JSON header.
            values: of its fields `Tensor-Memory`.
            limits: bound the answer.
            place: for outputs that shall be elsewhere; None to leave them in the memory.

        Raises:
            RemoteProtocolError: the answer breaks a rule.
        """
        header = parse_response_header(text, limits)
        places = parse_places(values)
        sources = {
            spec.name: self._source(spec, *found)
            for spec, found in zip(in_memory(header.tensors, len(places)), places, strict=True)
        }
        if place is None and all(
            spec.is_binary and spec.datatype.kind not in _CHECKED_KINDS for spec in header.tensors
        ):
            received = {
                spec.name: TensorReceived(
                    spec=spec, values=np.ndarray(spec.shape, spec.datatype.dtype, sources.get(spec.name))
                )
                for spec in header.tensors
            }
        else:
            received = _copied(text, header, sources, limits, place)
        if self._room is not None:
            self._room.keep(self._used)
        return header, received

    def _source(self, spec: TensorSpec, is_request: bool, offset: int) -> Octets:  # noqa: FBT001 - of a place
        """Return the bytes of an output.

        Raises:
            RemoteProtocolError: they are neither in the room for this answer nor in a tensor of this request.
        """
        if not is_request:
            start = 0 if self._room is None else self._room.offset
            octets = np.empty(0, np.uint8) if self._room is None else self._room.octets
            check_inside(spec, offset, range(start, start + octets.nbytes))
            self._used = max(self._used, offset - start + spec.nbytes)
            return octets[offset - start : offset - start + spec.nbytes]
        for start, octets in self._sent:
            if start <= offset and offset + spec.nbytes <= start + octets.nbytes:
                return octets[offset - start : offset - start + spec.nbytes]
        msg = f"the answer has an output at {offset} of the memory for requests, where its request has no tensor"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER)


def _copied(
    text: bytes, header: ResponseHeader, sources: dict[str, Octets], limits: Limits, place: Place | None
) -> dict[str, TensorReceived]:
    """Receive an answer as if its tensors had come over the socket."""
    length = len(text) + sum(spec.nbytes for spec in header.tensors)
    decoder = response_decoder(
        header_length=len(text), body_length=length, limits=limits, place=new_array if place is None else place
    )
    received: dict[str, TensorReceived] = {}
    pieces = [np.frombuffer(text, np.uint8), *(sources[spec.name] for spec in header.tensors if spec.nbytes)]
    for octets in pieces:
        for start in range(0, octets.nbytes, _PIECE_BYTES):
            decoder.feed(octets[start : start + _PIECE_BYTES].data)
            while (event := decoder.next_event()) is not NEED_DATA and not isinstance(event, EndOfMessage):
                if isinstance(event, TensorReceived):
                    received[event.spec.name] = event
    return received
