"""ClientExchange: one call to a V2 server: what is sent, and what the answer means. Sans-IO; shared by both clients.

A client sends what `start` returns. It passes every event of the connection to `receive` until the exchange
`has_ended`, and then asks for the result. To keep the arrays for the result, it passes the returned events to `keep`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streamcodec.client.documents import MAX_QUICK_BYTES, DocumentT, read_document
from streamcodec.client.errors import Headers, ServerError
from streamcodec.client.fields import Field
from streamcodec.client.lane.tensors import Lane, LaneCall
from streamcodec.client.uploads.rest import UploadRest
from streamcodec.engine.arguments import check_kind
from streamcodec.engine.compression.inflate import checked_encoding
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    MessageError,
    RemoteProtocolError,
)
from streamcodec.engine.events import EndOfMessage, HeaderReceived, TensorReceived, WindowReceived
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.placement import Into, Place, Placement, new_array
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Part
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.compressing import compress_message
from streamcodec.formats.v2.decoder import response_decoder
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.fields import header_form, header_length_of
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import parse_response_header
from streamcodec.formats.v2.lane import TENSOR_FIELD
from streamcodec.formats.v2.model import Event, ResponseHeader
from streamcodec.formats.v2.whole import read_whole
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.client import ClientConnection, PlainHead, WholeResponse
from streamcodec.http.connection import Incoming
from streamcodec.http.heads.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.requests import RequestForm

_MAX_ERROR_TEXT = 500
_TENSOR_NAME = TENSOR_FIELD.lower().encode()
_SUCCESS: Final = range(200, 300)
_FAILURE: Final = range(500, 600)
_NOT_UNDERSTOOD: Final = frozenset({400, 415, 422, 500})
"""How servers have been seen to refuse a request whose tensors they take for JSON."""
_NOT_FOUND: Final = 404
_READ_ONLY: Final = {"GET", "HEAD"}
_SHOWN_OUTPUTS: Final = 8
_KINDS: Final[dict[type, str]] = {dict: "object", list: "array"}
_tensor_received: Final = constructor(TensorReceived)
Values = np.ndarray[Any, Any] | Elements
"""Of one output."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InferResult:
    """The answer to an inference request."""

    tensors: Mapping[str, TensorReceived]
    """The outputs by name, in the order of the answer, as they were received."""
    header: ResponseHeader
    """The rest of the answer: model, version, id, parameters."""

    @property
    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Writable arrays by name, in the order of the answer; you own them. BYTES are object arrays of `bytes`."""
        return {name: tensor.array for name, tensor in self.tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return the output with that name."""
        return self.tensors[name].array

    def __contains__(self, name: object) -> bool:
        """Tell whether there is an output with that name."""
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the outputs, as a mapping does."""
        return iter(self.tensors)  # without this method, Python would ask for the outputs 0, 1, ...

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self.tensors)

    def __repr__(self) -> str:
        """Say in three lines which model has answered what, without the values."""
        specs = [tensor.spec for tensor in self.tensors.values()]
        shown = [f"{spec.name} {spec.datatype.name} {[*spec.shape]}" for spec in specs[:_SHOWN_OUTPUTS]]
        if len(specs) > len(shown):
            shown.append(f"and {len(specs) - len(shown)} more")
        header = self.header
        return (
            f"InferResult(model {header.model_name!r}, version {header.model_version!r}, id {header.id!r},\n"
            f"  outputs {', '.join(shown) or 'none'},\n"
            f"  parameters {dict(header.parameters)!r})"
        )

    def elements(self, name: str) -> Elements:
        """Return an output of BYTES without an object for each element.

        Raises:
            LocalProtocolError: the output is of another datatype.
        """
        return self.tensors[name].elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """How inference requests are compressed, and how their answers may be compressed."""

    request: str | None = None
    """One of `ENCODINGS`; None for plain bodies."""
    response: str | None = None
    """One of `ENCODINGS`, which the server may use; None to ask for plain bodies."""

    def __post_init__(self) -> None:
        """Refuse unknown encodings.

        Raises:
            LocalProtocolError: one of the two is not in `ENCODINGS`.
        """
        for encoding in (self.request, self.response):
            if encoding is not None:
                checked_encoding(encoding)


class Placing:
    """Chooses the memory for the outputs.

    Attributes:
        is_usual: whether all of them get new arrays.
    """

    def __init__(self, out: Mapping[str, np.ndarray[Any, Any]] | None = None, place: Place | None = None) -> None:
        """Receive outputs into the arrays of `out`, and place the others with `place`.

        Raises:
            LocalProtocolError: they are something else.
        """
        if out is not None:
            check_kind(out, Mapping, "out are arrays by the names of outputs, as {'y': array}")
        if place is not None:
            check_kind(place, Callable, "place is a function from a TensorSpec to a placement, as new_array")
        self._out = out or {}
        self._others = place or new_array
        self.is_usual: bool = not self._out and self._others is new_array

    def place(self, spec: TensorSpec) -> Placement:
        """Choose the memory for one output."""
        array = self._out.get(spec.name)
        return self._others(spec) if array is None else Into(array)

    @property
    def place_elsewhere(self) -> Place | None:
        """The placement of outputs that are in shared memory; None if they may stay there."""
        return None if self.is_usual else self.place

    def check(self, header: ResponseHeader) -> None:
        """Refuse an answer that would not fill an array of `out`.

        Raises:
            LocalProtocolError: an output of `out` is missing, or is BYTES, which cannot be received into an array.
        """
        if not self._out:
            return
        placed = {spec.name for spec in header.tensors if not spec.datatype.is_bytes}
        if missing := [name for name in self._out if name not in placed]:
            raise LocalProtocolError(f"the answer has no output {missing[0]!r} that can be received into an array")


_PLAIN: Final = Compression()
_USUAL: Final = Placing()


class ClientExchange:
    """One request and its response.

    Attributes:
        has_ended: whether the whole response has been received.
        status: of the response; None before it.
        on_answer: called with the status when the response begins, if somebody wants to know.
        uses_lane: whether tensors are put into the memory lane of the connection, if it has one. Decide before `start`.
        is_idempotent: whether the caller says that the server may run the request twice.
    """

    def __init__(
        self,
        method: str,
        target: str,
        fields: Sequence[Field],
        message: EncodedMessage | None,
        limits: Limits,
        *,
        compression: Compression | None = None,
        placing: Placing | None = None,
        media_type: str | None = None,
        rest: UploadRest | None = None,
        form: RequestForm | None = None,
        headers: HeaderCache[ResponseHeader] | None = None,
        body: Sequence[bytes | memoryview] = (),
    ) -> None:
        """Prepare a call.

        Args:
            method: of the request.
            target: of the request.
            fields: without those of the message.
            message: what is sent.
            limits: bound the answer.
            compression: of the request and the answer.
            placing: chooses the memory for the outputs; None for new arrays.
            media_type: of the message; None for the usual one.
            rest: of the message, if only that is sent.
            form: what the head has in common with those of other calls; None if its fields are its own.
            headers: reads the JSON header of the answer.
            body: what is sent in the place of a message; the fields describe it.
        """
        self._method = method
        self._target = target
        self._fields = fields
        self._message = message
        self._limits = limits
        self._compression = compression or _PLAIN
        self._placing = placing or _USUAL
        self._media_type = media_type
        self._rest = rest
        self._form = form
        self._headers = headers
        self._body = body
        self._paced = False
        self._lane: Lane | None = None
        self._lane_call: LaneCall | None = None
        self.on_answer: Callable[[int], object] | None = None
        self.uses_lane = False
        self.is_idempotent = False
        self.forget()

    def forget(self) -> None:
        """Go back to before the first `start`, for another attempt."""
        self._incoming: Incoming | None = None
        self._received_before = 0
        self._head: ResponseHead | None = None
        self._collector: Collector | None = None
        self._header: ResponseHeader | None = None
        self._outputs: dict[str, TensorReceived] = {}
        self.has_ended: bool = False
        self.status: int | None = None

    def compress(self) -> None:
        """Compress the message, if requested and possible; call it before `start`.

        It needs no connection. It takes long for large tensors, so a program with an event loop calls it in a thread.
        """
        if self._message is not None and self._compression.request is not None and self._message.is_compressible:
            self._message = compress_message(self._message, self._compression.request)

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be started again: not if some parts can be made only once, such as a generator's windows.

        Nor if it is the rest of an upload: the server may have a part of that by now, and has to be asked.
        """
        if self._rest is not None:
            return False
        parts = () if self._message is None else self._message.parts
        return not any(isinstance(part, Rows) and isinstance(part.windows, Iterator | AsyncIterator) for part in parts)

    @property
    def may_be_hedged(self) -> bool:
        """Whether it can be made twice at once: not if it has windows of the caller, who makes them for one reader.

        What can be compressed beforehand has none; the text of a large JSON tensor is made for each reader.
        """
        return self._message is None or self._message.is_compressible

    @property
    def may_run_twice(self) -> bool:
        """Whether that does no harm: it changes nothing (RFC 9110, section 9.2.1), or the caller says so."""
        return self.is_idempotent or self._method in _READ_ONLY

    @property
    def has_begun(self) -> bool:
        """Whether something of the request may have been sent."""
        return self._incoming is not None

    @property
    def is_silent(self) -> bool:
        """Whether nothing of an answer has arrived."""
        return self._incoming is None or self._incoming.received == self._received_before

    def start(self, connection: ClientConnection, *, paced: bool = False, lane: Lane | None = None) -> list[Part]:
        """Begin on a connection on which nothing has been received yet; return the parts to send.

        Args:
            connection: without another exchange in progress.
            paced: whether to decode the answer in turns; the connection should then be paced too.
            lane: of the connection.
        """
        self._begin(connection, paced=paced)
        self._lane, self._lane_call = lane, None
        if self._form is not None and self._message is not None and lane is None and not self._message.content_encoding:
            message = self._message
            return connection.send_form(self._form, message.body_length, message.header_length, message.parts)
        fields = [*self._fields]
        parts: Sequence[Part] = self._body
        if self._rest is not None:
            fields += self._rest.fields
            parts = self._rest.parts()
        elif self._message is not None:
            message, media_type = self._message, self._media_type
            if lane is not None and self.uses_lane and (call := lane.begin(message)) is not None:
                self._lane_call, message = call, call.message
                fields += call.fields
            fields += message.headers if media_type is None else message.headers_with(media_type)
            if self._compression.response is not None:
                fields.append(("Accept-Encoding", self._compression.response))
            parts = message.parts
        return connection.send_request(self._method, self._target, fields, parts)

    def _begin(self, connection: ClientConnection, *, paced: bool) -> None:
        self._paced = paced
        self._incoming, self._received_before = connection.incoming, connection.incoming.received

    def receive(self, connection: ClientConnection, event: HttpEvent) -> Event | None:
        """Take an event of the connection; return it if it belongs to a successful answer."""
        match event:
            case ResponseHead():
                self._head, self.status = event, event.status
                if self.on_answer is not None:
                    self.on_answer(event.status)
                self._receive_body(connection, event)
                return None
            case HeaderReceived(header=ResponseHeader() as header):
                self._header = header
                self._placing.check(header)
            case EndOfMessage():
                self._take_from_lane()
                self.has_ended = True
            case _:
                pass
        return event if self.is_success and not isinstance(event, RequestHead | ConnectionClosed) else None

    def take_whole(self, connection: ClientConnection) -> bool:
        """Take the answer, if it has come as a whole and nothing about it is unusual; return whether it was taken.

        If not, nothing has changed, and `receive` takes its events. The result is the same.
        """
        response = connection.whole_response()
        if response is None:
            return False
        if self._message is None or response.head.status not in _SUCCESS:
            self._collector = self._new_collector(response.head.status)
            if len(response.body) > self._collector.max_bytes:
                return False
            self._collector.feed(response.body)
            self._head = response.described
        elif self._lane_call is not None or not self._placing.is_usual:
            return False
        else:
            found = self._read_whole(response)
            if found is None:
                return False
            self._header, values = found
            for spec in self._header.tensors:
                self._outputs[spec.name] = _tensor_received(spec=spec, values=values[spec.name])
        self.status = response.head.status
        if self.on_answer is not None:
            self.on_answer(self.status)
        connection.take_whole(response)
        self.has_ended = True
        return True

    def _read_whole(self, response: WholeResponse) -> tuple[ResponseHeader, Mapping[str, Values]] | None:
        try:
            length = header_length_in(response.head)
        except MessageError:  # which `receive` will raise
            return None
        headers = self._headers
        parse = parse_response_header if headers is None else headers.parse
        return read_whole(parse, length, response.body, self._limits)

    def keep(self, event: Event) -> None:
        """Keep a tensor for the result.

        Raises:
            LocalProtocolError: it is a window, which cannot be kept.
        """
        match event:
            case TensorReceived(spec=spec):
                self._outputs[spec.name] = event
            case WindowReceived(spec=spec):
                raise LocalProtocolError(f"output {spec.name!r} comes in windows; only stream() can deliver them")
            case _:
                pass

    @property
    def is_answered(self) -> bool:
        """Whether the connection can be used again. After a status of 5xx, some servers close it without notice."""
        return self.has_ended and self.status not in _FAILURE

    def field(self, name: bytes) -> str | None:
        """Return a field of the answer that is there once; `name` is in lower case."""
        values = [] if self._head is None else self._head.fields.values(name)
        return values[0].decode("latin-1") if len(values) == 1 else None

    @property
    def is_success(self) -> bool:
        """Whether the answer has a status of 2xx."""
        return self.status in _SUCCESS

    @property
    def is_binary(self) -> bool:
        """Whether tensors are sent as bytes."""
        return self._message is not None and self._message.header_length is not None

    def is_not_understood(self, error: ServerError) -> bool:
        """Whether a server may answer like this that does not read bytes: with an error that has no text of V2's.

        Args:
            error: of this exchange, or of one like it that was made beside it.
        """
        return self.is_binary and error.status in _NOT_UNDERSTOOD and not error.is_v2

    def infer_result(self) -> InferResult:
        """Return the answer to an inference request.

        Raises:
            LocalProtocolError: the exchange has not ended.
        """
        if self._header is None:
            raise LocalProtocolError("the exchange has not ended")
        return InferResult(tensors=self._outputs, header=self._header)

    @property
    def is_quick(self) -> bool:
        """Whether `document` is quick enough for an event loop."""
        return self._collector is None or len(self._collector.data) <= MAX_QUICK_BYTES

    def document(self, kind: type[DocumentT], *, in_thread: bool = False) -> DocumentT:
        """Return the JSON document of the answer.

        Args:
            kind: `dict` for an object, `list` for an array.
            in_thread: whether other threads should be able to run meanwhile; it then takes twenty times as long.

        Raises:
            LimitExceededError: the document is larger than `max_document_bytes`.
            RemoteProtocolError: the answer is not JSON of that kind.
        """
        if self._collector is not None and self._collector.offset > len(self._collector.data):
            most = self._limits.max_document_bytes
            msg = f"the document has {self._collector.offset} bytes, {most} are allowed"
            raise LimitExceededError(msg, limit="max_document_bytes", offset=most)
        document = read_document(self._text(), kind, in_thread=in_thread)
        if document is None:
            raise RemoteProtocolError(f"the answer is not a JSON {_KINDS[kind]}", code=ErrorCode.INVALID_JSON)
        return document

    def _receive_body(self, connection: ClientConnection, head: ResponseHead) -> None:
        try:
            connection.receive_body(self._receiver(head))
        except MessageError as error:
            if self.is_success:
                raise
            # The failure of the request matters more than that its text cannot be read.
            raise self._error(head, f"no text that can be read: {error.message}") from None

    def _receiver(self, head: ResponseHead) -> Receiver:
        if self._message is not None and head.status in _SUCCESS and not self._is_in_lane(head):
            return response_decoder(
                header_length=header_length_of(head.fields),
                body_length=head.body_length,
                limits=self._limits,
                place=self._placing.place,
                headers=self._headers,
                paced=self._paced,
            )
        if self._is_in_lane(head):
            most = self._limits.max_header_bytes
            self._collector = Collector(most, max_dropped_bytes=0)
            return self._collector
        self._collector = self._new_collector(head.status)
        return self._collector

    def _new_collector(self, status: int) -> Collector:
        most = self._limits.max_document_bytes if status in _SUCCESS else MAX_QUICK_BYTES
        return Collector(most, max_dropped_bytes=self._limits.max_drain_bytes)

    def _is_in_lane(self, head: ResponseHead) -> bool:
        """Whether the tensors of the answer are in shared memory."""
        return self._lane_call is not None and head.status in _SUCCESS and bool(head.fields.values(_TENSOR_NAME))

    def _take_from_lane(self) -> None:
        """Take the outputs from shared memory, if they are there.

        Raises:
            RemoteProtocolError: the answer breaks a rule.
        """
        call, head, collector, lane = self._lane_call, self._head, self._collector, self._lane
        self._lane_call = None
        if call is None or head is None or lane is None:
            return
        if self.is_success:
            lane.answered()
        if collector is None or not self.is_success:
            return
        self._header, self._outputs = call.finish(
            bytes(collector.data), head.fields.values(_TENSOR_NAME), self._limits, self._placing.place_elsewhere
        )
        self._placing.check(self._header)

    def check_status(self) -> None:
        """Raise the server's answer if it is an error.

        Raises:
            ServerError: with the server's text.
        """
        if self._head is not None and self._head.status not in _SUCCESS:
            raise self._refused(self._head)

    def refusal(self, error: Exception | None = None) -> ServerError | None:
        """Return the server's answer as an error, if it is one, as far as it has arrived.

        Args:
            error: the error that ended the answer early, as in `receive`. A refusal of the server matters more.
        """
        if isinstance(error, ServerError):
            return error
        if self._head is None or self._head.status in _SUCCESS:
            return None
        return self._refused(self._head)

    def _refused(self, head: ResponseHead) -> ServerError:
        text = self._text()
        member = _v2_text(text)
        error = self._error(head, (text if member is None else member)[:_MAX_ERROR_TEXT] or "no further text")
        error.is_v2 = member is not None
        return error

    def _error(self, head: ResponseHead, text: str) -> ServerError:
        error = ServerError(head.status, text, Headers(head.fields.items))
        if head.status == _NOT_FOUND and "/v2/v2" in self._target:
            error.add_note("the URL of the server ends in /v2, which every path begins with: leave it off")
        return error

    def _text(self) -> str:
        return "" if self._collector is None else self._collector.data.decode("utf-8", "replace")


def header_length_in(head: PlainHead) -> int | None:
    """Return the length of the JSON header that the head of an answer declares; it is read once for each head.

    Raises:
        RemoteProtocolError: `invalid-header-length`.
    """
    if head.form is None:
        head.form = header_form(head.header_lengths, head.media_types)
    return head.form[0]


def _v2_text(text: str) -> str | None:
    """Return the `error` member of an answer; None if there is none."""
    error = (read_document(text, dict) or {}).get("error")
    return error if isinstance(error, str) else None
