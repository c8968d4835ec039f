"""Both clients against a real Triton: the same as with tritonclient, call by call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from streamcodec.tritonclient.utils import shared_memory
from tests.interop.servers.processes import Peer
from tests.interop.tensors import TENSORS, fingerprint
from tests.tritonclient.faces import KINDS, OURS, THEIRS, Face, face

pytestmark = pytest.mark.slow

_TENSORS = TENSORS | {"BF16": np.array([1.5, -2, 3], ml_dtypes.bfloat16)}
_NO_JSON = {"BF16", "FP16"}


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, triton: Peer) -> Iterator[Face]:
    triton.check()
    with face(OURS, request.param, triton.url.removeprefix("http://")) as client:
        yield client
    triton.check()


@pytest.mark.parametrize("name", _TENSORS)
def test_tensors(client: Face, name: str) -> None:
    array, datatype = _TENSORS[name], name.partition(" ")[0]
    if array.ndim not in {1, 2} or not array.size:
        pytest.skip("the models of this Triton take one or two dimensions, and no empty tensor")
    for is_binary in (
        (True, False) if datatype not in _NO_JSON and not {"infinities", "NaN"} & {*name.split()} else (True,)
    ):
        try:
            tensor = client.tensor(datatype, array, datatype, binary=is_binary)
        except client.http.InferenceServerException:
            assert datatype == "BYTES"  # no UTF-8
            continue
        outputs = [client.http.InferRequestedOutput(datatype, binary_data=True)]
        result = client.call("infer", ("identity", "matrix")[array.ndim - 1], [tensor], outputs=outputs)
        assert fingerprint(result.as_numpy(datatype)) == fingerprint(array)


_CALLS: dict[str, Callable[[Face], Any]] = {
    "live": lambda client: client.call("is_server_live"),
    "ready": lambda client: client.call("is_server_ready"),
    "model ready": lambda client: client.call("is_model_ready", "seen", "2"),
    "no model ready": lambda client: client.call("is_model_ready", "none"),
    "server": lambda client: client.call("get_server_metadata"),
    "model": lambda client: client.call("get_model_metadata", "single"),
    "no model": lambda client: client.call("get_model_metadata", "none"),
    "config": lambda client: client.call("get_model_config", "single", "1"),
    "index": lambda client: client.call("get_model_repository_index"),
    "statistics": lambda client: client.call("get_inference_statistics", "none"),
    "all statistics": lambda client: sorted(client.call("get_inference_statistics")),
    "load": lambda client: client.call("load_model", "single", config="{}", files={"file:1/a": b"\0"}),
    "unload": lambda client: client.call("unload_model", "single", unload_dependents=True),
    "trace": lambda client: client.call("get_trace_settings", "single"),
    "set trace": lambda client: client.call(
        "update_trace_settings", settings={"trace_rate": "7", "log_frequency": None}
    ),
    "log": lambda client: client.call("get_log_settings"),
    "set log": lambda client: client.call("update_log_settings", {"log_verbose_level": 0}),
    "wrong log": lambda client: client.call("update_log_settings", {"none": 0}),
    "memory": lambda client: client.call("get_system_shared_memory_status"),
    "no memory": lambda client: client.call("get_system_shared_memory_status", "none"),
    "no region": lambda client: client.call("register_system_shared_memory", "none", "/none", 8),
    "no cuda region": lambda client: client.call("register_cuda_shared_memory", "none", b"YWJj", 0, 8),
    "cuda": lambda client: client.call("get_cuda_shared_memory_status"),
    "unregister": lambda client: client.call("unregister_system_shared_memory"),
    "unregister cuda": lambda client: client.call("unregister_cuda_shared_memory", "none"),
    "no such model": lambda client: client.call("infer", "none", []),
    "no input": lambda client: client.call("infer", "single", []).get_response(),
}


@KINDS
@pytest.mark.parametrize("name", _CALLS)
def test_the_same_as_with_tritonclient(triton: Peer, kind: str, name: str) -> None:
    pytest.importorskip("tritonclient.http", reason="tritonclient is not here")
    address = triton.url.removeprefix("http://")
    with face(OURS, kind, address) as ours, face(THEIRS, kind, address) as theirs:
        assert _outcome(ours, name) == _outcome(theirs, name)
    triton.check()


def _outcome(client: Face, name: str) -> Any:  # noqa: ANN401 - what Triton says
    try:
        return _CALLS[name](client)
    except client.http.InferenceServerException as error:
        return str(error), error.status(), error.debug_details()


def test_what_a_request_says(client: Face) -> None:
    array = np.arange(3, dtype=np.float32)
    for algorithm in (None, "gzip", "deflate"):
        result = client.call(
            "infer",
            "seen",
            [client.tensor("FP32", array, "FP32")],
            model_version="2",
            request_id="7",
            parameters={"a": "b", "c": 3},
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
        seen = result.as_numpy("SEEN")[0]
        assert b'"id": "7"' in seen
        assert b'"version": "2"' in seen
        assert b'"a": "b"' in seen
        assert result.get_response()["id"] == "7"


def test_classes(client: Face) -> None:
    array = np.array([[0.5, -1, 8, 2]], np.float32)
    for is_binary in (True, False):
        wanted = [client.http.InferRequestedOutput("FP32", binary_data=is_binary, class_count=2)]
        result = client.call("infer", "batches", [client.tensor("FP32", array, "FP32")], outputs=wanted)
        best = result.as_numpy("FP32")[0, 0]
        assert (best if isinstance(best, str) else best.decode()) == "8.000000:2:otter"


def test_tensors_in_shared_memory(client: Face) -> None:
    array = np.arange(8, dtype=np.float32)
    key = f"/streamcodec_triton_{os.getpid()}"
    region = shared_memory.create_shared_memory_region("both", key, 2 * array.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [array])
        client.call("register_system_shared_memory", "both", key, 2 * array.nbytes)
        assert [place["name"] for place in client.call("get_system_shared_memory_status")] == ["both"]
        tensor = client.http.InferInput("FP32", [8], "FP32").set_shared_memory("both", array.nbytes)
        output = client.http.InferRequestedOutput("FP32")
        output.set_shared_memory("both", array.nbytes, offset=array.nbytes)
        result = client.call("infer", "identity", [tensor], outputs=[output])
        entry = result.get_output("FP32")
        assert (entry["shape"], entry["datatype"]) == ([8], "FP32")
        found = shared_memory.get_contents_as_numpy(region, np.float32, entry["shape"], array.nbytes)
        assert np.array_equal(found, array)
        del found
        with pytest.raises(KeyError):
            result.as_numpy("FP32")
        client.call("unregister_system_shared_memory", "both")
        assert client.call("get_system_shared_memory_status") == []
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_large_tensors(client: Face) -> None:
    array = np.arange(16 << 20, dtype=np.uint8)
    result = client.call("infer", "identity", [client.tensor("UINT8", array, "UINT8")])
    assert np.array_equal(result.as_numpy("UINT8"), array)
