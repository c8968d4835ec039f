"""Refusals, metadata and health: what the clients are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

import streamcodec
from tests.interop.models import FULLY_DECLARED
from tests.interop.triton_clients.clients import LARGE_BODY, Client, as_input, assert_same, floats


def _wrong_requests() -> dict[str, tuple[str, dict[str, Any], str, str]]:
    x = [as_input("x", floats(), "FP32")]
    unfilled = InferInput("x", [4], "FP32")
    shared = InferInput("x", [4], "FP32")
    shared.set_shared_memory("region", 16)
    return {
        "unknown model": ("nothing", {"inputs": x}, "404", "there is no model 'nothing'"),
        "unknown version": (
            "identity",
            {"inputs": x, "model_version": "9"},
            "404",
            "model 'identity' has no version '9'",
        ),
        "unknown output": (
            "identity",
            {"inputs": x, "outputs": [InferRequestedOutput("y")]},
            "400",
            "the model has no output 'y' ($.outputs[0].name)",
        ),
        "unknown input": ("calibrate", {"inputs": x}, "400", "the model has no input 'x' ($.inputs[0].name)"),
        "missing input": (
            "calibrate",
            {"inputs": [as_input("GAIN", floats(1), "FP32")]},
            "400",
            "the model also needs the input 'IMAGE' ($.inputs)",
        ),
        "wrong shape": (
            "calibrate",
            {"inputs": [as_input("IMAGE", floats(), "FP32")]},
            "400",
            "the shape is [4], the model takes [-1, 3] ($.inputs[0].shape)",
        ),
        "wrong datatype": (
            "calibrate",
            {"inputs": [as_input("GAIN", floats(1).astype(np.float64), "FP64")]},
            "400",
            "the datatype is FP64, the model takes FP32 ($.inputs[0].datatype)",
        ),
        "the same input twice": ("identity", {"inputs": x * 2}, "400", "$.inputs[1].name"),
        "the same output twice": (
            "identity",
            {"inputs": x, "outputs": [InferRequestedOutput("x")] * 2},
            "400",
            "$.outputs[1].name",
        ),
        "input that was never filled": ("identity", {"inputs": [unfilled]}, "400", "$.inputs[0]"),
        "input in shared memory": ("identity", {"inputs": [shared]}, "400", "$.inputs[0]"),
    }


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize("name", _wrong_requests())
def test_wrong_request_is_refused_with_our_text_and_the_next_one_works(client: Client, name: str) -> None:
    model, request, status, text = _wrong_requests()[name]
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, **request)
    assert refused.value.status() == status
    assert text in refused.value.message()
    assert_same(client.infer("identity", [as_input("x", floats(), "FP32")]), "x", floats())


@pytest.mark.interop(feature="errors")
@LARGE_BODY
@pytest.mark.parametrize("nbytes", [1 << 20, 64 << 20], ids=["1 MiB", "64 MiB"])
def test_large_wrong_request_is_refused_with_our_text(client: Client, nbytes: int) -> None:
    """The server answers and closes while the client is still sending."""
    tensor = as_input("x", np.zeros(nbytes, dtype=np.uint8), "UINT8")
    with pytest.raises(InferenceServerException) as refused:
        client.infer("nothing", [tensor])
    assert "there is no model 'nothing'" in str(refused.value)
    assert_same(client.infer("identity", [as_input("x", floats(), "FP32")]), "x", floats())


@pytest.mark.interop(feature="metadata and health")
def test_server_metadata(client: Client) -> None:
    assert client.get_server_metadata() == {
        "name": "streamcodec",
        "version": streamcodec.__version__,
        "extensions": ["binary_tensor_data", "model_configuration", "statistics", "classification"],
    }


@pytest.mark.interop(feature="metadata and health")
@pytest.mark.parametrize("version", ["", "2"])
def test_model_metadata(client: Client, version: str) -> None:
    assert client.get_model_metadata("calibrate", version) == FULLY_DECLARED


@pytest.mark.interop(feature="metadata and health")
def test_metadata_of_unknown_model(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'") as refused:
        client.get_model_metadata("nothing")
    assert refused.value.status() == "404"


@pytest.mark.interop(feature="metadata and health")
def test_liveness_and_readiness(client: Client) -> None:
    assert client.is_server_live() is True
    assert client.is_server_ready() is True
    assert client.is_model_ready("identity") is True
    assert client.is_model_ready("calibrate", "2") is True
    assert client.is_model_ready("calibrate", "3") is False
    assert client.is_model_ready("nothing") is False


@pytest.mark.interop(feature="metadata and health")
@pytest.mark.parametrize("version", ["", "2"])
def test_model_configuration(client: Client, version: str) -> None:
    configuration = client.get_model_config("calibrate", version)
    assert configuration["max_batch_size"] == 0
    inputs = [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in configuration["input"]]
    assert inputs == [(each["name"], f"TYPE_{each['datatype']}", each["shape"]) for each in FULLY_DECLARED["inputs"]]


@pytest.mark.interop(feature="metadata and health")
def test_statistics(client: Client) -> None:
    (identity,) = client.get_inference_statistics("identity")["model_stats"]
    assert (identity["name"], identity["version"]) == ("identity", "1")
    assert {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output"} <= set(
        identity["inference_stats"]
    )
    versions = [entry["version"] for entry in client.get_inference_statistics("calibrate")["model_stats"]]
    assert [client.get_inference_statistics("calibrate", each)["model_stats"][0]["version"] for each in versions] == (
        versions
    )
    everything = {entry["name"] for entry in client.get_inference_statistics()["model_stats"]}
    assert {"identity", "calibrate"} <= everything


@pytest.mark.interop(feature="metadata and health")
def test_repository_index(client: Client) -> None:
    index = client.get_model_repository_index()
    assert {"name": "identity", "version": "1", "state": "READY", "reason": ""} in index
    assert_same(client.infer("identity", [as_input("x", floats(), "FP32")]), "x", floats())


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize("method", ["get_model_config", "get_inference_statistics"])
def test_what_is_asked_of_an_unknown_model(client: Client, method: str) -> None:
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'") as refused:
        getattr(client, method)("nothing")
    assert refused.value.status() == "404"


@pytest.mark.interop(feature="errors")
def test_an_output_in_shared_memory_is_refused(client: Client) -> None:
    shared = InferRequestedOutput("x")
    shared.set_shared_memory("region", 16)
    with pytest.raises(InferenceServerException, match="shares no memory with its clients") as refused:
        client.infer("identity", [as_input("x", floats(), "FP32")], outputs=[shared])
    assert refused.value.status() == "400"


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_trace_settings", []),
        ("get_log_settings", []),
        ("unload_model", ["identity"]),
        ("get_system_shared_memory_status", []),
        ("load_model", ["identity"]),
        ("register_system_shared_memory", ["region", "/key", 16]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_extension_that_is_not_offered_is_refused_clearly(client: Client, method: str, arguments: list[Any]) -> None:
    with pytest.raises(InferenceServerException, match="there is no such route in the V2 protocol") as refused:
        getattr(client, method)(*arguments)
    assert refused.value.status() == "404"
