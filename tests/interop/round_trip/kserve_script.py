"""KServe's own codec, unmodified, as a program that is asked on standard input and answers on standard output.

Runs in an environment that has KServe but neither streamcodec nor pytest, in the root of the checkout, as
`python -m tests.interop.round_trip.kserve_script`. One process serves thousands of messages. A frame is its length in 4
bytes, little-endian, and that much JSON; bodies are in hexadecimal, messages in the form of `plain.py`. Where KServe
raises, the answer is `{"error": "Kind: text"}`. It judges nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

from kserve import InferInput, InferOutput, InferRequest, InferResponse
from kserve.protocol.infer_type import RequestedOutput, orjson

from tests.interop.round_trip.frames import read_frame, write_frame
from tests.interop.round_trip.plain import Members, PlainMessage, PlainTensor, plain_tensor


def read_request(question: Members) -> Members:
    """Decode as KServe's server does."""
    body = bytes.fromhex(question["body"])
    request = InferRequest.from_bytes(body, _json_length(question, body), "m")
    outputs = None
    if request.request_outputs is not None:
        outputs = [{"name": wanted.name, "parameters": wanted.parameters or {}} for wanted in request.request_outputs]
    message = PlainMessage(
        tensors=[_tensor(tensor) for tensor in request.inputs],
        id=request.id,
        parameters=request.parameters or {},
        outputs=outputs,
    )
    return asdict(message)


def read_response(question: Members) -> Members:
    """Decode as KServe's client does."""
    body = bytes.fromhex(question["body"])
    response = InferResponse.from_bytes(body, _json_length(question, body))
    message = PlainMessage(
        tensors=[_tensor(tensor) for tensor in response.outputs],
        id=response.id,
        parameters=response.parameters or {},
        model_name=response.model_name,
        model_version=response.model_version,
    )
    return asdict(message)


def request_bytes(question: Members) -> Members:
    """Encode as KServe's client does."""
    message = PlainMessage.from_members(question)
    inputs = []
    for tensor in message.tensors:
        given = InferInput(tensor.name, tensor.shape, tensor.datatype, parameters=tensor.parameters)
        given.set_data_from_numpy(tensor.array, binary_data=tensor.is_binary)
        inputs.append(given)
    wanted = None
    if message.outputs is not None:
        wanted = [RequestedOutput(entry["name"], entry["parameters"]) for entry in message.outputs]
    request = InferRequest("m", inputs, request_id=message.id, parameters=message.parameters, request_outputs=wanted)
    return _wire(*request.to_rest())


def response_bytes(question: Members) -> Members:
    """Encode as KServe's server does: in one form by its flag, in several as the request asked."""
    message = PlainMessage.from_members(question)
    forms = {tensor.is_binary for tensor in message.tensors}
    wanted = [RequestedOutput(tensor.name, {"binary_data": tensor.is_binary}) for tensor in message.tensors]
    response = InferResponse(
        message.id,
        message.model_name,
        [
            InferOutput(tensor.name, tensor.shape, tensor.datatype, data=tensor.array, parameters=tensor.parameters)
            for tensor in message.tensors
        ],
        model_version=message.model_version,
        parameters=message.parameters,
        use_binary_outputs=forms == {True},
        requested_outputs=wanted if len(forms) > 1 else None,
    )
    return _wire(*response.to_rest())


def _json_length(question: Members, body: bytes) -> int:
    """KServe's client takes the whole body where no length is declared."""
    declared: int | None = question["header_length"]
    return len(body) if declared is None else declared


def _tensor(tensor: Any) -> PlainTensor:  # noqa: ANN401 - KServe's class, which has no types here
    """What was read; both forms end as a list, so how it travelled is not told."""
    return plain_tensor(
        tensor.as_numpy(),
        name=tensor.name,
        datatype=tensor.datatype,
        is_binary=None,
        parameters=tensor.parameters,
    )


def _wire(body: bytes | Members, json_length: int | None) -> Members:
    """Where nothing is binary, `to_rest` leaves the writing of JSON to its callers, all of which take orjson."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return {"body": data.hex(), "header_length": json_length}


Acts = dict[str, Callable[[Members], Members]]

ACTS: Acts = {act.__name__: act for act in (read_request, read_response, request_bytes, response_bytes)}


def answer(question: Members, acts: Acts) -> Members:
    try:
        return acts[question["act"]](question["given"])
    except Exception as error:  # noqa: BLE001 - whatever the codec does is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def serve(questions: IO[bytes], answers: IO[bytes], acts: Acts) -> None:
    while (question := read_frame(questions)) is not None:
        write_frame(answers, answer(question, acts))


def main(acts: Acts) -> None:
    own_output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that a library that prints does not do so into a frame
    serve(sys.stdin.buffer, own_output, acts)


if __name__ == "__main__":
    main(ACTS)
