"""tritonclient's codec, from the plain form of a message to its bytes and back. It has the client's half only."""

from __future__ import annotations

from typing import Any

from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from tests.interop.round_trip.ours import Wire
from tests.interop.round_trip.plain import Members, PlainMessage, PlainTensor, plain_tensor


def request_bytes(message: PlainMessage) -> Wire:
    """Encode a request; the client has no place for parameters of a tensor."""
    wanted = None
    if message.outputs is not None:
        wanted = [_requested_output(entry["name"], **entry["parameters"]) for entry in message.outputs]
    body, header_length = InferenceServerClient.generate_request_body(
        [_input(tensor) for tensor in message.tensors],
        outputs=wanted,
        request_id=message.id or "",
        parameters=message.parameters,
    )
    return Wire(body, header_length)


def read_response(wire: Wire) -> PlainMessage:
    """Decode a response."""
    result = InferenceServerClient.parse_response_body(wire.body, header_length=wire.header_length)
    response: Members = result.get_response()
    return PlainMessage(
        tensors=[_output(result, entry["name"]) for entry in response["outputs"]],
        id=response.get("id"),
        parameters=response.get("parameters", {}),
        model_name=response["model_name"],
        model_version=response.get("model_version"),
    )


def _input(tensor: PlainTensor) -> Any:  # noqa: ANN401 - the client's class, which has no types
    given = InferInput(tensor.name, tensor.shape, tensor.datatype)
    return given.set_data_from_numpy(tensor.array, binary_data=tensor.is_binary)


def _requested_output(name: str, *, binary_data: bool, classification: int = 0) -> Any:  # noqa: ANN401 - see above
    return InferRequestedOutput(name, binary_data=binary_data, class_count=classification)


def _output(result: Any, name: str) -> PlainTensor:  # noqa: ANN401 - see above
    entry: Members = result.get_output(name)
    parameters = entry.get("parameters", {})
    return plain_tensor(
        result.as_numpy(name),
        name=entry["name"],
        datatype=entry["datatype"],
        is_binary="binary_data_size" in parameters,
        parameters=parameters,
    )
