"""What the clients send, byte for byte, as KServe's documentation has it; a server that only takes notes shows it."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.interop.seed_clients.jobs import Caller, floats
from tests.interop.seed_clients.recording import Recorded, RecordingServer
from tests.interop.seed_clients.systems import CHROMIUM, GO, NODE, PYTHON, only
from tests.interop.tensors import Array

pytestmark = pytest.mark.interop(feature="headerless form")

_IMAGE = (np.arange(12, dtype=np.float32) / 3).reshape(1, 3, 2, 2)
_GAIN = np.array([-0.0, 1e-40], dtype=np.float32)
_SEPARATORS = {PYTHON: (", ", ": ")}
"""Of `json.dumps`; the other languages write no blanks."""


def _bodies(system: str, inputs: dict[str, Array]) -> list[bytes]:
    """Return what may be sent: in Go the tensors are in a map, which has no order."""
    orders = permutations(inputs) if system == GO else [tuple(inputs)]
    return [_body(system, {name: inputs[name] for name in order}) for order in orders]


def _body(system: str, inputs: dict[str, Array]) -> bytes:
    entries = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": "FP32",
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in inputs.items()
    ]
    separators = _SEPARATORS.get(system, (",", ":"))
    document = json.dumps({"inputs": entries}, separators=separators)
    return document.encode() + b"".join(array.tobytes() for array in inputs.values())


def _posted(recorder: RecordingServer) -> Recorded:
    (request,) = (request for request in recorder.recorded if request.method == "POST")
    return request


@pytest.mark.slow
def test_json_is_followed_by_the_tensors_at_once_and_no_field_says_where_they_begin(
    recorded_client: Caller, recorder: RecordingServer, system: str
) -> None:
    inputs: dict[str, Array] = {"image_tensor": _IMAGE, "gain": _GAIN}
    recorded_client.infer(inputs)
    request = _posted(recorder)
    assert request.target == "/v2/models/identity/infer"
    assert request.body in _bodies(system, inputs)
    assert request.values("Inference-Header-Content-Length") == []
    assert request.values("Content-Type") == ["application/json"]
    assert request.values("Content-Length") == [str(len(request.body))]
    assert request.values("Transfer-Encoding") == []


@pytest.mark.slow
@only(PYTHON, NODE, GO)
def test_body_in_chunks_is_the_same_body(recorded_client: Caller, recorder: RecordingServer, system: str) -> None:
    recorded_client.infer({"image_tensor": _IMAGE}, chunk_bytes=7)
    request = _posted(recorder)
    assert request.body == _body(system, {"image_tensor": _IMAGE})
    assert request.values("Transfer-Encoding") == ["chunked"]
    assert request.values("Content-Length") == []


@only(CHROMIUM)
def test_page_asks_first_whether_it_may_send_json(recorded_client: Caller, recorder: RecordingServer) -> None:
    recorded_client.infer({"x": floats()})
    preflight, request = recorder.recorded
    assert preflight.method == "OPTIONS"
    assert preflight.target == request.target
    assert preflight.values("Access-Control-Request-Headers") == ["content-type"]
    assert preflight.values("Origin") == request.values("Origin")


@only(GO)
def test_map_gives_the_tensors_in_an_order_of_its_own_each_time(
    recorded_client: Caller, recorder: RecordingServer
) -> None:
    for _ in range(40):  # of eight possible beginnings
        recorded_client.infer({name: floats() for name in "abcdefgh"})
    assert len({_first_name(request) for request in recorder.recorded}) > 1


def _first_name(request: Recorded) -> str:
    document: dict[str, Any]
    document, _ = json.JSONDecoder().raw_decode(request.body.decode("latin-1"))
    name: str = document["inputs"][0]["name"]
    return name
