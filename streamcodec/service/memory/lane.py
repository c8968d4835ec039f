"""Lane: inference requests whose tensors are in memory that the server shares with its client. Sans-IO.

The client may write to this memory at any time, also while the server reads it. So nothing that is decided depends on
it: the JSON header comes over the socket, and says all sizes. The values of tensors are bytes like any others. They are
copied to private memory first, and only the copy is checked and computed with. A model that copes with changing values
(`Model.shared_inputs`) gets read-only arrays of the shared memory itself. BYTES and BOOL are copied in any case:
lengths of elements are inside of BYTES, and not every byte is a BOOL.

The server writes answers, and never reads what it has written.

To copy takes long, so it is done in the model's thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, TensorReceived
from streamcodec.engine.machine import Machine
from streamcodec.engine.message import Encodable
from streamcodec.engine.reader import Reader, Reading
from streamcodec.engine.record import record, replaced
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.header.parsing import long_request_header
from streamcodec.formats.v2.lane import (
    LANE_ALIGNMENT,
    MAX_LANE_TENSORS,
    ROOM_FIELD,
    TENSOR_FIELD,
    check_inside,
    in_memory,
    parse_offsets,
    parse_room,
)
from streamcodec.formats.v2.layout import Layout
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.service.memory.sizes import bytes_beside, bytes_taken
from streamcodec.service.models.model import Outputs
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, message_reply
from streamcodec.service.request.inference import Inference, KnownCall, ResolvedHead, as_values
from streamcodec.service.request.windows import Pull

Octets = np.ndarray[Any, np.dtype[np.uint8]]

_PIECE_BYTES: Final = 1 << 20
"""Bytes that are copied at once: other threads go on in between."""

_CHECKED_KINDS: Final = frozenset("Ob")
"""Kinds of datatypes whose bytes are checked. For all others every pattern of bits is a value."""


@record()
class SharedMemory:
    """The memory of one connection. Arrays of it keep it mapped, wherever they are."""

    requests: Octets
    """The client writes tensors of requests here; read-only."""
    answers: Octets
    """Tensors of answers are written here."""


class LaneInference(Inference):
    """One request in the lane."""

    def __init__(self, resolved: ResolvedHead, memory: SharedMemory, *, paced: bool = False) -> None:
        """Prepare for the JSON header, which is the whole body.

        Raises:
            RemoteProtocolError: `invalid-member`: the head does not fit the memory, or the model takes windows.
        """
        self.resolved = resolved
        self.plan: KnownCall | None = None
        self.watch: CallWatch | None = None
        self._header: RequestHeader | None = None
        self._received: dict[str, np.ndarray[Any, Any] | Elements] = {}
        self._values = self._received
        self._memory = memory
        fields = resolved.head.fields
        self._offsets = parse_offsets(fields.values(TENSOR_FIELD.lower().encode()))
        self._room = parse_room(fields.values(ROOM_FIELD.lower().encode()), len(memory.answers))
        if not resolved.header_length or resolved.header_length != resolved.body_length:
            msg = f"with {TENSOR_FIELD} the body is the JSON header alone, with its length in the head, uncompressed"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER)
        if resolved.model.windows is not None:
            msg = f"model {resolved.model.name!r} takes windows, which only a body can bring; leave out {TENSOR_FIELD}"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER)
        self._reading = reading = _Reading(resolved, self._offsets, len(memory.requests))
        limits = resolved.headers.limits
        machine = Machine(
            reading.read, length=resolved.body_length, limits=limits, check=None, place=resolved.place, paced=paced
        )
        self.arriving: Decoder[RequestHeader] = Decoder(machine)

    @property
    def request_id(self) -> str | None:
        """The id in the JSON header."""
        return self._reading.request_id

    @property
    def memory_bytes(self) -> int:
        """Bytes of private memory that the request takes, as far as it is known now; the shared memory is not its."""
        nbytes = self.resolved.body_length or 0
        if self._header is None:
            return nbytes
        tensors = self._header.tensors
        copied = 0 if self._is_shared else sum(spec.nbytes for spec in tensors)
        return nbytes + copied + sum(map(bytes_beside, tensors)) + self._object_bytes

    @property
    def held_bytes(self) -> int:
        """How many of the `memory_bytes` are in use already."""
        return self.resolved.body_length or 0

    @property
    def taken_bytes(self) -> int:
        """How much private memory the request really takes now."""
        return bytes_taken(self.arriving.offset, self.arriving.held_bytes, None)

    @property
    def _is_shared(self) -> bool:
        """Whether the model gets arrays of the shared memory."""
        tensors = () if self._header is None else self._header.tensors
        return self.resolved.model.shared_inputs and all(
            spec.is_binary and spec.datatype.kind not in _CHECKED_KINDS for spec in tensors
        )

    def receive(self, event: HttpEvent) -> None:  # noqa: ARG002 - of the base class
        """Take an event of the decoder: the JSON header is known from its first one on."""
        self._header = self._reading.header

    def gather(self) -> None:
        """Make the inputs. This takes as long as a copy, so it belongs in a thread; see `run`.

        Raises:
            RemoteProtocolError: the content of a tensor is invalid.
            OutOfMemoryError: there is no memory for the copy.
            LocalProtocolError: the JSON header has not been received.
        """
        if self._header is None:
            msg = "the inputs are made after the last event of the decoder"
            raise LocalProtocolError(msg)
        tensors = self._header.tensors
        offsets = iter(self._offsets)
        places = {spec.name: next(offsets) if spec.nbytes else 0 for spec in tensors}
        if self._is_shared:
            shared = self._memory.requests
            for spec in tensors:
                self._received[spec.name] = np.ndarray(spec.shape, spec.datatype.dtype, shared, places[spec.name])
            return
        length, limits = sum(spec.nbytes for spec in tensors), self.resolved.headers.limits
        read = partial(_read_known, self._header)  # a body that has no JSON header, because that is known
        decoder = Decoder(Machine(read, length=length, limits=limits, check=None, place=self.resolved.place))
        self._keep(decoder)
        for spec in tensors:
            end = places[spec.name] + spec.nbytes
            for start in range(places[spec.name], end, _PIECE_BYTES):
                decoder.feed(self._memory.requests[start : min(end, start + _PIECE_BYTES)].data)
                self._keep(decoder)

    def run(self, pull: Pull | None = None) -> Reply:  # noqa: ARG002 - of the base class
        """Make the inputs, call the model, and make the reply.

        Raises:
            LocalProtocolError: the JSON header has not been received, or the model is an `async def`.
        """
        try:
            self.gather()
        except (MessageError, MemoryError) as error:
            return self.resolved.failure(error, self.request_id)
        return super().run()

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply, whose tensors are in the shared memory if they fit there."""
        resolved = self.resolved
        values = {name: as_values(value) for name, value in outputs.items()}
        is_binary = header.wants_binary(None) and all(map(header.wants_binary, header.outputs or ()))
        if resolved.classifies or not is_binary:
            values = {name: self._private(value) for name, value in values.items()}
        message = resolved.encode(resolved.select(values, header), header)
        places = self._places(message)
        if not places:
            return message_reply(message, resolved.media_type)
        message = replaced(message, parts=message.parts[:1], body_length=message.header_length)
        reply = message_reply(message, resolved.media_type)
        return replaced(reply, headers=[*reply.headers, (TENSOR_FIELD, ", ".join(places))])

    def _keep(self, decoder: Decoder[RequestHeader]) -> None:
        """Keep the tensors that are complete."""
        while (event := decoder.next_event()) is not NEED_DATA:
            match event:
                case TensorReceived(spec=spec, values=values):
                    self._received[spec.name] = values
                case EndOfMessage():
                    return
                case _:
                    pass

    def _private(self, value: Encodable) -> Encodable:
        """Return an output that the client cannot change, for work that relies on its values.

        To sort values that change meanwhile could read beyond the array. JSON is measured before it is written.
        """
        is_shared = isinstance(value, np.ndarray) and np.may_share_memory(value, self._memory.requests)
        return np.array(value) if is_shared else value

    def _places(self, message: EncodedMessage) -> list[str]:
        """Write the tensors of an answer to the shared memory; return their places, or none if they have to be sent."""
        tensors = message.parts[1:]
        if message.header_length is None or message.content_encoding is not None or message.is_streamed:
            return []
        if len(tensors) > MAX_LANE_TENSORS:
            return []
        requests = self._memory.requests
        places, copies, position = [], [], self._room.start
        for octets in [np.frombuffer(part, np.uint8) for part in cast("tuple[bytes | memoryview, ...]", tensors)]:
            offset = octets.ctypes.data - requests.ctypes.data
            if 0 <= offset <= requests.nbytes - octets.nbytes:  # it is in the memory for requests
                places.append(f"r{offset}")
            elif position + octets.nbytes > self._room.stop:
                return []
            else:
                copies.append((position, octets))
                places.append(f"a{position}")
                position += -(-octets.nbytes // LANE_ALIGNMENT) * LANE_ALIGNMENT
        for start, octets in copies:
            np.copyto(self._memory.answers[start : start + octets.nbytes], octets)
        return places


class _Reading:
    """Reads the JSON header. The decoder holds this, and the request holds the decoder: so this holds neither.

    Attributes:
        header: when it has arrived and has been checked.
        request_id: of the JSON header, even if it is refused.
    """

    __slots__ = ("_nbytes", "_offsets", "_resolved", "header", "request_id")

    def __init__(self, resolved: ResolvedHead, offsets: tuple[int, ...], nbytes: int) -> None:
        """Check by what the head has decided, and by the size of the memory."""
        self._resolved = resolved
        self._offsets = offsets
        self._nbytes = nbytes
        self.header: RequestHeader | None = None
        self.request_id: str | None = None

    def read(self, reader: Reader) -> Reading[RequestHeader]:
        """Read the header, and return it without its tensors: the engine shall not wait for their bytes."""
        resolved = self._resolved
        layout: Layout[RequestHeader] = Layout(
            resolved.headers.parse,
            long_request_header,
            resolved.header_length,
            allow_headerless=False,
            is_header_only=True,
        )
        header = yield from layout.read(reader)
        self.request_id = header.id
        resolved.check(header)
        for spec, offset in zip(in_memory(header.tensors, len(self._offsets)), self._offsets, strict=True):
            check_inside(spec, offset, range(self._nbytes))
        self.header = header
        return replaced(header, tensors=())


def _read_known(header: RequestHeader, _: Reader) -> Reading[RequestHeader]:
    """Return a header that is known beforehand."""
    yield from ()
    return header
