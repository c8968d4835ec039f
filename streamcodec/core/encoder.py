"""The encoder: tensors to a message, as a list of buffers that are never joined.

A message is one `bytes` object with the JSON header and one view per binary tensor: for C-contiguous little-endian
arrays the array's own memory, so encoding costs the same for 64 bytes and for 64 gigabytes. Whoever sends gives the
list to `sendmsg`. The header is padded with spaces to a multiple of 64 bytes, which is legal JSON and puts the first
tensor on an aligned place for every receiver.

The lengths are known before the first byte is sent, also for tensors that will one day be given as an iterator of
windows: shape and datatype are declared, so the plan needs no data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcodec.core.datatypes import datatype_of, to_wire
from streamcodec.core.elements import PREFIX_BYTES, encode_elements
from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.framing import HEADER_LENGTH_FIELD
from streamcodec.core.jsondata import NonFiniteOutput, dump_json, encode_data
from streamcodec.core.model import RequestedOutput
from streamcodec.core.placement import ALIGNMENT, byte_view


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A tensor to be written."""

    name: str
    """Unique within its message."""
    array: np.ndarray[Any, Any]
    """The values; its dtype says the datatype. Copied only if it is not C-contiguous and little-endian."""
    is_binary: bool = True
    """Whether the values go behind the header, or into it as JSON."""
    parameters: Mapping[str, Any] | None = None
    """`parameters` of the tensor, besides `binary_data_size`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedMessage:
    """A message ready to be sent."""

    buffers: tuple[bytes | memoryview, ...]
    """The body in order: the JSON header, then the binary tensors. Views share the arrays' memory. Or all of it,
    compressed."""
    header_length: int | None
    """Value of `Inference-Header-Content-Length`; None if there is no binary tensor, 0 of a raw binary request."""
    body_length: int
    """Sum of the buffers' lengths."""
    content_encoding: str | None = None
    """Value of `Content-Encoding`; None for a body that is not compressed."""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """HTTP fields that belong to the body: its type, its lengths and how it is compressed."""
        fields = [("Content-Type", "application/json" if self.header_length is None else "application/octet-stream")]
        if self.header_length is not None:
            fields.append((HEADER_LENGTH_FIELD, str(self.header_length)))
        if self.content_encoding is not None:
            fields.append(("Content-Encoding", self.content_encoding))
        return [*fields, ("Content-Length", str(self.body_length))]


def encode_request(
    inputs: Iterable[Tensor],
    *,
    outputs: Sequence[RequestedOutput] | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> EncodedMessage:
    """Encode an inference request.

    Args:
        inputs: the tensors, in order.
        outputs: the outputs wanted; None for all that the model has.
        request_id: to be echoed in the response.
        parameters: of the request; `binary_data_output: True` asks for all outputs in binary.

    Raises:
        LocalProtocolError: an array, name or parameter has no form in the protocol.
    """
    members: dict[str, Any] = {} if request_id is None else {"id": request_id}
    if parameters:
        members["parameters"] = _checked(parameters, "binary_data_output")
    if outputs is not None:
        names: set[str] = set()
        members["outputs"] = [_output_entry(output, names) for output in outputs]
    return _encode(members, "inputs", inputs, NonFiniteOutput.LITERAL)


def encode_raw_request(array: np.ndarray[Any, Any]) -> EncodedMessage:
    """Encode a raw binary request: one tensor's bytes, and nothing that says what they are.

    Specification, "Raw Binary Request": `Inference-Header-Content-Length` is 0, the model has exactly one input, and
    the server deduces its shape from the model's metadata and the length of the body.

    Args:
        array: the input; BYTES of one element, which is the whole body, without its length.

    Raises:
        LocalProtocolError: BYTES of no or several elements, or a dtype that has no form in the protocol.
    """
    if not datatype_of(array.dtype).is_bytes:
        body: bytes | memoryview = byte_view(to_wire(array))
    elif array.size == 1:
        body = encode_elements(array)[PREFIX_BYTES:]
    else:
        msg = f"a raw binary request holds one BYTES element, not {array.size}"
        raise LocalProtocolError(msg)
    return EncodedMessage(buffers=(body,) if body else (), header_length=0, body_length=len(body))


def encode_response(
    outputs: Iterable[Tensor],
    *,
    model_name: str,
    model_version: str | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL,
) -> EncodedMessage:
    """Encode an inference response.

    Args:
        outputs: the tensors, in order.
        model_name: always written, since KServe's client cannot do without it.
        model_version: of the model that answers.
        request_id: of the request that is answered.
        parameters: of the response.
        nonfinite: how NaN and the infinities are written in JSON tensors.

    Raises:
        NotRepresentableError: a JSON tensor holds what JSON cannot say.
        LocalProtocolError: an array, name or parameter has no form in the protocol.
    """
    members: dict[str, Any] = {"model_name": model_name}
    if model_version is not None:
        members["model_version"] = model_version
    if request_id is not None:
        members["id"] = request_id
    if parameters:
        members["parameters"] = _checked(parameters)
    return _encode(members, "outputs", outputs, nonfinite)


def _encode(members: dict[str, Any], key: str, tensors: Iterable[Tensor], nonfinite: NonFiniteOutput) -> EncodedMessage:
    entries: list[dict[str, Any]] = []
    views: list[bytes | memoryview] = []
    names: set[str] = set()
    for tensor in tensors:
        _add_name(tensor.name, names)
        entry, view = _encode_tensor(tensor, nonfinite)
        entries.append(entry)
        if view is not None:
            views.append(view)
    members[key] = entries
    header = _dump_header(members)
    if not views:
        return EncodedMessage(buffers=(header,), header_length=None, body_length=len(header))
    header += b" " * (-len(header) % ALIGNMENT)
    buffers = (header, *(view for view in views if view))
    return EncodedMessage(buffers=buffers, header_length=len(header), body_length=sum(map(len, buffers)))


def _encode_tensor(tensor: Tensor, nonfinite: NonFiniteOutput) -> tuple[dict[str, Any], bytes | memoryview | None]:
    array = tensor.array
    datatype = datatype_of(array.dtype)
    entry: dict[str, Any] = {"name": tensor.name, "shape": list(array.shape), "datatype": datatype.name}
    parameters = _checked(tensor.parameters) if tensor.parameters else {}
    parameters.pop("binary_data_size", None)  # as in the parameters of a tensor that was received: ours to say
    view: bytes | memoryview | None = None
    if tensor.is_binary:
        view = encode_elements(array) if datatype.is_bytes else byte_view(to_wire(array))
        parameters["binary_data_size"] = len(view)
    if parameters:
        entry["parameters"] = parameters
    if view is None:
        entry["data"] = encode_data(array, datatype, nonfinite)
    return entry, view


def _output_entry(output: RequestedOutput, names: set[str]) -> dict[str, Any]:
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
    """Copy parameters if they have a form in JSON; `flag` names the one that the protocol wants to be a boolean."""
    if flag is not None and not isinstance(parameters.get(flag, False), bool):
        msg = f"the parameter {flag} is a bool, not {parameters[flag]!r}"
        raise LocalProtocolError(msg)
    if not all(type(name) is str for name in parameters):
        msg = "names of parameters are str"
        raise LocalProtocolError(msg)
    if not _PLAIN.issuperset(map(type, parameters.values())):
        try:
            json.dumps(dict(parameters), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"a parameter has no form in JSON: {error}"
            raise LocalProtocolError(msg) from None
    return dict(parameters)


_PLAIN = frozenset({str, int, bool})


def _dump_header(members: dict[str, Any]) -> bytes:
    try:
        return dump_json(members)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the header cannot be written as JSON: {error}"
        raise LocalProtocolError(msg) from None
