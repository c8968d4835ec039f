"""Triton's own clients, `tritonclient.http` and `tritonclient.http.aio`, unmodified, against our server.

Each test runs with both; their calls are the same but for `await`. What they cannot do, or do in a way of their own, is
a test with a name that says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from tritonclient.http import InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

import streamcodec
from tests.interop.conftest import ServerProcess
from tests.interop.models import FULLY_DECLARED, NAME_WITH_BLANK
from tests.interop.tensors import BINARY_ONLY, NOT_FINITE, PLAIN, Array, datatype, elements, fingerprint

FORMS = {"binary": True, "json": False}
ROUND_TRIPS = [f"{there}-{back}" for there, back in product(FORMS, FORMS)]
BOTH_WAYS = PLAIN | NOT_FINITE
BYTES_ONLY = BINARY_ONLY | {
    # numpy cannot make it from its bits, and KServe's client does not know it
    "BF16": np.array([0x8000, 0x0001, 0x3EAB, 0x7F7F, 0xFF80, 0x7F81], dtype=np.uint16).view(ml_dtypes.bfloat16),
}
_TIMEOUT = 20.0
# aiohttp, of the way in which tritonclient hands it a large body
_LARGE_BODY = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")


class _BlockingAio:
    """The asynchronous client on an event loop of its own, called as if it were the other."""

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open(address))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - any method of the client
            return await getattr(self._client, name)(*args, **options)

        return lambda *args, **options: self._runner.run(call(*args, **options))

    def infer_at_once(self, requests: Sequence[list[InferInput]]) -> list[InferResult]:
        async def gather() -> list[InferResult]:
            return list(await asyncio.gather(*(self._client.infer("identity", inputs) for inputs in requests)))

        return self._runner.run(gather())

    def close(self) -> None:
        self._runner.run(self._client.close())
        # aiohttp closes a connection only when all it wanted to send has gone, and does not wait for that itself.
        self._runner.run(asyncio.sleep(0.5))
        self._runner.close()

    async def _open(self, address: str) -> Any:  # noqa: ANN401 - tritonclient has no types
        return tritonclient.http.aio.InferenceServerClient(address, conn_timeout=_TIMEOUT)


class _Sync(tritonclient.http.InferenceServerClient):  # type: ignore[misc]  # tritonclient has no types
    """The synchronous client, with a name for its way of asking several things at once."""

    def __init__(self, address: str) -> None:
        super().__init__(address, concurrency=8, connection_timeout=_TIMEOUT, network_timeout=_TIMEOUT)

    def infer_at_once(self, requests: Sequence[list[InferInput]]) -> list[InferResult]:
        return [call.get_result() for call in [self.async_infer("identity", inputs) for inputs in requests]]


Client = _Sync | _BlockingAio


@pytest.fixture(scope="module", params=[_Sync, _BlockingAio], ids=["sync", "aio"])
def _client(request: pytest.FixtureRequest, server_process: ServerProcess) -> Iterator[Client]:
    client: Client = request.param(server_process.address)
    yield client
    client.close()


@pytest.fixture
def client(_client: Client, server: str) -> Client:  # noqa: ARG001 - `server` watches the process
    """One client for all tests, so that its connections serve one request after the other."""
    return _client


def as_input(name: str, array: Array, datatype: str, *, binary: bool = True) -> InferInput:
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


def seen(result: InferResult) -> dict[str, Any]:
    """What the model `seen` says that it was given."""
    report: dict[str, Any] = json.loads(result.as_numpy("SEEN")[0])
    return report


def is_binary(result: InferResult, name: str) -> bool:
    return "binary_data_size" in result.get_output(name).get("parameters", {})


def assert_same(result: InferResult, name: str, array: Array) -> None:
    assert fingerprint(result.as_numpy(name)) == fingerprint(array)


@pytest.mark.parametrize("forms", ROUND_TRIPS)
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_tensor_comes_back_as_sent(client: Client, name: str, forms: str) -> None:
    array = BOTH_WAYS[name]
    there, back = (FORMS[form] for form in forms.split("-"))
    result = client.infer(
        "identity",
        [as_input("x", array, datatype(name), binary=there)],
        outputs=[InferRequestedOutput("x", binary_data=back)],
    )
    assert_same(result, "x", array)
    assert is_binary(result, "x") is back
    assert result.get_output("x")["datatype"] == datatype(name)


@pytest.mark.parametrize("name", BYTES_ONLY)
def test_tensor_without_json_form_comes_back_bit_by_bit(client: Client, name: str) -> None:
    result = client.infer("identity", [as_input("x", BYTES_ONLY[name], datatype(name))])
    assert_same(result, "x", BYTES_ONLY[name])


@pytest.mark.parametrize("name", ["FP16", "BF16", "BYTES not in UTF-8"])
def test_tensor_without_json_form_asked_for_as_json_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InferenceServerException, match="binary") as refused:
        client.infer(
            "identity",
            [as_input("x", BYTES_ONLY[name], datatype(name))],
            outputs=[InferRequestedOutput("x", binary_data=False)],
        )
    assert refused.value.status() == "400"


def test_fp16_as_json_is_refused_by_the_server(client: Client) -> None:
    """The client would send it; Triton refuses it too."""
    with pytest.raises(InferenceServerException) as refused:
        client.infer("identity", [as_input("x", BYTES_ONLY["FP16"], "FP16", binary=False)])
    assert refused.value.status() == "400"
    assert refused.value.message().startswith("FP16 has no JSON form; send it as binary data with binary_data_size")


@pytest.mark.parametrize("name", ["BF16", "BYTES not in UTF-8"])
def test_client_itself_does_not_send_as_json(name: str) -> None:
    with pytest.raises(InferenceServerException, match="binary"):
        as_input("x", BYTES_ONLY[name], datatype(name), binary=False)


def test_signalling_nan_reaches_the_model_unchanged(client: Client) -> None:
    name = "FP32 NaN payloads, quiet and signalling"
    result = client.infer("seen", [as_input("x", BYTES_ONLY[name], "FP32")])
    assert seen(result)["inputs"]["x"] == fingerprint(BYTES_ONLY[name])


def test_all_tensors_in_one_request_binary_and_json_mixed_both_ways(client: Client) -> None:
    """Binary tensors are found although JSON tensors and tensors of size 0 stand between them."""
    names = [*PLAIN, *BYTES_ONLY]
    there = [name not in PLAIN or index % 2 == 0 for index, name in enumerate(names)]
    back = [name not in PLAIN or index % 3 == 0 for index, name in enumerate(names)]
    arrays = PLAIN | BYTES_ONLY
    result = client.infer(
        "identity",
        [as_input(n, arrays[n], datatype(n), binary=binary) for n, binary in zip(names, there, strict=True)],
        outputs=[InferRequestedOutput(n, binary_data=binary) for n, binary in zip(names, back, strict=True)],
    )
    for name, binary in zip(names, back, strict=True):
        assert_same(result, name, arrays[name])
        assert is_binary(result, name) is binary


@_LARGE_BODY
def test_tensor_of_64_mib(client: Client) -> None:
    array = np.arange(1 << 24, dtype=np.float32)
    result = client.infer("identity", [as_input("x", array, "FP32")])
    assert np.array_equal(result.as_numpy("x"), array)


def test_sink_counts_the_bytes_of_all_inputs(client: Client) -> None:
    inputs = [as_input("a", floats(16), "FP32"), as_input("b", elements(b"abc", b""), "BYTES", binary=False)]
    assert client.infer("sink", inputs).as_numpy("COUNT").tolist() == [16 * 4 + (4 + 3) + 4]


def test_requests_at_once(client: Client) -> None:
    arrays = [np.full(50_000 + index, index, dtype=np.int32) for index in range(8)]
    results = client.infer_at_once([[as_input("x", array, "INT32")] for array in arrays])
    for array, result in zip(arrays, results, strict=True):
        assert_same(result, "x", array)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("form", FORMS)
def test_compressed_request(client: Client, algorithm: str, form: str) -> None:
    array = floats(50_000)
    result = client.infer(
        "identity",
        [as_input("x", array, "FP32", binary=FORMS[form]), as_input("y", elements(b"a\0", b""), "BYTES")],
        request_compression_algorithm=algorithm,
    )
    assert_same(result, "x", array)
    assert_same(result, "y", elements(b"a\0", b""))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_client_that_asks_for_a_compressed_response_reads_the_plain_one(client: Client, algorithm: str) -> None:
    """Response compression is not offered; asking for it must do no harm."""
    result = client.infer("identity", [as_input("x", floats(), "FP32")], response_compression_algorithm=algorithm)
    assert_same(result, "x", floats())


@pytest.mark.parametrize("request_id", ["42", 'größer 🦊 " \\ \n', "x" * 1000])
def test_request_id_is_echoed(client: Client, request_id: str) -> None:
    result = client.infer("identity", [as_input("x", floats(), "FP32")], request_id=request_id)
    assert result.get_response()["id"] == request_id


def test_no_request_id_gives_none_back(client: Client) -> None:
    response = client.infer("identity", [as_input("x", floats(), "FP32")]).get_response()
    assert "id" not in response
    assert (response["model_name"], response["model_version"]) == ("identity", "1")


def test_parameters_reach_the_model(client: Client) -> None:
    result = client.infer(
        "seen",
        [as_input("x", floats(), "FP32")],
        parameters={"text": "größer", "count": 2**53 + 1, "flag": True, "ratio": 0.5},
        sequence_id=7,
        sequence_start=True,
        priority=3,
        timeout=1_000_000,
    )
    assert seen(result)["parameters"] == {
        "text": "größer",
        "count": 2**53 + 1,
        "flag": True,
        "ratio": 0.5,
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": False,
        "priority": 3,
        "timeout": 1_000_000,
        "binary_data_output": True,  # what the client adds where no outputs are listed
    }


def test_headers_and_query_of_the_users_own_are_harmless(client: Client) -> None:
    result = client.infer(
        "identity", [as_input("x", floats(), "FP32")], headers={"X-Trace": "1"}, query_params={"a b": ["1", "&"]}
    )
    assert_same(result, "x", floats())


def test_outputs_are_those_asked_for_in_that_order(client: Client) -> None:
    inputs = [as_input(name, floats(), "FP32") for name in "abcd"]
    result = client.infer("identity", inputs, outputs=[InferRequestedOutput(name) for name in "ca"])
    assert [output["name"] for output in result.get_response()["outputs"]] == ["c", "a"]
    assert result.as_numpy("b") is None


def test_declared_model(client: Client) -> None:
    image = floats(6).reshape(2, 3)
    gain = np.array([2], dtype=np.float32)
    result = client.infer("calibrate", [as_input("GAIN", gain, "FP32"), as_input("IMAGE", image, "FP32")])
    assert_same(result, "SCALED", image * 2)
    assert_same(result, "MEAN", np.array([3, 5, 7], dtype=np.float32))


@pytest.mark.parametrize("version", ["1", "2"])
def test_version_of_a_model(client: Client, version: str) -> None:
    inputs = [as_input("IMAGE", floats(3).reshape(1, 3), "FP32"), as_input("GAIN", floats(1), "FP32")]
    assert client.infer("calibrate", inputs, model_version=version).get_response()["model_version"] == version


def test_name_of_a_model_is_percent_decoded(client: Client) -> None:
    result = client.infer(NAME_WITH_BLANK, [as_input("x", floats(), "FP32")])
    assert seen(result)["model"] == NAME_WITH_BLANK
    assert result.get_response()["model_name"] == NAME_WITH_BLANK


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


@pytest.mark.parametrize("name", _wrong_requests())
def test_wrong_request_is_refused_with_our_text_and_the_next_one_works(client: Client, name: str) -> None:
    model, request, status, text = _wrong_requests()[name]
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, **request)
    assert refused.value.status() == status
    assert text in refused.value.message()
    assert_same(client.infer("identity", [as_input("x", floats(), "FP32")]), "x", floats())


@_LARGE_BODY
@pytest.mark.parametrize("nbytes", [1 << 20, 64 << 20], ids=["1 MiB", "64 MiB"])
def test_large_wrong_request_is_refused_with_our_text(client: Client, nbytes: int) -> None:
    """The server answers and closes while the client is still sending."""
    tensor = as_input("x", np.zeros(nbytes, dtype=np.uint8), "UINT8")
    with pytest.raises(InferenceServerException) as refused:
        client.infer("nothing", [tensor])
    assert "there is no model 'nothing'" in str(refused.value)
    assert_same(client.infer("identity", [as_input("x", floats(), "FP32")]), "x", floats())


def test_server_metadata(client: Client) -> None:
    assert client.get_server_metadata() == {
        "name": "streamcodec",
        "version": streamcodec.__version__,
        "extensions": ["binary_tensor_data"],
    }


@pytest.mark.parametrize("version", ["", "2"])
def test_model_metadata(client: Client, version: str) -> None:
    assert client.get_model_metadata("calibrate", version) == FULLY_DECLARED


def test_metadata_of_unknown_model(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'") as refused:
        client.get_model_metadata("nothing")
    assert refused.value.status() == "404"


def test_liveness_and_readiness(client: Client) -> None:
    assert client.is_server_live() is True
    assert client.is_server_ready() is True
    assert client.is_model_ready("identity") is True
    assert client.is_model_ready("calibrate", "2") is True
    assert client.is_model_ready("calibrate", "3") is False
    assert client.is_model_ready("nothing") is False


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_model_config", ["identity"]),
        ("get_model_repository_index", []),
        ("get_inference_statistics", ["identity"]),
        ("get_trace_settings", []),
        ("load_model", ["identity"]),
        ("register_system_shared_memory", ["region", "/key", 16]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_extension_that_is_not_offered_is_refused_clearly(client: Client, method: str, arguments: list[Any]) -> None:
    with pytest.raises(InferenceServerException, match="there is no such route in the V2 protocol") as refused:
        getattr(client, method)(*arguments)
    assert refused.value.status() == "404"
