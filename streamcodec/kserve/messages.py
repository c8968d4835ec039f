"""Messages: KServe's requests and responses from arrays, to the wire, and from it.

Messages are written by our encoder, from the memory of the arrays. They say what KServe says, with the same statuses
where something is wrong. They differ where KServe is wrong itself:

- An output is binary if its request asks for that. KServe ignores `binary_data_output` if the request lists outputs,
  and it answers JSON if the model forgets to pass on what was asked.
- A binary answer has `Content-Type` and `Content-Length`.
- An id is left out if nobody has given one. KServe writes `null`, or fails with 500.
- BF16 works, and so do empty binary outputs and binary data in the wrong byte order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from kserve import InferInput, InferOutput, InferRequest, InferResponse
from kserve.errors import InferenceError, InvalidInput
from kserve.protocol.infer_type import RequestedOutput, to_http_parameters
from kserve.utils.utils import generate_uuid

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, kind_of
from streamcodec.engine.events import NEED_DATA, EndOfMessage, HeaderReceived, TensorReceived
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.message import datatype_of_values
from streamcodec.engine.receiving import Buffer
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.decoder import response_decoder
from streamcodec.formats.v2.encoder import EncodedMessage, Tensor, encode_request, encode_response
from streamcodec.formats.v2.json.output import NonFiniteOutput
from streamcodec.formats.v2.model import RequestedOutput as OutputEntry
from streamcodec.formats.v2.model import RequestHeader, ResponseHeader
from streamcodec.kserve.tensors import Received, array_of, has_array, input_of, output_of, values_of
from streamcodec.service.models.model import InferenceRequest


class _ArrayRequest(InferRequest):  # type: ignore[misc]  # KServe has no types
    """A request that KServe's client sends in binary, as our encoder writes it."""

    def to_rest(self) -> tuple[bytes, int | None]:
        """Return the body, and the length of its JSON header. The client wants them joined, which is the only copy."""
        message = encode_infer_request(self)
        return b"".join(message.buffers), message.header_length


def infer_request(
    model_name: str,
    inputs: Mapping[str, npt.ArrayLike | Elements],
    *,
    outputs: Iterable[str] | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> InferRequest:
    """Make a request for KServe's clients, REST and gRPC, from arrays.

    Args:
        model_name: the model.
        inputs: arrays by name; sent in binary, without a copy before that.
        outputs: the names of the outputs that are wanted; None for all of the model.
        request_id: one is made up if it is None, as KServe does.
        parameters: of the request; `binary_data_output` is true if it is missing.

    Raises:
        LocalProtocolError: an input is no tensor of this protocol.
    """
    return _ArrayRequest(
        model_name,
        [_tensor(InferInput, input_of, name, values) for name, values in inputs.items()],
        request_id=request_id or generate_uuid(),
        parameters={"binary_data_output": True, **(parameters or {})},
        request_outputs=None if outputs is None else [RequestedOutput(name, {"binary_data": True}) for name in outputs],
    )


def infer_response(
    request: InferRequest,
    outputs: Mapping[str, npt.ArrayLike | Elements],
    *,
    parameters: Mapping[str, Any] | None = None,
) -> InferResponse:
    """Make the response of a model from arrays, in the form that its request asks for.

    It is KServe's own response: it can be sent over REST and gRPC, by KServe and by this package.

    Args:
        request: what the model was asked.
        outputs: by name; nothing is copied, but for gRPC.
        parameters: of the response.

    Raises:
        LocalProtocolError: an output is no tensor of this protocol.
    """
    tensors = [_tensor(InferOutput, output_of, name, values) for name, values in outputs.items()]
    if request.from_grpc:  # where KServe fails on an output that is an array
        for tensor in tensors:
            tensor.set_data_from_numpy(array_of(values_of(tensor)), binary_data=request.use_binary_outputs)
    return InferResponse(
        request.id or generate_uuid(),
        request.model_name,
        tensors,
        parameters=dict(parameters or {}),
        use_binary_outputs=request.use_binary_outputs,
        requested_outputs=request.request_outputs,
    )


def encode_infer_request(request: InferRequest) -> EncodedMessage:
    """Encode a request for any client; its `headers` and `buffers` are what to send. All inputs are binary.

    Raises:
        InferenceError: an input cannot be sent.
    """
    return _encode(request, [True] * len(request.inputs))


def encode_client_request(request: InferRequest, *, sends_arrays: bool) -> EncodedMessage:
    """Encode a request as KServe's client does: what has been set as bytes is binary, and lists are JSON.

    Args:
        request: of `infer_request`, which is all binary, or of KServe's.
        sends_arrays: whether arrays are binary that nobody has set to be so.

    Raises:
        InvalidInput: an input has no data, or no form in JSON.
        InferenceError: an input cannot be sent.
    """
    if isinstance(request, _ArrayRequest):
        return encode_infer_request(request)
    are_binary = [
        (sends_arrays and has_array(tensor)) or tensor._raw_data is not None  # noqa: SLF001 - KServe has no public access
        for tensor in request.inputs
    ]
    if any(are_binary):
        return _encode(request, are_binary)
    document, _ = request.to_rest()
    text = orjson.dumps(document)
    return EncodedMessage(parts=(text,), header_length=None, body_length=len(text))


def depends_on_server(request: InferRequest) -> bool:
    """Tell whether a request has arrays that nobody has set to be binary: they are sent as the server reads them."""
    return not isinstance(request, _ArrayRequest) and any(map(has_array, request.inputs))


def _encode(request: InferRequest, are_binary: Iterable[bool]) -> EncodedMessage:
    outputs = None
    if request.request_outputs is not None:
        outputs = [
            OutputEntry(name=output.name, binary_data=None, parameters=to_http_parameters(output.parameters or {}))
            for output in request.request_outputs
        ]
    with _as_kserve_says():
        return encode_request(
            [_encodable(tensor, is_binary=each) for tensor, each in zip(request.inputs, are_binary, strict=True)],
            outputs=outputs,
            request_id=request.id or None,
            parameters=to_http_parameters(request.parameters or {}),
        )


def decode_response(
    body: Iterable[Buffer] | Buffer, header_length: int | None, *, limits: Limits = DEFAULT_LIMITS
) -> InferResponse:
    """Decode the body of a response to KServe's `InferResponse`, whose outputs are arrays already.

    Args:
        body: the pieces of the body as they arrive, or all of it.
        header_length: the value of `Inference-Header-Content-Length`; None if the answer has no such field.
        limits: bound what is accepted.

    Raises:
        RemoteProtocolError: it is not a valid response.
    """
    decoder = ResponseDecoder(header_length, limits)
    for piece in [body] if isinstance(body, bytes | bytearray | memoryview) else body:
        decoder.feed(piece)
    return decoder.finish()


class ResponseDecoder:
    """Decodes the body of a response while it arrives; see `decode_response`."""

    def __init__(self, header_length: int | None, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin before the body."""
        self._decoder = response_decoder(header_length=header_length, body_length=None, limits=limits)
        self._header = ResponseHeader(tensors=())
        self._outputs: list[InferOutput] = []
        self._has_ended = False

    def feed(self, piece: Buffer) -> None:
        """Take the next bytes.

        Raises:
            RemoteProtocolError: they do not belong to a valid response.
        """
        taken = self._decoder.feed(piece)
        self._take()
        if taken < memoryview(piece).nbytes:
            msg = f"bytes follow the last tensor, which ends at {self._decoder.offset}"
            raise RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self._decoder.offset)

    def finish(self) -> InferResponse:
        """Return the response.

        Raises:
            RemoteProtocolError: it has not arrived whole.
        """
        self._decoder.receive_eof()
        self._take()
        return InferResponse(
            self._header.id,
            self._header.model_name,
            self._outputs,
            model_version=self._header.model_version,
            parameters=dict(self._header.parameters) or None,
        )

    def _take(self) -> None:
        while not self._has_ended and (event := self._decoder.next_event()) is not NEED_DATA:
            match event:
                case HeaderReceived(header=header):
                    self._header = header
                case TensorReceived(spec=spec, values=values):
                    self._outputs.append(output_of(spec, values))
                case EndOfMessage():
                    self._has_ended = True


def received_request(request: InferenceRequest, model_name: str) -> InferRequest:
    """Return what has arrived as KServe's request."""
    header = request.header
    return InferRequest(
        model_name,
        [input_of(spec, request.values[spec.name]) for spec in header.tensors],
        request_id=header.id,
        parameters=dict(header.parameters) or None,
        request_outputs=None
        if header.outputs is None
        else [RequestedOutput(output.name, dict(output.parameters) or None) for output in header.outputs],
    )


def encode_answer(response: InferResponse, header: RequestHeader) -> EncodedMessage:
    """Encode the response of a model to a request.

    Args:
        response: of the model.
        header: of the request.

    Raises:
        InvalidInput: an output is missing, or has no form in JSON.
        InferenceError: an output cannot be sent.
    """
    asked = {output.name: output.binary_data for output in header.outputs or ()}
    default = header.wants_binary(None) or bool(response._use_binary_outputs)  # noqa: SLF001 - KServe has no public access
    outputs: list[InferOutput] = []
    tensors: list[Tensor] = []
    with _as_kserve_says():
        try:
            for output, wish in _selected(response):
                is_binary = asked.get(output.name) if wish is None else wish
                outputs.append(output)
                tensors.append(_encodable(output, is_binary=default if is_binary is None else is_binary))
        except InvalidInput:  # KServe refuses the first output that cannot be sent: is it one before this?
            before = [Tensor(name=tensor.name, array=tensor.array, is_binary=tensor.is_binary) for tensor in tensors]
            encode_response(before, model_name="", nonfinite=NonFiniteOutput.NULL)
            raise
        if not any(tensor.is_binary for tensor in tensors):
            _check_texts(response)
            if response.id is not None:
                with suppress(ValueError, orjson.JSONEncodeError):  # what is no text: the encoder names the output
                    return _as_kserve_writes(response, outputs)
        return encode_response(
            tensors,
            model_name=response.model_name,
            model_version=response.model_version,
            request_id=response.id,
            parameters=to_http_parameters(response.parameters or {}),
            nonfinite=NonFiniteOutput.NULL,
        )


def _check_texts(response: InferResponse) -> None:
    """Check what KServe's endpoint checks of an answer without binary tensors.

    Raises:
        InferenceError: the id, or the name or version of the model, is no text.
    """
    texts = {"model_name": response.model_name, "model_version": response.model_version, "id": response.id}
    for name, value in texts.items():
        if not isinstance(value, str) and (value is not None or name == "model_name"):
            msg = f"{name} of the response is a str, not {kind_of(value)}"
            raise InferenceError(msg)


def _as_kserve_writes(response: InferResponse, outputs: list[InferOutput]) -> EncodedMessage:
    """Write an answer without binary tensors as KServe's endpoint does.

    A member that is missing is null, and so are NaN and infinity.

    Raises:
        ValueError: bytes of an output are no UTF-8.
        orjson.JSONEncodeError: a text cannot be written as UTF-8, or a parameter has no form in JSON.
    """
    document = {
        "model_name": response.model_name,
        "model_version": response.model_version,
        "id": response.id,
        "parameters": to_http_parameters(response.parameters or {}) or None,
        "outputs": [
            {
                "name": output.name,
                "shape": [*output.shape],
                "datatype": output.datatype,
                "parameters": _without_size(to_http_parameters(output.parameters or {})) or None,
                "data": _as_list(_plain(values_of(output))),
            }
            for output in outputs
        ],
    }
    text = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return EncodedMessage(parts=(text,), header_length=None, body_length=len(text))


def _without_size(parameters: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only a binary tensor has; it may be left from the request."""
    return {name: value for name, value in parameters.items() if name != "binary_data_size"}


def _as_list(values: Received) -> list[Any]:
    flat = (values.array if isinstance(values, Elements) else values).reshape(-1).tolist()
    return [str(value, "utf-8") if isinstance(value, bytes) else value for value in flat]


def _selected(response: InferResponse) -> Iterator[tuple[InferOutput, bool | None]]:
    """Yield the outputs to be sent, and whether the model's response wants each in binary; None if it does not say.

    Raises:
        InvalidInput: an output is missing.
    """
    requested = response._requested_outputs  # noqa: SLF001 - KServe has no public access
    if not requested:
        yield from ((output, None) for output in response.outputs)
        return
    for entry in requested:
        if (output := response.get_output_by_name(entry.name)) is None:
            msg = f"Unexpected inference output {entry.name!r} for model {response.model_name!r}"
            raise InvalidInput(msg)
        yield output, entry.binary_data


def _encodable(tensor: InferInput | InferOutput, *, is_binary: bool) -> Tensor:
    """Return a tensor for our encoder, if it is what it says.

    Raises:
        InvalidInput: it has no values, or is FP16 or BF16 and wanted as JSON.
        InferenceError: its array has another datatype or shape.
    """
    values = _plain(values_of(tensor))
    if not is_binary and tensor.datatype in DATATYPES and not DATATYPES[tensor.datatype].has_json:
        kind = "input" if isinstance(tensor, InferInput) else "output"
        msg = (
            f"Sending {tensor.datatype} data via JSON is not supported. "
            f"Please use the binary data format for {kind} {tensor.name}"
        )
        raise InvalidInput(msg)
    with _as_kserve_says():
        found = datatype_of_values(values).name
    if found != tensor.datatype or [*values.shape] != [*tensor.shape]:
        said, is_there = f"{tensor.datatype} {[*tensor.shape]}", f"{found} {[*values.shape]}"
        msg = f"tensor {tensor.name!r} should be {said}, and its array is {is_there}"
        raise InferenceError(msg)
    return Tensor(
        name=tensor.name,
        array=values,
        is_binary=is_binary,
        parameters=to_http_parameters(tensor.parameters or {}),
    )


def _plain(values: Received) -> Received:
    """Make text of the objects that KServe makes text of: everything but `bytes`, and points in time."""
    if isinstance(values, Elements) or values.dtype.kind not in "OM":
        return values
    objects = values.astype(object)
    flat = objects.reshape(-1).tolist()
    if {bytes, str}.issuperset(map(type, flat)):
        return objects
    texts = np.empty(len(flat), object)
    texts[:] = [value if isinstance(value, bytes) else str(value) for value in flat]
    return texts.reshape(objects.shape)


def _tensor(
    kind: type[Any], of: Callable[[TensorSpec, Elements], Any], name: str, values: npt.ArrayLike | Elements
) -> Any:  # noqa: ANN401 - KServe's
    """Make a tensor of KServe's that holds an array.

    Raises:
        LocalProtocolError: the array is no tensor of this protocol.
    """
    if isinstance(values, Elements):
        datatype = DATATYPES[values.datatype]
        return of(TensorSpec(name=name, datatype=datatype, shape=values.shape, nbytes=values.nbytes), values)
    array = np.asarray(values)
    return kind(name, [*array.shape], datatype_of_values(array).name, data=array)


@contextmanager
def _as_kserve_says() -> Iterator[None]:
    """Raise what KServe raises where an output cannot be sent."""
    try:
        yield
    except LocalProtocolError as error:
        raise InferenceError(str(error)) from None
