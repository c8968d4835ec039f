"""The encoder: tensors to a message, as a list of buffers that are never joined.

A message is one `bytes` object with the JSON header and one view per binary tensor: for C-contiguous little-endian
arrays the array's own memory, so encoding costs the same for 64 bytes and for 64 gigabytes. The sender passes the list
to `sendmsg`. The header is padded with spaces to a multiple of 64 bytes. This is legal JSON, and the first tensor is
aligned for every receiver.

The lengths are known before the first byte is sent. This holds for tensors that are given as `Rows` (an iterable of
windows), too: their shape and datatype are declared. The bytes of such a part are made when it is its turn. The text of
a large JSON tensor is made like that, too: for the rest of the library it is `Rows` of bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from streamcodec.engine.arguments import MAPPINGS, check_kind
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.payloads import encode_payloads
from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.errors import LocalProtocolError, kind_of, shown
from streamcodec.engine.memory.placement import ALIGNMENT, byte_view
from streamcodec.engine.memory.rows import Rows, collect
from streamcodec.engine.message import (
    Encodable,
    Part,
    binary_form,
    buffers_from,
    buffers_of,
    datatype_of_values,
)
from streamcodec.engine.record import constructor, record
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD, HEADER_SIZE_PARAMETER, checked_media_type
from streamcodec.formats.v2.json.output import NonFiniteOutput, to_json
from streamcodec.formats.v2.json.values import LargeValues, json_values
from streamcodec.formats.v2.model import PLAIN_TYPES, RequestedOutput


@record()
class Tensor:
    """A tensor to be written."""

    name: str
    """Unique within its message."""
    array: Encodable
    """The values. The dtype of an array determines the datatype. An array is copied only if it is not C-contiguous and
    little-endian. `Rows` come window by window while the message is sent."""
    is_binary: bool = True
    """Whether the values are written in binary after the header, or as JSON within it. For JSON, `Rows` are first
    collected in memory."""
    parameters: Mapping[str, Any] | None = None
    """`parameters` of the tensor, besides `binary_data_size`."""


@record()
class EncodedMessage:
    """A message ready to be sent."""

    parts: tuple[bytes | memoryview | Rows, ...]
    """The body in order: the JSON header, then the binary tensors; never empty bytes. Views share the arrays' memory.
    The header is one part, or several parts with the values of large JSON tensors between them, as `Rows` of bytes.
    The arrays must not change until they are sent. A compressed message has the compressed bytes here."""
    header_length: int | None
    """Value of `Inference-Header-Content-Length`; None if there is no binary tensor, 0 for a raw binary request."""
    body_length: int
    """Bytes of all parts together, including parts that are not made yet."""
    content_encoding: str | None = None
    """Value of `Content-Encoding`; None for a body that is not compressed."""

    @property
    def is_streamed(self) -> bool:
        """Whether a part of the body will be made while it is sent."""
        return Rows in map(type, self.parts)

    @property
    def is_compressible(self) -> bool:
        """Whether it may be compressed before it is sent: its streamed parts can be made more than once."""
        return all(isinstance(part.windows, LargeValues) for part in self.parts if isinstance(part, Rows))

    @property
    def buffers(self) -> Iterable[bytes | memoryview]:
        """The body in order, as bytes that are never empty. They are the same objects as in `parts`.

        If the message is streamed, a view is valid until the next one is requested, so that windows may share their
        memory. A second iteration needs windows that can be iterated again. Asynchronous senders use the `parts`, with
        a `RowWriter` for each `Rows`.

        Raises:
            LocalProtocolError: while iterating, if windows are not as declared. Then the bytes sent so far are not the
                beginning of a valid message, and the connection must be closed. Before the first buffer, if windows
                are asynchronous.
        """
        return buffers_of(self.parts)

    def buffers_from(self, offset: int) -> Iterator[bytes | memoryview]:
        """Return the body from a byte on, for a receiver that has all bytes before it; nothing is copied.

        Windows of `Rows` are made again, and those before the offset are dropped. They have to be the same.

        Args:
            offset: where the receiver's next byte belongs: the `offset` of its decoder.

        Raises:
            LocalProtocolError: the body has no such place. While iterating, as for `buffers`.
        """
        return buffers_from(self.parts, self.body_length, offset)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """HTTP fields for the body: its type, its lengths and its compression."""
        fields = [("Content-Type", "application/json" if self.header_length is None else "application/octet-stream")]
        if self.header_length is not None:
            fields.append((HEADER_LENGTH_FIELD, str(self.header_length)))
        if self.content_encoding is not None:
            fields.append(("Content-Encoding", self.content_encoding))
        return [*fields, ("Content-Length", str(self.body_length))]

    def headers_with(self, media_type: str) -> list[tuple[str, str]]:
        """Return the same fields, with the length of the JSON header as a parameter of the media type.

        Args:
            media_type: `SAGEMAKER_MEDIA_TYPE` or `VERTEX_AI_MEDIA_TYPE`, whose gateways do not forward custom fields.

        Returns:
            The fields; the same as `headers` if there is no binary tensor.

        Raises:
            LocalProtocolError: another media type.

        Example:
            >>> import numpy as np
            >>> from streamcodec import SAGEMAKER_MEDIA_TYPE
            >>> message = encode_request({"x": np.zeros((2, 3), np.float32)})
            >>> message.headers_with(SAGEMAKER_MEDIA_TYPE)[0][1]
            'application/vnd.sagemaker-triton.binary+json;json-header-size=128'
        """
        checked_media_type(media_type)
        if self.header_length is None:
            return self.headers
        value = f"{media_type};{HEADER_SIZE_PARAMETER}={self.header_length}"
        replaced = {"Content-Type", HEADER_LENGTH_FIELD}
        return [("Content-Type", value), *(field for field in self.headers if field[0] not in replaced)]


_encoded_message: Final = constructor(EncodedMessage)

Tensors = Mapping[str, Encodable] | Iterable[Tensor]
"""Tensors to be written, or arrays by their names, all of which are written in binary."""


def encode_request(
    inputs: Tensors,
    *,
    outputs: Sequence[RequestedOutput] | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> EncodedMessage:
    """Encode an inference request.

    Args:
        inputs: the tensors, in order; or arrays by name, for tensors that are all binary.
        outputs: the requested outputs; None for all outputs of the model.
        request_id: to be echoed in the response.
        parameters: of the request; `binary_data_output: True` asks for all outputs in binary.

    Raises:
        LocalProtocolError: an array, name or parameter has no form in the protocol. For an array, the message names
            the tensor.

    Example:
        >>> import numpy as np
        >>> encode_request({"x": np.zeros((2, 3), np.float32)}).body_length
        152
    """
    members: list[str] = []
    if request_id is not None:
        check_kind(request_id, str, _ID)
        members.append(f'"id":{_json(request_id)},')
    if parameters:
        members.append(f'"parameters":{_json_object(_checked(parameters, "binary_data_output"))},')
    if outputs is not None:
        names: set[str] = set()
        check_kind(outputs, Iterable, _OUTPUTS)
        members.append(f'"outputs":{_json([_output_entry(output, names) for output in outputs])},')
    return _encode(members, "inputs", inputs)


def encode_raw_request(array: Encodable) -> EncodedMessage:
    """Encode a raw binary request: the bytes of one tensor, without a header.

    Specification, "Raw Binary Request": `Inference-Header-Content-Length` is 0, the model has exactly one input, and
    the server deduces its shape from the model's metadata and the length of the body.

    Args:
        array: the input. BYTES must have one element, which is the whole body, without its length prefix.

    Raises:
        LocalProtocolError: BYTES of no or several elements, or a dtype that has no form in the protocol.
    """
    datatype = datatype_of_values(array)
    part: Part
    if isinstance(array, Rows) or not datatype.is_bytes:
        part, nbytes = binary_form(array, datatype)
    elif math.prod(array.shape) == 1:
        wire = byte_view(array.data) if isinstance(array, Elements) else encode_payloads(array)
        part = wire[PREFIX_BYTES:]
        nbytes = len(part)
    else:
        msg = f"a raw binary request holds one BYTES element, not {math.prod(array.shape)}"
        raise LocalProtocolError(msg)
    return EncodedMessage(parts=(part,) if nbytes else (), header_length=0, body_length=nbytes)


def encode_response(
    outputs: Tensors,
    *,
    model_name: str,
    model_version: str | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL,
) -> EncodedMessage:
    """Encode an inference response.

    Args:
        outputs: as the `inputs` of a request.
        model_name: always written, because KServe's client needs it.
        model_version: of the model that answers.
        request_id: of the request that is answered.
        parameters: of the response.
        nonfinite: how NaN and the infinities are written in JSON tensors.

    Raises:
        NotRepresentableError: a JSON tensor has a datatype or value without a JSON form.
        LocalProtocolError: an array, name or parameter has no form in the protocol. For an array, the message names
            the tensor.
    """
    members = [f'"model_name":{_json(model_name)},']
    if model_version is not None:
        members.append(f'"model_version":{_json(model_version)},')
    if request_id is not None:
        check_kind(request_id, str, _ID)
        members.append(f'"id":{_json(request_id)},')
    if parameters:
        members.append(f'"parameters":{_json_object(_checked(parameters))},')
    return _encode(members, "outputs", outputs, nonfinite)


def _encode(
    members: list[str], key: str, tensors: Tensors, nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL
) -> EncodedMessage:
    """Write the header, with `members` (each with its comma) before the tensors, and append the binary parts.

    The JSON is built by hand. For a usual tensor, only the name has to be escaped.
    """
    text = ["{", *members, f'"{key}":[']
    separator = ""
    header: list[Part] = []  # the finished beginning of the header, with values that are made while they are sent
    parts: list[Part] = []
    has_binary, written, nbytes = False, 0, 0
    names: set[str] = set()
    for tensor in tensors if isinstance(tensors, _SEQUENCES) else _listed(tensors):
        if not isinstance(tensor, Tensor):
            raise _no_tensor(tensor)
        array = tensor.array
        _add_name(tensor.name, names)
        try:
            datatype = datatype_of_values(array)
            shape = str([*array.shape]).replace(" ", "")
            start = f'{separator}{{"name":{encode_basestring(tensor.name)},"shape":{shape},"datatype":"{datatype.name}"'
            if tensor.is_binary:
                part, size = binary_form(array, datatype)
                has_binary, nbytes = True, nbytes + size
                if size:
                    parts.append(part)
                if tensor.parameters:
                    text.append(f"{start}{_parameters(tensor, size)}}}")
                else:
                    text.append(f'{start},"parameters":{{"binary_data_size":{size}}}}}')
            else:
                data = json_values(collect(array) if isinstance(array, Rows) else array, datatype, nonfinite)
                text += (start, _parameters(tensor), ',"data":')
                if isinstance(data, Rows):
                    before = _to_utf8(text)
                    header += (before, data)
                    written += len(before) + data.nbytes
                    data = "]"
                text += (data, "}")
        except LocalProtocolError as error:
            raise type(error)(f"tensor {shown(tensor.name)}: {error}") from None
        separator = ","
    text.append("]}")
    rest = _to_utf8(text)
    if not has_binary:
        return _encoded_message(parts=(*header, rest), header_length=None, body_length=written + len(rest))
    rest += b" " * (-(written + len(rest)) % ALIGNMENT)
    length = written + len(rest)
    return _encoded_message(parts=(*header, rest, *parts), header_length=length, body_length=length + nbytes)


def _parameters(tensor: Tensor, size: int | None = None) -> str:
    """Return the text of a tensor's parameters, if it has any. A received `binary_data_size` is replaced."""
    parameters = _checked(tensor.parameters or {})
    parameters.pop("binary_data_size", None)
    if size is not None:
        parameters["binary_data_size"] = size
    return f',"parameters":{_json(parameters)}' if parameters else ""


_OUTPUTS: Final = "outputs are RequestedOutput objects, as [RequestedOutput(name='y')]"
_ID: Final = "an id is a str, as '7'"
_PARAMETERS: Final = "parameters are a mapping of names to values"

_SEQUENCES = (list, tuple)
"""The usual types for tensors. For these, the slow check for a mapping is not needed."""


def _listed(tensors: Tensors) -> Iterable[Tensor]:
    if isinstance(tensors, Mapping):
        return [Tensor(name=name, array=array) for name, array in tensors.items()]
    if not isinstance(tensors, Iterable):
        raise _no_tensor(tensors)
    return tensors


def _no_tensor(value: object) -> LocalProtocolError:
    return LocalProtocolError(f"tensors are given as Tensor objects, or as arrays by name, not as {kind_of(value)}")


def _output_entry(output: RequestedOutput, names: set[str]) -> dict[str, Any]:
    check_kind(output, RequestedOutput, _OUTPUTS)
    _add_name(output.name, names)
    parameters = _checked(output.parameters, "binary_data")
    if output.binary_data is not None:
        parameters["binary_data"] = output.binary_data
    return {"name": output.name, "parameters": parameters} if parameters else {"name": output.name}


def _add_name(name: str, names: set[str]) -> None:
    if type(name) is not str or not name or name in names:
        msg = f"names are str, unique in a message and not empty, unlike {name!r}"
        raise LocalProtocolError(msg)
    names.add(name)


def _checked(parameters: Mapping[str, Any], flag: str | None = None) -> dict[str, Any]:
    """Check that parameters have a form in JSON, and copy them. The parameter `flag` must be a boolean or null."""
    check_kind(parameters, MAPPINGS, _PARAMETERS)
    if flag is not None and type(parameters.get(flag)) not in _FLAGS:
        msg = f"the parameter {flag} is a bool, not {parameters[flag]!r}"
        raise LocalProtocolError(msg)
    if not _NAMES.issuperset(map(type, parameters)):
        msg = "names of parameters are str"
        raise LocalProtocolError(msg)
    if not PLAIN_TYPES.issuperset(map(type, parameters.values())):
        try:
            json.dumps(dict(parameters), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"a parameter has no form in JSON: {error}"
            raise LocalProtocolError(msg) from None
    return dict(parameters)


_NAMES = frozenset({str})
_FLAGS = frozenset({bool, type(None)})


_TRUTH: Final = {True: "true", False: "false"}


def _json_object(parameters: Mapping[str, Any]) -> str:
    """Return the text of parameters that have been checked: of the usual types, in a third of the encoder's time."""
    members: list[str] = []
    for name, value in parameters.items():
        if type(value) is bool:
            text = _TRUTH[value]
        elif type(value) is str:
            text = encode_basestring(value)
        else:
            return _json(parameters)
        members.append(f"{encode_basestring(name)}:{text}")
    return f"{{{','.join(members)}}}"


def _json(value: object) -> str:
    if type(value) is str:  # as nearly always, and in a third of the time
        return encode_basestring(value)
    try:
        return to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_json(error) from None


def _to_utf8(text: list[str]) -> bytes:
    whole = "".join(text)
    text.clear()  # JSON values may be long, so avoid a third copy in memory
    try:
        return whole.encode()
    except UnicodeEncodeError as error:
        raise _no_json(error) from None


def _no_json(error: Exception) -> LocalProtocolError:
    return LocalProtocolError(f"the header cannot be written as JSON: {error}")
