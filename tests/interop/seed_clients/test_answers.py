"""Refusals, metadata and health: what the clients are told, which a page can read as well as the others."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import streamcodec
from tests.interop.models import FULLY_DECLARED
from tests.interop.seed_clients.jobs import Caller, as_input, assert_same, floats, ramp
from tests.interop.seed_clients.systems import GO, NODE, PYTHON, only

_X = [as_input("x", floats())]
_WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown model": ({"inputs": _X, "model": "nothing"}, 404, "there is no model 'nothing'"),
    "unknown output": (
        {"inputs": _X, "members": {"outputs": [{"name": "y"}]}},
        400,
        "the model has no output 'y' ($.outputs[0].name)",
    ),
    "unknown input": ({"inputs": _X, "model": "calibrate"}, 400, "the model has no input 'x' ($.inputs[0].name)"),
    "wrong datatype": (
        {"inputs": [as_input("GAIN", np.ones(1))], "model": "calibrate"},
        400,
        "the datatype is FP64, the model takes FP32 ($.inputs[0].datatype)",
    ),
    "shape that does not fit the size": (
        {"inputs": [as_input("x", floats()) | {"shape": [5]}]},
        400,
        "binary_data_size is 16, datatype and shape need 20",
    ),
    "unknown encoding": (
        {"inputs": _X, "fields": {"Content-Encoding": "zstd"}},
        415,
        "a body can be encoded with gzip or deflate, and not with 'zstd'",
    ),
    "length that is no number": (
        {"inputs": _X, "fields": {"Inference-Header-Content-Length": "12abc"}},
        400,
        "Inference-Header-Content-Length is not a plain decimal number",
    ),
}
_FRAMINGS = pytest.mark.parametrize("framing", ["headerless", "length"])


def _assert_works(client: Caller) -> None:
    assert_same(client.infer({"x": floats()}).outputs, {"x": floats()})


@pytest.mark.slow
@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize("name", [name for name in _WRONG if "shape" not in name])
def test_wrong_request_is_refused_with_our_text_and_the_next_one_works(client: Caller, name: str) -> None:
    request, status, text = _WRONG[name]
    answer = client.send(**request)
    assert answer.status == status
    assert text in answer.error
    _assert_works(client)


@pytest.mark.interop(feature="errors")
@_FRAMINGS
@pytest.mark.parametrize("surplus", [-16, -1, 1, 1000])
def test_tail_of_the_wrong_size_is_refused_and_the_next_request_works(
    client: Caller, framing: str, surplus: int
) -> None:
    answer = client.infer({"x": floats()}, framing=framing, surplus=surplus)
    assert answer.status == 400
    found, needed = map(int, re.findall(r"\d+", answer.error)[:2])
    assert found - needed == surplus
    _assert_works(client)


@only(PYTHON, NODE, GO)
@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize(
    ("surplus", "text"),
    [(-1, "the message ends 1 byte too early"), (1, "the body goes on after the message has ended")],
)
def test_tail_of_the_wrong_size_in_chunks_is_refused(client: Caller, surplus: int, text: str) -> None:
    answer = client.infer({"x": floats()}, chunk_bytes=10, surplus=surplus)
    assert answer.status == 400
    assert text in answer.error
    _assert_works(client)


@pytest.mark.interop(feature="errors")
@_FRAMINGS
def test_json_that_is_cut_off_is_refused(client: Caller, framing: str) -> None:
    answer = client.infer({"x": floats()}, framing=framing, surplus=-40)
    assert answer.status == 400
    texts = {"headerless": "the header is not JSON", "length": "the declared header length"}
    assert texts[framing] in answer.error


@pytest.mark.interop(feature="errors")
def test_large_wrong_request_is_refused_with_our_text(client: Caller) -> None:
    """The server answers and closes while the client is still sending."""
    answer = client.send([ramp(1 << 24)], model="nothing")
    assert answer.status == 404
    assert answer.error == "there is no model 'nothing'"
    _assert_works(client)


@only(GO)
@pytest.mark.interop(feature="errors")
def test_client_that_waits_for_leave_to_send_is_answered_before_it_sends(client: Caller) -> None:
    """Of these clients only Go's knows `Expect: 100-continue`."""
    wait = {"Expect": "100-continue"}
    assert client.send([ramp(1 << 24)], model="nothing", fields=wait).error == "there is no model 'nothing'"
    assert_same(client.infer({"x": floats()}, fields=wait).outputs, {"x": floats()})


@pytest.mark.interop(feature="metadata and health")
def test_server_metadata(client: Caller) -> None:
    assert client.get("/v2").document == {
        "name": "streamcodec",
        "version": streamcodec.__version__,
        "extensions": ["binary_tensor_data", "model_configuration", "statistics", "classification"],
    }


@pytest.mark.interop(feature="metadata and health")
@pytest.mark.parametrize("path", ["calibrate", "calibrate/versions/2"])
def test_model_metadata(client: Caller, path: str) -> None:
    assert client.get(f"/v2/models/{path}").document == FULLY_DECLARED


@pytest.mark.interop(feature="metadata and health")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/health/live", 200),
        ("/v2/health/ready", 200),
        ("/v2/models/identity/ready", 200),
        ("/v2/models/calibrate/versions/2/ready", 200),
        ("/v2/models/calibrate/versions/3/ready", 404),
        ("/v2/models/nothing/ready", 404),
        ("/v2/models/nothing", 404),
    ],
)
def test_status_tells_what_is_there(client: Caller, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status == status
    assert ("error" in answer.document) is (status == 404)


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v2/nonsense", 404, "there is no such route in the V2 protocol"),
        ("/v2/models/identity/infer", 405, "this route answers POST, not 'GET'"),
    ],
)
def test_route_that_does_not_answer_that(client: Caller, path: str, status: int, text: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.error) == (status, text)
