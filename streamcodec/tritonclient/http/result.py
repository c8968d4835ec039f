"""Result: the answer to a request, from its bytes to documents, errors and arrays.

The JSON header of an inference answer is read as leniently as tritonclient reads it, and kept as it came: with unknown
members, outputs in shared memory, and values in JSON, which become an array when they are asked for. What says where
bytes are is checked before they are received: names, datatypes, shapes and sizes of binary outputs, and that they fill
the body. The engine receives them straight into their arrays.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, cast

import numpy as np

from streamcodec.client.exchange import header_length_in
from streamcodec.engine.cache import Cache
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.events import EndOfMessage, Event, HeaderReceived, TensorReceived
from streamcodec.engine.format import format_decoder
from streamcodec.engine.limits import Limits
from streamcodec.engine.reader import Reader, Reading
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.formats.v2.header.tensors import TensorReader
from streamcodec.formats.v2.whole import MAX_HEADER_BYTES, read_whole
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.client import WholeResponse
from streamcodec.http.heads.messages import Fields, ResponseHead
from streamcodec.tritonclient.utils import Array, InferenceServerException, triton_to_np_dtype

LIMITS: Final = Limits(max_header_bytes=1 << 30)
"""For all answers. Values in JSON have no other limit, as in tritonclient."""

_OK: Final = 200
_LONG_BYTES: Final = 16 << 10
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_tensor_received: Final = constructor(TensorReceived)


_KNOWN: Final[Cache[bytes, tuple[TensorSpec, ...]]] = Cache(256, MAX_HEADER_BYTES)
"""The binary outputs of valid headers, by their exact bytes. Nobody can change them."""


@dataclass(slots=True)
class _Header:
    """The JSON header of an inference answer."""

    document: Callable[[], dict[str, Any]]
    """Returns it as it came."""
    tensors: tuple[TensorSpec, ...]
    """The binary outputs."""


class Answer:
    """What a server answers to one request.

    Attributes:
        status: of the answer.
    """

    status: int

    def __init__(self, *, has_tensors: bool) -> None:
        """Begin before the answer; say whether a successful one is an inference answer."""
        self._has_tensors = has_tensors
        self._fields: Fields | bytes = b""
        self._collector: Collector | None = None
        self._header: _Header | None = None
        self._tensors: dict[str, TensorReceived] = {}

    def receive(self, head: ResponseHead, is_paced: bool) -> Receiver:
        """Return the receiver of the body."""
        self.status, self._fields = head.status, head.fields
        if self._has_tensors and self.is_success and (length := header_length_of(head.fields)) is not None:
            return _decoder(length, head.body_length, is_paced=is_paced)
        self._collector = Collector(LIMITS.max_header_bytes, max_dropped_bytes=0)
        return self._collector

    def take_whole(self, response: WholeResponse) -> bool:
        """Take an answer that has come as a whole, or return False to have it received."""
        self.status, self._fields = response.head.status, response.head.text
        length: int | None = None
        if self._has_tensors and self.is_success:
            try:
                length = header_length_in(response.head)
            except MessageError:  # which `receive` will raise
                return False
        if length is None:
            if len(response.body) > _LONG_BYTES:
                return False
            self._collector = Collector(LIMITS.max_header_bytes, max_dropped_bytes=0)
            self._collector.feed(response.body)
            return True
        found = read_whole(_known_header, length, response.body, LIMITS)
        if found is None:
            return False
        self._header, values = found
        for spec in self._header.tensors:
            self._tensors[spec.name] = _tensor_received(spec=spec, values=values[spec.name])
        return True

    def take(self, events: Iterable[Event]) -> Self:
        """Take what the receiver reports."""
        for event in events:
            if isinstance(event, TensorReceived):
                self._tensors[event.spec.name] = event
            elif isinstance(event, HeaderReceived):
                self._header = event.header
        return self

    def take_body(self, body: bytes, header_length: int | None) -> Self:
        """Take a body that is in memory already."""
        decoder = None if header_length is None else _decoder(header_length, len(body), is_paced=False)
        receiver = decoder or Collector(len(body))
        receiver.feed(body)
        receiver.receive_eof()
        self._collector = None if isinstance(receiver, Decoder) else receiver
        while not isinstance(event := receiver.next_event(), EndOfMessage):
            self.take([cast("Event", event)])  # no turn is needed, and no more data
        return self

    @property
    def fields(self) -> Fields:
        """The fields."""
        return Fields.of_accepted(self._fields) if isinstance(self._fields, bytes) else self._fields

    @property
    def is_success(self) -> bool:
        """Whether the status is 200, as tritonclient wants it."""
        return self.status == _OK

    @property
    def text(self) -> bytes:
        """The body; of an inference answer with binary outputs, nothing."""
        return b"" if self._collector is None else bytes(self._collector.data)

    @property
    def is_document(self) -> bool:
        """Whether it is JSON as a whole, which nobody has read yet."""
        return self._header is None

    @property
    def is_long(self) -> bool:
        """Whether to read it takes too long for an event loop."""
        return self._collector is not None and len(self._collector.data) > _LONG_BYTES

    def document(self) -> dict[str, Any]:
        """Return the JSON of the answer; of an inference answer, its header.

        Raises:
            InferenceServerException: the status is not 200.
            RemoteProtocolError: it is not JSON.
        """
        return _parsed(self.text) if self._header is None else self._header.document()

    def tensor(self, name: str) -> Array | None:
        """Return a binary output; None if there is none of that name."""
        found = self._tensors.get(name)
        return None if found is None else found.array

    def check(self) -> None:
        """Raise the server's refusal, if it is one.

        Raises:
            InferenceServerException: the status is not 200.
        """
        if not self.is_success:
            raise refusal(self.status, self.text)


def refusal(status: int, text: bytes) -> InferenceServerException:
    """Return the error for an answer that refuses a request."""
    body: str | None = None
    try:
        body = text.decode()
        document = json.loads(body) if body else {"error": "client received an empty response from the server."}
        return InferenceServerException(msg=document["error"], status=str(status))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        message = f"an exception occurred in the client while decoding the response: {error}\nresponse: {body}"
        return InferenceServerException(msg=message, status=str(status), debug_details=body)


class InferResult:
    """The outputs of an inference request. All arrays are writable and the caller's own. The name is tritonclient's."""

    def __init__(self, response: Answer, verbose: bool) -> None:
        """Keep an answer; say whether to print its JSON.

        Raises:
            RemoteProtocolError: it is not JSON.
        """
        self._answer = response
        self._response: dict[str, Any] | None = None
        if response.is_document:
            self.get_response()
        if verbose:
            print(self.get_response())

    @classmethod
    def from_response_body(
        cls,
        response_body: bytes,
        verbose: bool = False,
        header_length: int | str | None = None,
        content_encoding: str | None = None,
    ) -> Self:
        """Read the body of an answer that was received elsewhere.

        Args:
            response_body: all of it.
            verbose: whether to print its JSON.
            header_length: bytes of its JSON header; None if there is nothing else.
            content_encoding: `gzip` or `deflate` if the body is compressed.

        Raises:
            InferenceServerException: the body breaks the protocol, or cannot be decompressed.
        """
        length = None if header_length is None else int(header_length)
        try:
            if content_encoding in {"gzip", "deflate"}:
                response_body = zlib.decompress(response_body, wbits=_GZIP_OR_ZLIB)
            return cls(Answer(has_tensors=True).take_body(response_body, length), verbose)
        except (MessageError, zlib.error) as error:
            raise InferenceServerException(msg=str(error)) from None

    def as_numpy(self, name: str) -> Any:  # noqa: ANN401 - programs that use the array at once should pass type checks
        """Return an output; None if there is none of that name.

        An output that came as bytes is the same array each time. BYTES are objects: `bytes`, or `str` from JSON.

        Raises:
            KeyError: its values are in shared memory.
        """
        array = self._answer.tensor(name)
        if array is not None:
            return array
        output = self.get_output(name)
        if output is None:
            return None
        return np.array(output["data"], dtype=triton_to_np_dtype(output["datatype"])).reshape(output["shape"])

    def get_output(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return the entry of an output in the JSON header; None if there is none of that name."""
        return next((output for output in self.get_response().get("outputs") or () if output["name"] == name), None)

    def get_response(self) -> dict[str, Any]:
        """Return the JSON header, the same object each time. It is read when it is wanted: most want arrays."""
        if self._response is None:
            self._response = self._answer.document()
        return self._response


def _decoder(header_length: int, body_length: int | None, *, is_paced: bool) -> Decoder[_Header]:
    return format_decoder(partial(_read_header, header_length), length=body_length, limits=LIMITS, paced=is_paced)


def _read_header(length: int, reader: Reader) -> Reading[_Header]:
    """Read the JSON header, which comes before the binary outputs."""
    text = yield from reader.read(length)
    if length > _LONG_BYTES:
        yield from reader.turn()
    return _parse_header(text, reader.limits)


def _known_header(text: bytes, limits: Limits) -> _Header:
    """Return a short JSON header, which may have come before; errors are those of `_parse_header`."""
    tensors = _KNOWN.get(text)
    if tensors is None:
        tensors = _parse_header(text, limits).tensors
        _KNOWN.put(text, tensors)
    return _Header(partial(_parsed, text), tensors)


def _parse_header(text: bytes | memoryview, limits: Limits) -> _Header:
    """Return a JSON header.

    Raises:
        RemoteProtocolError: it is not JSON, or says wrong things about binary outputs.
    """
    root = _parsed(text)
    outputs = root.get("outputs") or ()
    binary = [output for output in outputs if _is_binary(output)]
    reading = TensorReader("outputs", start=len(text), limits=limits, is_tolerant=True)
    return _Header(lambda: root, reading.read_all({"outputs": binary}) if binary else ())


def _is_binary(output: Any) -> bool:  # noqa: ANN401 - any JSON value
    parameters = output.get("parameters") if isinstance(output, dict) else None
    return isinstance(parameters, dict) and parameters.get("binary_data_size") is not None


def _parsed(text: bytes | memoryview) -> dict[str, Any]:
    """Return a JSON document of any kind; most are objects.

    Raises:
        RemoteProtocolError: it is not JSON.
    """
    try:
        document: dict[str, Any] = json.loads(str(text, "utf-8"))
    except UnicodeDecodeError as error:
        message = "Failed to encode using UTF-8. Please use binary_data=True, if you want to pass a byte array."
        raise RemoteProtocolError(f"{message} UnicodeError: {error}", code=ErrorCode.INVALID_UTF8) from None
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"it is not JSON: {error}", code=ErrorCode.INVALID_JSON) from None
    return document
