"""What is told of a refused request and of a failed call: words, code and path for the client, the call for the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DEFAULT_LIMITS,
    ErrorCode,
    RequestedOutput,
    RequestHeader,
    Tensor,
    encode_request,
    parse_request_header,
)
from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.service import Inference, InferenceRequest, Listing
from streamcodec.service.models.model import Outputs
from streamcodec.service.negotiation import check_extensions
from tests.service.requests import get, head, run, service_of

SHARED = {"shared_memory_region": "r"}
NO_MEMORY = "this server shares no memory with its clients; tensors go through the body"
NO_CLASSES = "this server offers no classification; its operator can switch it on"


def _header(tensor: dict[str, Any], output: dict[str, Any]) -> RequestHeader:
    message = encode_request(
        [
            Tensor(name="x", array=np.zeros(1), is_binary=False),
            Tensor(name="y", array=np.zeros(1), is_binary=False, parameters=tensor),
        ],
        outputs=[RequestedOutput(name="a"), RequestedOutput(name="b", parameters=output)],
    )
    return parse_request_header(b"".join(map(bytes, message.buffers)), DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("tensor", "output", "classifies", "words", "path"),
    [
        (SHARED, {}, True, NO_MEMORY, "$.inputs[1].parameters.shared_memory_region"),
        ({}, SHARED, True, NO_MEMORY, "$.outputs[1].parameters.shared_memory_region"),
        ({}, {"classification": 1}, False, NO_CLASSES, "$.outputs[1].parameters.classification"),
    ],
)
def test_an_extension_that_is_not_offered_is_named_with_its_place(
    tensor: dict[str, Any], output: dict[str, Any], classifies: bool, words: str, path: str
) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        check_extensions(_header(tensor, output), classifies=classifies)
    assert (caught.value.message, caught.value.code, caught.value.path) == (words, ErrorCode.NOT_OFFERED, path)


WANTED = 'the body must be a JSON object, as {"ready": true}'


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b" " * 4097, ErrorCode.LIMIT_EXCEEDED, "the body has 4097 bytes, 4096 are allowed for the index"),
        (b"{", ErrorCode.INVALID_JSON, f"{WANTED} (byte 1)"),
        (b'{"a":1,"a":2}', ErrorCode.DUPLICATE_KEY, f"{WANTED} ($)"),
        (b'{"a":NaN}', ErrorCode.NON_FINITE_NUMBER, WANTED),
        (b"[]", ErrorCode.INVALID_HEADER, f"{WANTED} ($)"),
        (b'{"ready":1}', ErrorCode.INVALID_MEMBER, "'ready' must be a boolean ($.ready)"),
    ],
)
def test_why_an_index_is_refused(body: bytes, code: ErrorCode, words: str) -> None:
    request = service_of(_fail).begin(head("/v2/repository/index", "POST", length=len(body)))
    assert isinstance(request, Listing)
    refusal = run(request, body).refusal
    assert refusal is not None
    assert (refusal.code, str(refusal)) == (code, words)


def _fail(_: InferenceRequest) -> Outputs:
    msg = "no"
    raise ValueError(msg)


@pytest.mark.parametrize(
    ("request_id", "call"),
    [(None, "model 'm' version '1'"), ("7", "model 'm' version '1', request '7'")],
)
def test_a_call_that_has_failed_is_named_for_the_log(request_id: str | None, call: str) -> None:
    message = encode_request([Tensor(name="x", array=np.zeros(1))], request_id=request_id)
    request = service_of(_fail).begin(head("/v2/models/m/infer", "POST", message.headers, message.body_length))
    assert isinstance(request, Inference)
    reply = run(request, b"".join(message.buffers))
    assert (reply.status, reply.call) == (500, call)


def test_why_a_route_of_an_extension_is_not_there() -> None:
    error = get(service_of(_fail), "/v2/trace/setting").error
    assert error == "there is no such route in the V2 protocol; this server has no tracing that clients can change"
