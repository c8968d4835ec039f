"""KServe's codec and `streamcodec.kserve` side by side, as a program like `kserve_script.py`.

Each act comes twice: once done by KServe's code, once by ours. Both work on KServe's own classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kserve import InferInput, InferOutput, InferRequest, InferResponse
from kserve.protocol.infer_type import RequestedOutput, orjson
from kserve.protocol.rest.v2_datamodels import InferenceResponse

from streamcodec import DATATYPES, EncodedMessage, EndOfMessage, HeaderReceived, RequestHeader, request_decoder
from streamcodec.kserve import arrays_of, decode_response, encode_infer_request
from streamcodec.kserve.messages import encode_answer, received_request
from streamcodec.service import InferenceRequest
from tests.interop.round_trip.kserve_script import main
from tests.interop.round_trip.plain import Array, Members, PlainMessage, PlainTensor, plain_tensor


def their_request(question: Members) -> InferRequest:
    body = bytes.fromhex(question["body"])
    return InferRequest.from_bytes(body, _json_length(question, body), "m")


def our_request(question: Members) -> InferRequest:
    request, header = received(question)
    given = InferenceRequest(inputs=request, header=header, model_name="m", model_version="1")
    return received_request(given, "m")


def received(question: Members) -> tuple[dict[str, Array], RequestHeader]:
    """Decode as the middleware does."""
    body = bytes.fromhex(question["body"])
    decoder = request_decoder(header_length=_json_length(question, body), body_length=len(body))
    decoder.feed(body)
    decoder.receive_eof()
    arrays: dict[str, Array] = {}
    header = None
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, HeaderReceived):
            header = event.header
        else:
            arrays[event.spec.name] = event.array  # type: ignore[union-attr]  # whole tensors
    assert isinstance(header, RequestHeader)
    return arrays, header


def look(request: InferRequest) -> Members:
    """Say all that a model can see of a request."""
    return {
        "id": request.id,
        "model_name": request.model_name,
        "parameters": request.parameters or {},
        "use_binary_outputs": request.use_binary_outputs,
        "from_grpc": request.from_grpc,
        "request_outputs": None
        if request.request_outputs is None
        else [[output.name, output.parameters or {}, output.binary_data] for output in request.request_outputs],
        "inputs": [_look_at(tensor) for tensor in request.inputs],
    }


def _look_at(tensor: InferInput) -> Members:
    array = tensor.as_numpy()
    kinds = {type(value).__name__ for value in array.reshape(-1).tolist()}
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "datatype": tensor.datatype,
        "parameters": tensor.parameters or {},
        "data": repr(tensor.data),
        "kinds": sorted(kinds),
        "dtype": array.dtype.str,
        "array": _plain(tensor, array).elements,
        "writeable": array.flags.writeable,
    }


def answered(question: Members) -> tuple[InferResponse, RequestHeader]:
    """Have a model answer: it holds its outputs in one of three ways, and passes on what was asked, or forgets it."""
    message = PlainMessage.from_members(question["message"])
    arrays, header = received(question["request"])
    request = received_request(InferenceRequest(inputs=arrays, header=header, model_name="m", model_version="1"), "m")
    response = InferResponse(
        message.id,
        message.model_name,
        [_output(tensor, question["holds"]) for tensor in message.tensors],
        model_version=message.model_version,
        parameters=message.parameters,
        **(
            {"use_binary_outputs": request.use_binary_outputs, "requested_outputs": request.request_outputs}
            if question["passes_on"]
            else {}
        ),
    )
    return response, header


def _output(tensor: PlainTensor, holds: str) -> InferOutput:
    parameters = dict(tensor.parameters)
    output = InferOutput(tensor.name, tensor.shape, tensor.datatype, parameters=parameters)
    if holds == "array":
        output.data = tensor.array.view(DATATYPES["BF16"].dtype) if tensor.datatype == "BF16" else tensor.array
    else:
        output.set_data_from_numpy(tensor.array, binary_data=holds == "bytes")
    return output


def their_answer(question: Members) -> Members:
    response, _ = answered(question)
    body, json_length = response.to_rest()
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return {"body": data.hex(), "header_length": json_length}


def our_answer(question: Members) -> Members:
    return _wire(encode_answer(*answered(question)))


def our_question(question: Members) -> Members:
    """Encode a request for KServe's client."""
    message = PlainMessage.from_members(question)
    wanted = None
    if message.outputs is not None:
        wanted = [RequestedOutput(entry["name"], entry["parameters"]) for entry in message.outputs]
    inputs = [
        InferInput(tensor.name, tensor.shape, tensor.datatype, data=tensor.array, parameters=tensor.parameters)
        for tensor in message.tensors
    ]
    request = InferRequest("m", inputs, request_id=message.id, parameters=message.parameters, request_outputs=wanted)
    return _wire(encode_infer_request(request))


def our_reading(question: Members) -> Members:
    """Decode a response for KServe's client."""
    response = decode_response(bytes.fromhex(question["body"]), question["header_length"])
    arrays = arrays_of(response)
    tensors = [_plain(output, arrays[output.name]) for output in response.outputs]
    return {
        "model_name": response.model_name,
        "id": response.id,
        "parameters": response.parameters or {},
        "tensors": [[tensor.name, tensor.datatype, tensor.shape, tensor.elements] for tensor in tensors],
    }


ODD = {
    "objects": np.array([1, 2.5, None, "text", b"bytes"], dtype=object),
    "points in time": np.array(["2020-01-01", "1999-12-31"], dtype="M8[D]"),
    "numpy's bytes": np.array([b"a", b"abc"]),
}


def their_odd(question: Members) -> Members:
    body, json_length = _odd(question).to_rest()
    return {"body": (body if isinstance(body, bytes) else orjson.dumps(body)).hex(), "header_length": json_length}


def our_odd(question: Members) -> Members:
    return _wire(encode_answer(_odd(question), RequestHeader(tensors=())))


def _odd(question: Members) -> InferResponse:
    array = ODD[question["name"]]
    output = InferOutput("x", list(array.shape), "BYTES", data=array)
    return InferResponse("1", "m", [output], use_binary_outputs=question["is_binary"])


MEMBERS: dict[str, Members] = {
    "numbers of numpy": {
        "shape": np.array([1, 2]),
        "parameters": {np.str_("n"): np.int64(5), "score": np.float32(0.5)},
    },
    "what is not finite": {"parameters": {"score": np.nan}, "values": [np.nan, -np.inf]},
    "a version that is a number": {"model_version": 3},
    "an id that is a number": {"id": 5},
    "no model": {"model_name": None},
}


def their_members(question: Members) -> Members:
    """Write as KServe's endpoint does, which checks what the model's response says of itself."""
    document, _ = _told(question).to_rest()
    return {"body": orjson.dumps(InferenceResponse.model_validate(document).model_dump()).hex(), "header_length": None}


def our_members(question: Members) -> Members:
    return _wire(encode_answer(_told(question), RequestHeader(tensors=())))


def _told(question: Members) -> InferResponse:
    told = MEMBERS[question["name"]]
    values = np.array([told.get("values", [1, 2])], np.float32)
    output = InferOutput("x", [*told.get("shape", values.shape)], "FP32", data=values)
    more = {name: told.get(name) for name in ("model_version", "parameters")}
    return InferResponse(told.get("id", "1"), told.get("model_name", "m"), [output], **more)


def aliases(_: Members) -> Members:
    """Say whose memory the arrays of tensors are."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = InferOutput("x", [2, 3], "FP32", data=array)
    serialized = InferOutput("x", [2, 3], "FP32")
    serialized.set_data_from_numpy(array)
    raw = np.frombuffer(serialized._raw_data, np.uint8)  # noqa: SLF001 - what is looked at
    response = InferResponse("1", "m", [given])
    parts = encode_answer(response, RequestHeader(tensors=(), parameters={"binary_data_output": True})).parts
    return {
        "array": arrays_of(response)["x"] is array,
        "bytes": np.shares_memory(arrays_of(InferResponse("1", "m", [serialized]))["x"], raw),
        "encoded": np.shares_memory(np.frombuffer(parts[1], np.uint8), array),  # type: ignore[arg-type]  # a view
    }


def _json_length(question: Members, body: bytes) -> int:
    declared: int | None = question["header_length"]
    return len(body) if declared is None else declared


def _plain(tensor: InferInput | InferOutput, array: Array) -> PlainTensor:
    """With the dtype of the protocol, which for BF16 has two forms."""
    array = array.view(np.uint16) if tensor.datatype == "BF16" else array.astype(DATATYPES[tensor.datatype].dtype)
    return plain_tensor(array, name=tensor.name, datatype=tensor.datatype, is_binary=None, parameters=tensor.parameters)


def _wire(message: EncodedMessage) -> Members:
    return {"body": b"".join(message.buffers).hex(), "header_length": message.header_length}


def _seen(read: Callable[[Members], InferRequest]) -> Callable[[Members], Any]:
    return lambda question: look(read(question))


if __name__ == "__main__":
    main(
        {
            "their_request": _seen(their_request),
            "our_request": _seen(our_request),
            "their_answer": their_answer,
            "our_answer": our_answer,
            "our_question": our_question,
            "our_reading": our_reading,
            "their_odd": their_odd,
            "our_odd": our_odd,
            "their_members": their_members,
            "our_members": our_members,
            "aliases": aliases,
        }
    )
