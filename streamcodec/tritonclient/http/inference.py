"""Inference: what `infer` asks of a server: the JSON header, the bytes behind it, and the fields that describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamcodec.client.extensions import with_query, with_scheduling
from streamcodec.tritonclient.http.calls import Call, Headers, Part, Query, to_json, versioned
from streamcodec.tritonclient.http.result import Answer, InferResult
from streamcodec.tritonclient.http.tensors import InferInput, InferRequestedOutput
from streamcodec.tritonclient.utils import (
    TRITON_RESERVED_REQUEST_PARAMS,
    TRITON_RESERVED_REQUEST_PARAMS_PREFIX,
    raise_error,
)

_ENCODINGS: Final = {"gzip", "deflate"}


def infer(
    model_name: str,
    inputs: Sequence[InferInput],
    model_version: str = "",
    outputs: Sequence[InferRequestedOutput] | None = None,
    request_id: str = "",
    sequence_id: int | str = 0,
    sequence_start: bool = False,
    sequence_end: bool = False,
    priority: int = 0,
    timeout: int | None = None,
    headers: Headers = None,
    query_params: Query = None,
    request_compression_algorithm: str | None = None,
    response_compression_algorithm: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Call[InferResult]:
    """Run a model's inference.

    Args:
        model_name: its name.
        inputs: the inputs.
        model_version: its version; "" for the server's choice.
        outputs: the wanted outputs; None for all, as bytes.
        request_id: returned in the answer; "" for none.
        sequence_id: of the sequence that the request belongs to; 0 or "" for none.
        sequence_start: whether it is the first of its sequence.
        sequence_end: whether it is the last of its sequence.
        priority: for the server's queue, 1 for the highest; 0 for the model's default.
        timeout: microseconds in the server's queue; None for the model's default. The client's timeouts are others.
        headers: further fields of the request.
        query_params: of the URL.
        request_compression_algorithm: `gzip` or `deflate` to compress the request.
        response_compression_algorithm: `gzip` or `deflate`, which the answer may have.
        parameters: further parameters of the request, for the model.

    Raises:
        InferenceServerException: the server refuses the request, the answer is wrong, or a parameter is reserved.
        OSError: there is no connection, or it broke; `TimeoutError` is one.
    """
    text, wires = _message(
        inputs, outputs, request_id, sequence_id, sequence_start, sequence_end, priority, timeout, parameters
    )
    path = with_query(f"{versioned(model_name, model_version)}/infer", query_params)
    fields = dict(headers or {})
    encoding = request_compression_algorithm if request_compression_algorithm in _ENCODINGS else None
    if encoding is not None:
        fields["Content-Encoding"] = encoding
    if response_compression_algorithm in _ENCODINGS:
        fields["Accept-Encoding"] = response_compression_algorithm
    return Call(
        path=path,
        headers=fields,
        read=_result,
        body=[text, *[wire for wire in wires if len(wire)]],
        encoding=encoding,
        has_tensors=True,
        header_length=len(text) if wires else None,
    )


def generate_request_body(
    inputs: Sequence[InferInput],
    outputs: Sequence[InferRequestedOutput] | None = None,
    request_id: str = "",
    sequence_id: int | str = 0,
    sequence_start: bool = False,
    sequence_end: bool = False,
    priority: int = 0,
    timeout: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[bytes, int | None]:
    """Return the body of an inference request, and the bytes of its JSON header; arguments are those of `infer`.

    Returns:
        The length of the header is None if there is nothing else.

    Raises:
        InferenceServerException: a parameter is reserved.
    """
    text, wires = _message(
        inputs, outputs, request_id, sequence_id, sequence_start, sequence_end, priority, timeout, parameters
    )
    return b"".join([text, *wires]), len(text) if wires else None


def _message(
    inputs: Sequence[InferInput],
    outputs: Sequence[InferRequestedOutput] | None,
    request_id: str,
    sequence_id: int | str,
    sequence_start: bool,
    sequence_end: bool,
    priority: int,
    timeout: int | None,
    others: Mapping[str, Any] | None,
) -> tuple[bytes, list[Part]]:
    """Return the JSON header of an inference request, and the values of its binary inputs."""
    header: dict[str, Any] = {}
    parameters = with_scheduling(
        None, sequence_id, sequence_start=sequence_start, sequence_end=sequence_end, priority=priority
    )
    if request_id != "":
        header["id"] = request_id
    if timeout is not None:
        parameters["timeout"] = timeout
    header["inputs"] = [tensor.entry for tensor in inputs]
    if outputs:
        header["outputs"] = [output.entry for output in outputs]
    else:
        parameters["binary_data_output"] = True
    for name in others or ():
        if name in TRITON_RESERVED_REQUEST_PARAMS or name.startswith(TRITON_RESERVED_REQUEST_PARAMS_PREFIX):
            raise_error(f'Parameter "{name}" is a reserved parameter and cannot be specified.')
    parameters |= others or {}
    if parameters:
        header["parameters"] = parameters
    return to_json(header), [tensor.wire for tensor in inputs if tensor.wire is not None]


def _result(answer: Answer, verbose: bool) -> InferResult:
    answer.check()
    return InferResult(answer, verbose)
