"""Inference: one inference request from its head to its reply. Sans-IO.

A `ResolvedHead` holds what the head decides. It is the same for every request with the same head, and may be cached.
Each request with that head is an `Inference`. The owner sends the body to its `decoder`, and passes the decoder's
events to `receive`. When the message has ended, the owner calls `run`, which calls the model. So `run` belongs in a
worker thread, unless it `is_inline`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, cast

import numpy as np

from streamcodec.engine.datatypes import datatype_of, is_big_endian
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import (
    LocalProtocolError,
    MessageError,
    NotRepresentableError,
    OutOfMemoryError,
    shown,
)
from streamcodec.engine.events import HeaderReceived, TensorReceived
from streamcodec.engine.memory.placement import Place, Placement
from streamcodec.engine.memory.rows import Rows, WindowIterable
from streamcodec.engine.message import Encodable, Values
from streamcodec.engine.record import constructor, replaced
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.compressing import compress_message
from streamcodec.formats.v2.decoder import raw_request_decoder, request_decoder
from streamcodec.formats.v2.encoder import EncodedMessage, Tensor, encode_response
from streamcodec.formats.v2.fields import header_form_of
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.json.output import NonFiniteOutput
from streamcodec.formats.v2.lane import TENSOR_FIELD
from streamcodec.formats.v2.model import RequestedOutput, RequestHeader
from streamcodec.http.bodies.known import KnownBody
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.service.batches.blocks import Seat
from streamcodec.service.batches.keys import key_of
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.memory.sizes import bytes_beside, bytes_of_objects, bytes_placed, bytes_taken
from streamcodec.service.models.classification import check_classes, classify_outputs
from streamcodec.service.models.model import InferenceRequest, Inputs, Model, Outputs, Sent, ValueT, no_such_output
from streamcodec.service.models.quickness import Quickness
from streamcodec.service.negotiation import accepted_encoding, check_extensions
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, drop_tracebacks, error_reply, failure_reply, message_reply
from streamcodec.service.request.planned import planned_body, whole_body
from streamcodec.service.request.raw import Deduce, raw_tensor
from streamcodec.service.request.windows import Pull, windows_of

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Inputs of a model, by name."""

_MANY_TENSORS: Final = 1000
"""So many are freed in one piece, which takes 0.4 ms."""

MAX_INLINE_BYTES: Final = 68 << 10
"""A tensor of 64 KiB and its JSON header. The work on larger tensors may take long for an event loop."""

_WHOLE_BYTES: Final = 64 << 10
"""A body up to this size is reserved as a whole: a client that announces it without sending it does little harm."""

_MIN_COMPRESSED_BYTES: Final = 1 << 10
"""A smaller answer fits into one packet anyway."""


_AS_THEY_ARE: Final = (Rows, Elements)
"""Values that are encoded as they are. A tuple: a union would be made anew by each call that uses it."""

_tensor: Final = constructor(Tensor)

_TENSOR_NAME: Final = TENSOR_FIELD.lower().encode()


class ResolvedHead:
    """What the head of an inference request decides. It holds for every request with the same head."""

    def __init__(
        self,
        model: Model,
        head: RequestHead,
        *,
        version: str | None,
        headers: HeaderCache[RequestHeader],
        place: Place,
        is_planned: bool = True,
        nonfinite: NonFiniteOutput,
        allow_headerless: bool = False,
        compresses: bool = False,
        classifies: bool = False,
    ) -> None:
        """Prepare for requests; for the arguments see `Service`.

        Raises:
            RemoteProtocolError: the request can be refused by its head alone.
        """
        self.model = model
        self.version: str = model.versions[-1] if version is None else version
        self.head = head
        self.header_length: int | None
        self.media_type: str | None
        self.header_length, self.media_type = header_form_of(head.fields)
        self.raw: TensorSpec | Deduce | None = raw_tensor(model, head) if self.header_length == 0 else None
        self.body_length: int | None = self.raw.nbytes if isinstance(self.raw, TensorSpec) else head.body_length
        self.is_gathered: bool = self.raw is not None and self.body_length is None
        self.is_known: bool = self.body_length is not None and model.windows is None
        is_short = (self.body_length or 0) <= _WHOLE_BYTES or self.raw is not None
        self.is_whole: bool = self.is_known and is_short
        self.headers = headers
        self.nonfinite = nonfinite
        self.allow_headerless = allow_headerless
        self.classifies = classifies
        self.key: tuple[int, str, str | None] = (id(model), self.version, self.media_type)
        self.place: Place = place if (windows := model.windows) is None else lambda _: windows
        self.encoding: str | None = accepted_encoding(head.fields.values(b"accept-encoding")) if compresses else None
        self.in_memory: bool = bool(head.fields.values(_TENSOR_NAME))
        self.is_placed_here: bool = is_planned
        self.is_planned: bool = is_planned and self.encoding is None and not self.in_memory
        self.is_async: bool = model.is_async
        self.is_awaited: bool = model.is_async or model.batch is not None
        is_plain = self.encoding is None and model.windows is None and not self.is_awaited and not self.in_memory
        # Whether a whole short request may be answered on an event loop, now or later.
        self.may_be_inline: bool = is_plain and model.is_inline is not False
        self._max_declared_bytes = MAX_INLINE_BYTES if model.is_inline else -1

    def is_inline(self, nbytes: int, *, is_planned: bool = False) -> bool:
        """Whether a request of `nbytes` bytes can be answered now, and quickly enough for an event loop.

        Compressing is never quick enough. A larger request must be planned: its tensors are neither JSON nor BYTES nor
        BOOL, whose work grows with the size.
        """
        if not self.may_be_inline or (nbytes > MAX_INLINE_BYTES and not is_planned):
            return False
        is_quick = nbytes <= self._max_declared_bytes or self.model.quickness.may_run_inline(nbytes)
        return is_quick and (self.model.ready is None or self.model.is_ready)

    def judge(self, nbytes: int) -> Quickness | None:
        """Return what judges a call with so many bytes; None if it does not matter how long that takes."""
        return self.model.quickness if self.may_be_inline and nbytes > self._max_declared_bytes else None

    def begin(self, *, pause_after_header: bool = False, paced: bool = False, place: Place | None = None) -> Inference:
        """Begin a request; for the arguments see `Service.begin`; `place` is for tensors of this request alone."""
        return Inference(self, pause_after_header=pause_after_header, paced=paced, place=place)

    def check(self, header: RequestHeader) -> None:
        """Refuse a request that does not fit the model.

        Raises:
            RemoteProtocolError: `model-mismatch`, `not-offered`, or another error in what the request asks for.
        """
        check_extensions(header, classifies=self.classifies)
        self.model.check(header)
        if self.classifies:
            check_classes(self.model, header)

    def inputs(self, values: Mapping[str, np.ndarray[Any, Any] | Elements]) -> Arrays:
        """Return what was sent by name, of which some may be BYTES, as the model's callable gets it."""
        return Inputs(self.sent(values), has_objects=not self.model.takes_elements)

    def sent(self, values: Mapping[str, ValueT]) -> Mapping[str, ValueT]:
        """Return what was sent by name, as the model's callable gets it."""
        return Sent(values) if self.model.inputs is None else values

    def request(self, header: RequestHeader, inputs: Arrays, rows: Mapping[str, Rows]) -> InferenceRequest:
        """Return the argument of the model's callable."""
        name = self.model.name
        return InferenceRequest(inputs=inputs, rows=rows, header=header, model_name=name, model_version=self.version)

    def call(
        self, request: InferenceRequest, reply: Callable[[Outputs, RequestHeader], Reply], watch: CallWatch | None
    ) -> Reply:
        """Call the model, and make a reply from its outputs; every failure becomes a reply too."""
        try:
            if watch is None:
                outputs = self.model.predict(request)
            else:
                watch.call_begun(request)
                try:
                    outputs = self.model.predict(request)
                finally:
                    watch.call_ended()
            # Nearly always it is a dictionary; checking for other mappings takes time.
            return reply(outputs if isinstance(outputs, dict) else self.checked(outputs), request.header)
        except KeyboardInterrupt:  # may be meant for the program
            raise
        except BaseException as error:  # noqa: BLE001 - a model may raise anything, and must not end the server
            return self.failure(error, request.header.id)

    def checked(self, outputs: object) -> Outputs:
        """Return what the model has returned, if it is a mapping.

        Raises:
            LocalProtocolError: it is something else.
        """
        if not isinstance(outputs, Mapping):
            kind = "nothing (None)" if outputs is None else type(outputs).__name__
            msg = f"model {self.model.name!r} has returned {kind}, not a mapping of its outputs by name"
            raise LocalProtocolError(msg)
        return cast("Outputs", outputs)

    def failure(self, error: BaseException, request_id: str | None) -> Reply:
        """Make the reply for a call that has failed.

        Args:
            error: the exception of the model.
            request_id: of the request, for the server's log.
        """
        if isinstance(error, MemoryError):
            drop_tracebacks(error)  # nobody reads them
            return error_reply(OutOfMemoryError(f"there is no memory for model {self.model.name!r} to answer"))
        with suppress(Exception):  # the model's own class may have a text that fails
            if isinstance(error, MessageError):
                return error_reply(error)
            if isinstance(error, NotRepresentableError):
                return failure_reply(str(error), status=400)
        text = f"model {self.model.name!r} failed with {type(error).__name__}"  # all else is for the server's log
        reply = failure_reply(text, status=500, cause=error)
        call = f"model {shown(self.model.name)} version {shown(self.version)}"
        return replaced(reply, call=call if request_id is None else f"{call}, request {shown(request_id)}")

    def is_quick(self, outputs: Outputs, header: RequestHeader) -> bool:
        """Whether `reply` is quick enough for an event loop with these outputs.

        Outputs that are sent unchanged take no time, however large they are. Outputs that are written as JSON,
        classified, joined or compressed take time that grows with their size.
        """
        if self.encoding is not None:
            return False
        forms = {output.name: header.wants_binary(output) for output in header.outputs or ()}
        default = header.wants_binary(None)
        nbytes = 0
        for name, value in outputs.items():
            values = as_values(value)
            if forms.get(name, default) and not self.classifies:
                if not isinstance(values, np.ndarray):  # its binary form exists already, or is made while it is sent
                    continue
                if values.flags.c_contiguous and not (values.dtype.hasobject or is_big_endian(values.dtype)):
                    continue
            nbytes += values.nbytes
            if isinstance(values, np.ndarray) and values.dtype.hasobject and values.nbytes <= MAX_INLINE_BYTES:
                nbytes += sum(len(each) for each in values.flat if isinstance(each, bytes | str))
        return nbytes <= MAX_INLINE_BYTES

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply from a model's outputs."""
        values = {name: as_values(value) for name, value in outputs.items()}
        return message_reply(self.encode(self.select(values, header), header), self.media_type)

    def select(self, arrays: Mapping[str, Encodable], header: RequestHeader) -> list[Tensor]:
        """Return the outputs that were requested, each in its form.

        Raises:
            RemoteProtocolError: `model-mismatch`: a requested output does not exist.
            LocalProtocolError: the outputs differ from those that the model has declared.
        """
        check_outputs(self.model, arrays)
        tensors = select_outputs(arrays, header)
        return classify_outputs(tensors, self.model, header, self.headers.limits) if self.classifies else tensors

    def encode(self, tensors: list[Tensor], header: RequestHeader) -> EncodedMessage:
        """Encode the answer.

        Raises:
            NotRepresentableError: a value has no form in JSON.
            LocalProtocolError: an output cannot be sent in this protocol.
        """
        try:
            message = encode_response(
                tensors,
                model_name=self.model.name,
                model_version=self.version,
                request_id=header.id,
                nonfinite=self.nonfinite,
            )
        except NotRepresentableError:
            raise
        except LocalProtocolError as error:
            msg = f"model {self.model.name!r} has returned an output that cannot be sent: {error}"
            raise LocalProtocolError(msg) from error
        if self.encoding is not None and message.is_compressible and message.body_length >= _MIN_COMPRESSED_BYTES:
            return compress_message(message, self.encoding)
        return message


class KnownCall(Protocol):
    """A call of a model whose JSON header is known before its body. See `Plan`."""

    header: RequestHeader

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply; see `ResolvedHead.reply`."""
        ...


class Inference:
    """One request to one model.

    Attributes:
        resolved: what its head decides.
        arriving: the body: what receives it, or its memory if it is a known one.
        plan: what is known of a body from earlier ones; None if it is an ordinary one.
        watch: is told about the call of the model; None at first.
        seat: of its rows in the block of a batch; None if they have memory of their own.
    """

    seat: Seat | None = None
    _may_have_seat = True

    def __init__(
        self,
        resolved: ResolvedHead,
        *,
        pause_after_header: bool = False,
        paced: bool = False,
        place: Place | None = None,
        plan: KnownCall | None = None,
        body: memoryview | None = None,
        reservation: Reservation | None = None,
    ) -> None:
        """Prepare for the body.

        Args:
            resolved: what the head decides.
            pause_after_header: see `request_decoder`, and `paced`, too.
            paced: as there.
            place: of the tensors of this request alone.
            plan: of a body whose JSON header has arrived.
            body: all of it, if it has arrived and has a plan.
            reservation: of the memory that a body with a plan takes, if it may have a seat.
        """
        self.resolved = resolved
        self.plan: KnownCall | None = plan
        self.watch: CallWatch | None = None
        self._header: RequestHeader | None = None
        self._received: dict[str, np.ndarray[Any, Any] | Elements] = {}
        self._values: Mapping[str, np.ndarray[Any, Any] | Elements]
        self.arriving: Decoder[RequestHeader] | KnownBody
        if plan is None:
            self._check = _Check(resolved)
            self._values = self._received
            pause_after_header = pause_after_header and not resolved.is_whole
            self._may_have_seat = place is None
            place = place or (resolved.place if resolved.model.batch is None else self._check.place)
            self.arriving = _decoder(resolved, self._check, place, pause_after_header=pause_after_header, paced=paced)
            return
        self._header = plan.header
        if body is None:
            if reservation is not None:
                self.take_seat(reservation)
            place = resolved.place if self.seat is None else self.seat.place
            self.arriving, self._values = planned_body(plan.header, resolved.header_length or 0, place)
        else:
            self.arriving, self._values = whole_body(plan.header, body)

    @property
    def decoder(self) -> Decoder[RequestHeader]:
        """The receiver of the body.

        Raises:
            LocalProtocolError: the body is planned, so that it has no receiver.
        """
        if isinstance(self.arriving, KnownBody):
            msg = "a planned body has no decoder: its bytes go to `arriving`"
            raise LocalProtocolError(msg)
        return self.arriving

    @property
    def is_inline(self) -> bool:
        """Whether `run` is quick enough for an event loop."""
        return self.resolved.is_inline(self.arriving.offset, is_planned=self.plan is not None)

    @property
    def header(self) -> RequestHeader | None:
        """The JSON header; None until it has arrived."""
        return self._header

    @property
    def has_header(self) -> bool:
        """Whether the JSON header has arrived."""
        return self._header is not None

    @property
    def request_id(self) -> str | None:
        """The id in the JSON header, even if the model refuses it; None if there is no id, or no header yet."""
        if self.plan is None or self._header is None:
            return self._check.request_id
        return self._header.id

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the request takes, as far as it is known now.

        It is asked when the JSON header has arrived. For a request that `is_whole` it is also asked before the body is
        read. It counts the decompressed body; for a model that takes windows, the JSON header and the windows instead.
        It also counts what is made from the body: the arrays of JSON tensors, and the offsets and objects of BYTES.
        """
        tensors = () if self._header is None else self._header.tensors
        beside = sum(map(bytes_beside, tensors)) + self._object_bytes
        if self.resolved.is_known:
            return (self.resolved.body_length or 0) + beside
        return self.arriving.offset + beside + bytes_placed(tensors, self.resolved.model.windows)

    @property
    def _object_bytes(self) -> int:
        """Bytes of the objects that the model may make of BYTES."""
        if self._header is None or self.resolved.model.takes_elements:
            return 0
        return bytes_of_objects(self._header.tensors)

    @property
    def least_bytes(self) -> int:
        """The least memory that the request takes, as far as its head tells."""
        return (self.resolved.body_length if self.resolved.is_known else self.resolved.header_length) or 0

    @property
    def header_bytes(self) -> int | None:
        """The largest possible size of the JSON header, as far as the head tells; None if it does not.

        A raw request whose length is hidden has no header until all of it has come.
        """
        if self.resolved.is_gathered:
            return None
        length, most = self.resolved.header_length, self.resolved.body_length
        return most if length is None or (most is not None and most < length) else length

    @property
    def taken_bytes(self) -> int:
        """How much memory the request really takes now, whatever it has announced."""
        return bytes_taken(
            self.arriving.offset, self.arriving.held_bytes, None if self._header is None else self._header.tensors
        )

    @property
    def held_bytes(self) -> int:
        """How many of the `memory_bytes` are in use already, or will be in any case because the body is on its way."""
        if self._header is None:
            return 0
        if self.resolved.is_whole:
            return self.memory_bytes - self._object_bytes
        return self.arriving.offset + sum(bytes_beside(spec) for spec in self._header.tensors if not spec.is_binary)

    @property
    def is_windowed(self) -> bool:
        """Whether the model must be called before its inputs have arrived: it pulls them itself."""
        return self._header is not None and self.resolved.model.windows is not None

    def take_seat(self, reservation: Reservation) -> None:
        """Receive the rows into the block of a batch, if that saves their copy; the JSON header has come, and no more.

        Args:
            reservation: of this request, which has its memory.
        """
        resolved, header = self.resolved, self._header
        batch = resolved.model.batch if resolved.is_placed_here and self._may_have_seat else None
        if batch is None or header is None:
            return
        key = key_of(header, resolved.version)
        self.seat = resolved.model.blocks.seat(batch, key, header.tensors, resolved.place, reservation)
        if self.plan is None:
            self._check.seat = self.seat

    def receive(self, event: HttpEvent) -> None:
        """Take an event of the decoder."""
        match event:
            case HeaderReceived(header=RequestHeader() as header):
                self._header = header
            case TensorReceived(spec=spec, values=values):
                self._received[spec.name] = values
            case _:
                pass

    def request(self, windows: Callable[[TensorSpec, RequestHeader], WindowIterable] | None = None) -> InferenceRequest:
        """Return the argument of the model's callable.

        Args:
            windows: returns the windows of an input; needed only for a model that takes windows.

        Raises:
            LocalProtocolError: too little of the message has been received to call the model, or `windows` is missing.
        """
        header = self._header
        if header is None or not (self.arriving.is_complete or self.is_windowed):
            msg = "the model is called after the last event of the decoder, or after the header if it takes windows"
            raise LocalProtocolError(msg)
        if not self.is_windowed:
            return self.resolved.request(header, self.resolved.inputs(self._values), {})
        if windows is None:
            msg = f"model {self.resolved.model.name!r} takes windows, and needs a way to wait for them"
            raise LocalProtocolError(msg)
        rows = {spec.name: Rows(spec.datatype.name, spec.shape, windows(spec, header)) for spec in header.tensors}
        return self.resolved.request(header, {}, self.resolved.sent(rows))

    def run(self, pull: Pull | None = None) -> Reply:
        """Call the model and make the reply. This takes as long as the model, and then as long as the compression.

        Args:
            pull: waits for the next event, for a model that takes windows.

        Raises:
            LocalProtocolError: too little of the message has been received to call the model, or the model is an `async
                def`.
        """
        if self.resolved.is_async:
            msg = "the model is an async def: await streamcodec.server.call_model(inference)"
            raise LocalProtocolError(msg)
        windows = None if pull is None else partial(windows_of, pull=pull)
        return self.resolved.call(self.request(windows), self.reply, self.watch)

    @property
    def is_wide(self) -> bool:
        """Whether so many inputs have come that they are dropped by `let_go`: to free 12,000 at once takes 5 ms.

        The rows of an answer may still pull windows, and other requests may use the same plan; these are kept.
        """
        header, is_ordinary = self._header, self.plan is None and not self.is_windowed
        return is_ordinary and header is not None and len(header.tensors) > _MANY_TENSORS

    def let_go(self) -> Iterator[None]:
        """Drop the inputs, after the last call. Yields after each piece but the last, which goes with the inference."""
        specs = [] if self._header is None else [*self._header.tensors]
        self._header = None
        while len(specs) > _MANY_TENSORS:
            for _ in range(_MANY_TENSORS):
                self._received.pop(specs.pop().name, None)
            yield

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply from the model's outputs."""
        return self.resolved.reply(outputs, header) if self.plan is None else self.plan.reply(outputs, header)


class _Check:
    """Checks the JSON header of one request. The request holds the decoder, and the decoder this: so it holds neither.

    Attributes:
        request_id: of the header that was checked last; None if it has none.
    """

    __slots__ = ("_resolved", "request_id", "seat")

    def __init__(self, resolved: ResolvedHead) -> None:
        """Check by what the head has decided."""
        self._resolved = resolved
        self.seat: Seat | None = None
        self.request_id: str | None = None

    def __call__(self, header: RequestHeader) -> None:
        """Refuse a header that does not fit the model; see `ResolvedHead.check`."""
        self.request_id = header.id
        self._resolved.check(header)

    def place(self, spec: TensorSpec) -> Placement:
        """Place a tensor in the seat of the request, if it has one."""
        return self._resolved.place(spec) if self.seat is None else self.seat.place(spec)


def _decoder(
    resolved: ResolvedHead, check: _Check, place: Place, *, pause_after_header: bool, paced: bool
) -> Decoder[RequestHeader]:
    if resolved.raw is not None:
        return raw_request_decoder(
            resolved.raw,
            limits=resolved.headers.limits,
            check=check,
            place=place,
            pause_after_header=pause_after_header and resolved.is_gathered,
            paced=paced,
        )
    return request_decoder(
        header_length=resolved.header_length,
        body_length=resolved.body_length,
        allow_headerless=resolved.allow_headerless,
        check=check,
        place=place,
        headers=resolved.headers,
        pause_after_header=pause_after_header,
        paced=paced,
    )


def as_values(value: Values) -> Encodable:
    """Return an output in the form that is encoded: everything but `Rows` and `Elements` becomes a numpy array."""
    return value if type(value) is np.ndarray or isinstance(value, _AS_THEY_ARE) else np.asarray(value)


def check_outputs(model: Model, arrays: Mapping[str, Encodable]) -> None:
    """Check the outputs against the model's declaration."""
    for metadata in model.outputs or ():
        array = arrays.get(metadata.name)
        if array is None:
            msg = f"model {model.name!r} has not returned its output {metadata.name!r}"
            raise LocalProtocolError(msg)
        datatype = _datatype_name(array)
        if datatype != metadata.datatype or not metadata.accepts(array.shape):
            found, declared = f"{datatype} {list(array.shape)}", f"{metadata.datatype} {list(metadata.shape)}"
            msg = f"model {model.name!r} has returned {found} for its output {metadata.name!r}, declared {declared}"
            raise LocalProtocolError(msg)


def _datatype_name(array: Encodable) -> str:
    """Return the name of an output's datatype, or of its dtype if there is no such datatype."""
    if not isinstance(array, np.ndarray):
        return array.datatype
    try:
        return datatype_of(array.dtype).name
    except LocalProtocolError:
        return str(array.dtype)


def select_outputs(arrays: Mapping[str, Encodable], header: RequestHeader) -> list[Tensor]:
    """Choose the outputs that were requested, each in its form; an empty list requests all, as with Triton.

    Specification: an explicit `binary_data` wins, else `binary_data_output`, else JSON.
    """
    wanted: list[tuple[str, RequestedOutput | None]]
    if header.outputs:
        wanted = [(output.name, output) for output in header.outputs]
    else:
        wanted = [(name, None) for name in arrays]
    for index, (name, _) in enumerate(wanted):
        if name not in arrays:
            raise no_such_output(name, f"$.outputs[{index}].name")
    return [_tensor(name=name, array=arrays[name], is_binary=header.wants_binary(output)) for name, output in wanted]
