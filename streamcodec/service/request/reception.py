"""Reception: receives one inference request as arrays, for endpoints outside the service. Sans-IO.

The owner has the head from its framework. It passes the events of `body` to `receive` until that returns the request.
Then it computes whatever it likes, and makes the answer in the form that the request asks for.

Most requests are short, and all of their body is there when it is first asked for. Such a body needs neither a decoder
nor a `FedBody`, if its tensors are plain ones (`receive_whole`). What is not, or breaks a rule, goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.events import EndOfMessage, HeaderReceived, TensorReceived
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place
from streamcodec.engine.message import Values
from streamcodec.engine.record import record
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.fields import header_form_of
from streamcodec.formats.v2.header.parsing import parse_request_header
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.formats.v2.whole import CHECKED_KINDS, copied_arrays
from streamcodec.http.bodies.fed import FedBody
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.service.answers import NO_ANSWER, Answers, EndpointAnswers
from streamcodec.service.memory.sizes import bytes_beside, bytes_of_objects, bytes_placed, bytes_taken
from streamcodec.service.models.model import Inputs
from streamcodec.service.replies import Reply

_WHOLE_BYTES: Final = 68 << 10
"""A body up to this size is received at once, if all of it is there: a tensor of 64 KiB and its JSON header."""

_LITTLE_TEXT_BYTES: Final = 4 << 10
"""A longer JSON header is read in turns, and so not at once."""

Check = Callable[[RequestHeader], None]
"""Called when the JSON header has arrived, before memory is taken. If it raises, the request is refused."""


@record()
class ReceivedRequest:
    """A complete inference request."""

    header: RequestHeader
    """The content of the JSON header: id, parameters, inputs, and requested outputs."""
    inputs: Mapping[str, np.ndarray[Any, Any]]
    """By name; writable, in C order. BYTES are arrays of `bytes`, which are made when they are first asked for."""
    media_type: str | None
    """The media type of the request, if it gives the header's length; the answer then has the same."""
    hold: object = None
    """Keeps the memory of the request reserved as long as this record exists."""

    def holding(self, hold: object) -> ReceivedRequest:
        """Return this request, which keeps something until it is deleted."""
        return ReceivedRequest(header=self.header, inputs=self.inputs, media_type=self.media_type, hold=hold)

    def reply(self, outputs: Mapping[str, Values], *, model_name: str, model_version: str | None = None) -> Reply:
        """Make the answer: the requested outputs, each as binary data or JSON as the request asks.

        Args:
            outputs: by name; outputs that are not requested are ignored.
            model_name: as the answer names it.
            model_version: left out if None.

        Raises:
            RemoteProtocolError: `model-mismatch`: a requested output is missing in `outputs`.
            LocalProtocolError: an output cannot be sent in this protocol.
        """
        if self.media_type is None and type(model_name) is str and type(model_version) in _VERSIONS:
            return _answers_of(model_name, model_version).reply(outputs, self.header, NO_ANSWER)[0]
        return EndpointAnswers(model_name, model_version, self.media_type).reply(outputs, self.header)


_VERSIONS: Final = (str, NoneType)


@lru_cache(maxsize=64)
def _answers_of(model_name: str, model_version: str | None) -> Answers:
    """Return what writes the usual answers of an endpoint; names are chosen by its program."""
    return Answers(EndpointAnswers(model_name, model_version), model_name, model_version)


class Reception:
    """Receives one request: at once (`receive_whole`), or by the events of a body (`begin`, `receive`).

    Attributes:
        place: chooses the memory of a tensor.
    """

    _header: RequestHeader | None = None
    _decoder: Decoder[RequestHeader]

    def __init__(
        self,
        head: RequestHead,
        *,
        place: Place,
        limits: Limits = DEFAULT_LIMITS,
        check: Check | None = None,
        is_decoded: bool = False,
        paced: bool = False,
    ) -> None:
        """Begin before the first byte of the body; for the arguments see `request_decoder` and `FedBody`.

        Raises:
            RemoteProtocolError: the request can be refused by its head alone.
        """
        self._header_length, self._media_type = header_form_of(head.fields)
        self._body_length = head.body_length
        self._head = head
        self._limits = limits
        self._check = check
        self._is_decoded = is_decoded
        self._paced = paced
        self.place: Place = place

    def begin(self) -> FedBody:
        """Return what takes the bytes of the body, and returns its events."""
        self._inputs: dict[str, np.ndarray[Any, Any] | Elements] = {}
        self._decoder = request_decoder(
            header_length=self._header_length,
            body_length=self._body_length,
            allow_headerless=True,
            limits=self._limits,
            check=self._check,
            place=self.place,
            pause_after_header=True,
            paced=self._paced,
        )
        return FedBody(self._head, self._decoder, self._limits, is_decoded=self._is_decoded, paced=self._paced)

    @property
    def whole_bytes(self) -> int | None:
        """Bytes of the body, if its head allows to receive it at once; None if it has to be received by its events."""
        length, nbytes, limits = self._header_length, self._body_length, self._limits
        if not length or nbytes is None or length > _LITTLE_TEXT_BYTES:
            return None
        most = min(_WHOLE_BYTES, limits.max_message_bytes)
        return nbytes if length <= nbytes <= most and length <= limits.max_header_bytes else None

    def receive_whole(self, body: bytes, hold: object) -> ReceivedRequest | None:
        """Receive a body of `whole_bytes` at once, in new memory.

        Args:
            body: all of it.
            hold: see `ReceivedRequest`.

        Returns:
            The request. None if its tensors are not plain ones, or if it breaks a rule: the other way says which. Then
            nothing has been done, and `check` was not called.
        """
        end = self._header_length or 0
        try:
            header = parse_request_header(body[:end], self._limits)
        except (MessageError, MemoryError):
            return None
        for spec in header.tensors:
            if spec.data is not None or spec.datatype.kind in CHECKED_KINDS:
                return None
            end += spec.nbytes
        if end != len(body):
            return None
        if self._check is not None:
            self._check(header)
        inputs = copied_arrays(header.tensors, memoryview(body))
        return ReceivedRequest(header=header, inputs=inputs, media_type=self._media_type, hold=hold)

    @property
    def has_header(self) -> bool:
        """Whether the JSON header has arrived."""
        return self._header is not None

    @property
    def least_bytes(self) -> int:
        """The least memory that the request takes, as far as its head tells."""
        return self._body_length or self._header_length or 0

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of memory that the request takes. Before the JSON header has arrived, those that it may take itself.

        It counts the decompressed body and what is made from it, wherever tensors are placed; None if that is unknown.
        """
        if self._header is None:
            return self._body_length if self._header_length is None else self._header_length
        tensors = self._header.tensors
        known = self._body_length
        body_length = self._decoder.offset + bytes_placed(tensors, None) if known is None else known
        return body_length + sum(map(bytes_beside, tensors)) + bytes_of_objects(tensors)

    @property
    def taken_bytes(self) -> int:
        """How much memory the request takes now, whatever it has announced."""
        tensors = None if self._header is None else self._header.tensors
        return bytes_taken(self._decoder.offset, self._decoder.held_bytes, tensors)

    @property
    def held_bytes(self) -> int:
        """How many of the `memory_bytes` are in use when the JSON header has arrived."""
        tensors = () if self._header is None else self._header.tensors
        return self._decoder.offset + sum(bytes_beside(spec) for spec in tensors if not spec.is_binary)

    def receive(self, event: HttpEvent) -> ReceivedRequest | None:
        """Take an event of the body; return the request after its last event.

        Raises:
            LocalProtocolError: a tensor was placed in windows, which are events of the body and not arrays.
        """
        if isinstance(event, EndOfMessage):
            header = cast("RequestHeader", self._header)
            return ReceivedRequest(header=header, inputs=Inputs(self._inputs), media_type=self._media_type)
        if isinstance(event, HeaderReceived):
            self._header = cast("RequestHeader", event.header)
        elif isinstance(event, TensorReceived):
            self._inputs[event.spec.name] = event.values
        else:
            msg = "a request is received as whole tensors; use request_decoder() for windows"
            raise LocalProtocolError(msg)
        return None
