"""Our clients against Triton and KServe's ModelServer: what both do, and do alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import RequestedOutput, Tensor, encode_request
from streamcodec.client import InferResult, ServerError
from tests.client.drivers import Driver
from tests.interop.servers.cases import CASES, NO_JSON, model_of, tours
from tests.interop.servers.exchanges import post, send, without
from tests.interop.tensors import PLAIN, Array, datatype, elements, fingerprint

_RANKS = (1, 2)
_PLAIN = [name for name in PLAIN if PLAIN[name].ndim in _RANKS]
_BINARY_ONLY = ["FP16", "FP64 NaN payloads, quiet and signalling"]
_NOT_FINITE = ["FP32 infinities and NaN", "FP64 infinities and NaN"]
_MORE = ["INT8 of shape [0, 3], size 0", "BYTES of 1 MiB each"]


@pytest.fixture(
    params=[
        pytest.param("triton", marks=pytest.mark.interop(system="Triton server")),
        pytest.param("kserve", marks=pytest.mark.interop(system="KServe ModelServer")),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """URL of each server."""
    url: str = request.getfixturevalue(request.param)
    return url


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


def round_trip(client: Driver, name: str, *, there: bool, back: bool) -> InferResult:
    array, output = CASES[name], datatype(name)
    wanted = RequestedOutput(name=output, binary_data=back)
    return client.infer(model_of(array), {output: array}, outputs=[wanted], is_binary=there)


def seen(result: InferResult) -> dict[str, Any]:
    """What the model `seen` says that it was given."""
    report: dict[str, Any] = json.loads(result["SEEN"].reshape(-1)[0])
    return report


@pytest.mark.parametrize(
    ("name", "there", "back"),
    [*tours([*_PLAIN, *_MORE]), *tours([*_BINARY_ONLY, *_NOT_FINITE], forms=["binary"])],
)
def test_tensor_comes_back_as_sent(client: Driver, name: str, there: bool, back: bool) -> None:
    result = round_trip(client, name, there=there, back=back)
    assert fingerprint(result[datatype(name)]) == fingerprint(CASES[name])
    assert [spec.is_binary for spec in result.header.tensors] == [back]


@pytest.mark.interop(feature="FP16")
def test_fp16_asked_for_as_json_is_refused(client: Driver) -> None:
    with pytest.raises(ServerError, match=r"(?i)sending FP16 data via JSON is not supported") as refused:
        round_trip(client, "FP16", there=True, back=False)
    assert refused.value.status == 400


@pytest.mark.interop(feature="binary and JSON mixed")
def test_all_plain_tensors_in_one_request_binary_and_json_mixed_both_ways(url: str) -> None:
    """Binary outputs are found although JSON outputs and outputs of size 0 stand between them."""
    names = [name for name in ["FP16", *_PLAIN] if name == datatype(name)]
    arrays = {name: CASES[name].reshape(-1) for name in names} | {"INT8": np.empty(0, dtype=np.int8)}
    there = {name: name in NO_JSON or index % 2 == 0 for index, name in enumerate(names)}
    back = {name: name in NO_JSON or index % 3 == 0 for index, name in enumerate(names)}
    message = encode_request(
        [Tensor(name=name, array=arrays[name], is_binary=there[name]) for name in names],
        outputs=[RequestedOutput(name=name, binary_data=back[name]) for name in names],
    )
    answer = post(url, "identity/infer", message)
    assert {name: fingerprint(answer.outputs[name]) for name in names} == {n: fingerprint(arrays[n]) for n in names}
    assert answer.forms() == {name: "binary" if back[name] else "json" for name in names}


@pytest.mark.interop(feature="requested outputs")
def test_outputs_are_those_asked_for(client: Driver) -> None:
    inputs = {"FP32": floats(), "INT64": np.arange(3), "BYTES": elements(b"a")}
    result = client.infer("identity", inputs, outputs=["BYTES", "FP32"])
    assert set(result.outputs) == {"BYTES", "FP32"}
    assert fingerprint(result["FP32"]) == fingerprint(inputs["FP32"])


@pytest.mark.interop(feature="requested outputs")
def test_without_a_list_all_outputs_come_in_binary(client: Driver) -> None:
    result = client.infer("identity", {"FP32": floats(), "BYTES": elements(b"a")})
    assert {spec.name: spec.is_binary for spec in result.header.tensors} == {"FP32": True, "BYTES": True}


@pytest.mark.interop(feature="requested outputs")
@pytest.mark.parametrize("is_binary", [True, False])
def test_each_listed_output_has_its_form(client: Driver, is_binary: bool) -> None:
    """The client writes the form beside each output, since both servers forget `binary_data_output` there."""
    inputs = {"FP32": floats(), "BYTES": elements(b"a")}
    other = RequestedOutput(name="BYTES", binary_data=not is_binary)
    result = client.infer("identity", inputs, outputs=["FP32", other], is_binary=is_binary)
    assert {spec.name: spec.is_binary for spec in result.header.tensors} == {"FP32": is_binary, "BYTES": not is_binary}


@pytest.mark.interop(feature="requested outputs")
def test_listed_output_without_a_form_comes_as_json_although_binary_data_output_is_true(
    url: str, deviation: Callable[[str], None]
) -> None:
    message = encode_request(
        [Tensor(name="FP32", array=floats())],
        outputs=[RequestedOutput(name="FP32", binary_data=None)],
        parameters={"binary_data_output": True},
    )
    assert post(url, "identity/infer", message).forms() == {"FP32": "json"}
    deviation("ignores `binary_data_output` if outputs are listed; our clients give `binary_data` for each output")


@pytest.mark.interop(feature="requested outputs")
def test_unknown_output_is_refused(client: Driver) -> None:
    with pytest.raises(ServerError, match=r"(?i)unexpected inference output 'nothing' for model 'identity'") as refused:
        client.infer("identity", {"FP32": floats()}, outputs=["nothing"])
    assert refused.value.status == 400


@pytest.mark.interop(feature="ids and parameters")
@pytest.mark.parametrize("request_id", ["42", 'größer 🦊 " \\ \n', "x" * 1000])
def test_request_id_is_echoed(client: Driver, request_id: str) -> None:
    result = client.infer("identity", {"FP32": floats()}, request_id=request_id)
    assert result.header.id == request_id
    assert result.header.model_name == "identity"


@pytest.mark.interop(feature="ids and parameters")
def test_id_and_parameters_reach_the_model(client: Driver) -> None:
    parameters = {"text": "größer", "count": 2**53 + 1, "flag": True, "ratio": 0.5}
    report = seen(client.infer("seen", {"FP32": floats()}, request_id="7", parameters=parameters))
    assert report["id"] == "7"
    assert {name: report["parameters"][name] for name in parameters} == parameters


@pytest.mark.interop(feature="large tensors")
def test_tensor_of_64_mib(client: Driver) -> None:
    array = np.arange(1 << 24, dtype=np.float32)
    assert np.array_equal(client.infer("identity", {"FP32": array})["FP32"], array)


@pytest.mark.interop(feature="large tensors")
def test_body_in_chunks(url: str) -> None:
    message = encode_request(
        [Tensor(name="FP32", array=floats(100_000)), Tensor(name="BYTES", array=elements(b"a\0", b""))],
        parameters={"binary_data_output": True},
    )
    fields = [*without(message, "Content-Length"), ("Transfer-Encoding", "chunked")]
    answer = send(url, "identity/infer", fields, message.buffers)
    assert fingerprint(answer.outputs["FP32"]) == fingerprint(floats(100_000))
    assert answer.outputs["BYTES"].tolist() == [b"a\0", b""]


@pytest.mark.interop(feature="large tensors")
def test_body_that_waits_for_100_continue(url: str) -> None:
    message = encode_request([Tensor(name="FP32", array=floats(100_000))], parameters={"binary_data_output": True})
    fields = [*message.headers, ("Expect", "100-continue")]
    answer = send(url, "identity/infer", fields, message.buffers, awaits_continue=True)
    assert fingerprint(answer.outputs["FP32"]) == fingerprint(floats(100_000))


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize("is_binary", [True, False])
def test_unknown_model_is_an_error_with_the_servers_text_and_the_next_call_works(
    client: Driver, is_binary: bool
) -> None:
    with pytest.raises(ServerError, match=r"is not found|does not exist") as refused:
        client.infer("nothing", {"FP32": floats()}, is_binary=is_binary)
    assert refused.value.status == 404
    assert fingerprint(client.infer("identity", {"FP32": floats()})["FP32"]) == fingerprint(floats())


@pytest.mark.interop(feature="errors")
def test_large_request_to_unknown_model_is_an_error_with_the_servers_text(client: Driver) -> None:
    with pytest.raises(ServerError, match=r"is not found|does not exist"):
        client.infer("nothing", {"FP32": floats(1 << 22)})


@pytest.mark.interop(feature="errors")
def test_server_bids_the_body_of_a_request_come_that_it_refuses(url: str, deviation: Callable[[str], None]) -> None:
    message = encode_request([Tensor(name="FP32", array=floats(1 << 20))])
    fields = [*message.headers, ("Expect", "100-continue")]
    assert send(url, "nothing/infer", fields, message.buffers, awaits_continue=True).status == 404
    deviation("reads the whole body before it refuses a request by its head; our clients send the whole body")


@pytest.mark.interop(feature="metadata and health")
def test_liveness_and_readiness(client: Driver) -> None:
    assert client.call("is_server_live") is True
    assert client.call("is_server_ready") is True
    assert client.call("is_model_ready", "identity") is True
    assert client.call("is_model_ready", "nothing") is False


@pytest.mark.interop(feature="metadata and health")
def test_metadata_of_a_model(client: Driver) -> None:
    metadata = client.call("model_metadata", "identity")
    assert metadata["name"] == "identity"
    for way in ("inputs", "outputs"):
        assert {"name": "FP32", "datatype": "FP32", "shape": [-1]} in metadata[way]


@pytest.mark.interop(feature="metadata and health")
def test_metadata_of_unknown_model_is_an_error(client: Driver) -> None:
    with pytest.raises(ServerError, match=r"is not found|does not exist") as refused:
        client.call("model_metadata", "nothing")
    assert refused.value.status == 404
