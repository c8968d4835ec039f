"""Our clients against Triton: what it does in its own way, or KServe not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    HEADER_LENGTH_FIELD,
    ErrorCode,
    RemoteProtocolError,
    RequestedOutput,
    Tensor,
    encode_raw_request,
    encode_request,
)
from streamcodec.client import ServerError
from tests.client.drivers import Driver, Kind
from tests.interop.servers.cases import CASES, model_of, tours
from tests.interop.servers.exchanges import Answer, post, send, without
from tests.interop.tensors import NOT_FINITE, Array, datatype, elements, fingerprint

pytestmark = pytest.mark.interop(system="Triton server")

Deviation = Callable[[str], None]
_LONG_TIMEOUT = 300.0
_BINARY_ONLY = ["BF16", "FP32 NaN payloads, quiet and signalling", "BYTES not in UTF-8"]


@pytest.fixture
def url(triton: str) -> str:
    return triton


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def raw(url: str, model: str, array: Array) -> Answer:
    """Send a raw binary request."""
    return post(url, f"{model}/infer", encode_raw_request(array))


@pytest.mark.parametrize(("name", "there", "back"), [*tours(_BINARY_ONLY, forms=["binary"]), *tours(NOT_FINITE)])
def test_tensor_comes_back_as_sent(client: Driver, name: str, there: bool, back: bool) -> None:
    output = RequestedOutput(name=datatype(name), binary_data=back)
    result = client.infer(model_of(CASES[name]), {output.name: CASES[name]}, outputs=[output], is_binary=there)
    assert fingerprint(result[output.name]) == fingerprint(CASES[name])
    assert [spec.is_binary for spec in result.header.tensors] == [back]


@pytest.mark.interop(feature="non-finite as JSON")
def test_nan_and_infinities_are_bare_words_in_json(client: Driver, deviation: Deviation) -> None:
    values = np.array([np.nan, np.inf, -np.inf])
    result = client.infer("identity", {"FP64": values}, is_binary=False)
    assert not result.header.tensors[0].is_binary
    assert fingerprint(result["FP64"]) == fingerprint(values)
    deviation("writes the literals NaN and Infinity, which are not JSON; read, and written the same way")


@pytest.mark.interop(feature="scalars")
@pytest.mark.parametrize("is_binary", [True, False])
def test_scalar_is_refused(client: Driver, is_binary: bool, deviation: Deviation) -> None:
    with pytest.raises(ServerError, match=r"unexpected shape for input 'FP32' .* got \[\]") as refused:
        client.infer("identity", {"FP32": np.float32(1.5)}, is_binary=is_binary)
    assert refused.value.status == 400
    deviation("does not accept shape [], and no model can declare it; its error is passed on; send shape [1]")


@pytest.mark.interop(feature="empty tensors")
def test_binary_output_of_size_0_comes_without_header_length(url: str, deviation: Deviation) -> None:
    message = encode_request([Tensor(name="FP32", array=floats(0))], parameters={"binary_data_output": True})
    answer = post(url, "identity/infer", message)
    assert answer.value(b"inference-header-content-length") is None
    assert answer.value(b"content-type") == "application/json"
    assert answer.forms() == {"FP32": "binary"}
    assert fingerprint(answer.outputs["FP32"]) == fingerprint(floats(0))
    deviation("answers binary outputs of size 0 without header length, as JSON with `binary_data_size` 0; read")


@pytest.mark.interop(feature="BYTES hostile to text")
def test_elements_that_are_not_utf8_come_as_broken_json_if_asked_for(client: Driver, deviation: Deviation) -> None:
    output = RequestedOutput(name="BYTES", binary_data=False)
    with pytest.raises(RemoteProtocolError) as refused:
        client.infer("identity", {"BYTES": elements(b"\xff\xfe\0")}, outputs=[output])
    assert refused.value.code is ErrorCode.INVALID_UTF8
    deviation("writes elements that are not UTF-8 into JSON unchanged; refused; request binary data")


@pytest.mark.interop(feature="BF16")
def test_bf16_asked_for_as_json_is_refused(client: Driver) -> None:
    with pytest.raises(ServerError, match="sending BF16 data via JSON is not supported") as refused:
        client.infer("identity", {"BF16": CASES["BF16"]}, outputs=[RequestedOutput(name="BF16", binary_data=False)])
    assert refused.value.status == 400


@pytest.mark.interop(feature="large tensors")
def test_tensor_of_128_mib_is_received_in_place(client: Driver) -> None:
    array = floats(1 << 25)
    assert np.array_equal(client.infer("identity", {"FP32": array})["FP32"], array)
    assert client.client.received_copied < 1 << 20


@pytest.mark.interop(feature="large tensors")
def test_body_over_2_gib_is_refused(url: str, deviation: Deviation) -> None:
    """It takes Triton seconds and 2 GiB, so one client must do; ours sends from memory that is never touched."""
    array = np.zeros((2 << 30) + 1, dtype=np.uint8)
    with (
        Kind("sync").client(url, timeout=_LONG_TIMEOUT) as client,
        pytest.raises(ServerError, match="inference header size should be in range") as refused,
    ):
        client.infer("identity", {"UINT8": array})
    assert refused.value.status == 400
    deviation("counts bodies in 32 bits, and refuses more than 2 GiB (400) after reading them; its error is passed on")


@pytest.mark.interop(feature="raw binary request")
@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_raw_request_of_floats(url: str, count: int) -> None:
    answer = raw(url, "single", floats(count))
    assert answer.forms() == {"FP32": "binary"}
    assert fingerprint(answer.outputs["FP32"]) == fingerprint(floats(count))


@pytest.mark.interop(feature="raw binary request")
def test_raw_request_to_model_with_batches_is_a_batch_of_one(url: str) -> None:
    assert fingerprint(raw(url, "batches", floats(4)).outputs["FP32"]) == fingerprint(floats(1, 4))


@pytest.mark.interop(feature="raw binary request")
def test_raw_request_of_bytes_is_one_element(url: str) -> None:
    assert raw(url, "element", elements(b"\xff\0abc")).outputs["BYTES"].tolist() == [b"\xff\0abc"]


@pytest.mark.interop(feature="raw binary request")
@pytest.mark.parametrize(
    ("model", "array", "text"),
    [
        ("identity", floats(4), "Raw request must only have 1 input"),
        ("single", np.zeros(15, dtype=np.uint8), "input byte size mismatch"),
    ],
)
def test_raw_request_that_does_not_fit_the_model_is_refused(url: str, model: str, array: Array, text: str) -> None:
    answer = raw(url, model, array)
    assert answer.status == 400
    assert text in answer.text


@pytest.mark.interop(feature="headerless form")
def test_headerless_form_is_refused(url: str, deviation: Deviation) -> None:
    message = encode_request([Tensor(name="FP32", array=floats(4))])
    answer = send(url, "identity/infer", without(message, HEADER_LENGTH_FIELD), message.buffers)
    assert answer.status == 400
    assert "expecting 16 additional bytes" in answer.text
    deviation("refuses it (400); never sent")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=pytest.mark.interop(feature=f"{name} request")) for name in ("gzip", "deflate")],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_compressed_request(kind: Kind, url: str, algorithm: str, is_binary: bool) -> None:
    inputs = {"FP32": floats(50_000), "BYTES": elements(b"a\0", b"")}
    with kind.client(url, request_compression=algorithm) as client:
        result = client.infer("identity", inputs, is_binary=is_binary)
    assert {name: fingerprint(result[name]) for name in inputs} == {n: fingerprint(inputs[n]) for n in inputs}


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_compressed_response(kind: Kind, url: str, algorithm: str, is_binary: bool) -> None:
    inputs = {"FP32": floats(50_000), "BYTES": elements(b"a\0", b"")}
    with kind.client(url, response_compression=algorithm) as client:
        result = client.infer("identity", inputs, is_binary=is_binary)
        # A plain answer would be received in place but for what came with its head.
        assert client.client.received_copied > inputs["FP32"].nbytes
    assert {name: fingerprint(result[name]) for name in inputs} == {n: fingerprint(inputs[n]) for n in inputs}


@pytest.mark.interop(feature="compressed response")
def test_error_is_plain_where_a_compressed_response_was_asked_for(kind: Kind, url: str) -> None:
    with kind.client(url, response_compression="gzip") as client, pytest.raises(ServerError, match="is not found"):
        client.infer("nothing", {"FP32": floats(4)})


_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "wrong shape": ({"FP32": floats(2, 2)}, r"unexpected shape for input 'FP32' .* got \[2,2\]"),
    "wrong datatype": ({"FP32": np.zeros(4)}, "data-type is 'FP64', but model 'identity' expects 'FP32'"),
    "unknown input": ({"nothing": floats(4)}, "unexpected inference input 'nothing' for model 'identity'"),
}


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize("name", _WRONG)
def test_wrong_request_is_an_error_with_the_servers_text_and_the_next_call_works(client: Driver, name: str) -> None:
    inputs, text = _WRONG[name]
    with pytest.raises(ServerError, match=text) as refused:
        client.infer("identity", inputs)
    assert refused.value.status == 400
    assert fingerprint(client.infer("identity", {"FP32": floats(4)})["FP32"]) == fingerprint(floats(4))


@pytest.mark.interop(feature="errors")
def test_failing_model_is_an_error_with_the_models_text(client: Driver) -> None:
    with pytest.raises(ServerError) as failed:
        client.infer("identity", {"FP32": floats(4)}, parameters={"fail": "the model cannot, größer 🦊"})
    assert (failed.value.status, failed.value.text) == (500, "the model cannot, größer 🦊")


@pytest.mark.interop(feature="errors")
def test_errors_are_json_that_is_called_plain_text(url: str, deviation: Deviation) -> None:
    answer = post(url, "nothing/infer", encode_request([Tensor(name="FP32", array=floats(4))]))
    assert answer.value(b"content-type") == "text/plain"
    assert json.loads(answer.text).keys() == {"error"}
    deviation("declares some of its JSON errors as text/plain; the body is checked, not its type")


@pytest.mark.interop(feature="metadata and health")
def test_server_metadata(client: Driver) -> None:
    metadata = client.call("server_metadata")
    assert metadata["name"] == "triton"
    assert {"binary_tensor_data", "classification"} <= set(metadata["extensions"])


@pytest.mark.interop(feature="metadata and health")
def test_documents_of_extensions(client: Driver) -> None:
    assert client.call("model_config", "single", "1")["input"][0]["data_type"] == "TYPE_FP32"
    (entry,) = client.call("statistics", "single", "1")["model_stats"]
    assert (entry["name"], entry["version"]) == ("single", "1")
    assert {"name": "single", "version": "1", "state": "READY"} in client.call("repository_index", ready=True)


@pytest.mark.interop(feature="metadata and health")
def test_settings_are_changed_and_returned(client: Driver) -> None:
    assert client.call("trace_settings", "single", {"trace_rate": "7"})["trace_rate"] == "7"
    assert client.call("trace_settings", "single")["trace_rate"] == "7"
    usual = client.call("trace_settings")["trace_rate"]
    assert client.call("trace_settings", "single", {"trace_rate": None})["trace_rate"] == usual
    assert client.call("log_settings", {"log_verbose_level": 0}) == client.call("log_settings")


@pytest.mark.interop(feature="errors")
def test_a_server_that_polls_its_repository_loads_nothing_by_request(client: Driver) -> None:
    for method, arguments in (("load", {"config": {}, "files": {"1/model.py": b""}}), ("unload", {"dependents": True})):
        with pytest.raises(ServerError, match="explicit model load / unload is not allowed"):
            client.call(method, "single", **arguments)


@pytest.mark.interop(feature="versions")
@pytest.mark.parametrize(("asked", "answered"), [(None, "2"), ("1", "1"), ("2", "2")])
def test_version_of_a_model(client: Driver, asked: str | None, answered: str) -> None:
    result = client.infer("seen", {"FP32": floats(4)}, version=asked)
    assert result.header.model_version == answered
    assert json.loads(result["SEEN"][0])["version"] == answered


@pytest.mark.interop(feature="versions")
def test_versions_in_metadata_and_readiness(client: Driver) -> None:
    assert client.call("model_metadata", "seen")["versions"] == ["1", "2"]
    assert client.call("is_model_ready", "seen", "1") is True
    assert client.call("is_model_ready", "seen", "9") is False


@pytest.mark.interop(feature="versions")
def test_unknown_version_is_an_error(client: Driver) -> None:
    with pytest.raises(ServerError, match="'seen' version 9 is not found") as refused:
        client.infer("seen", {"FP32": floats(4)}, version="9")
    assert refused.value.status == 404


@pytest.mark.interop(feature="classification")
@pytest.mark.parametrize("is_binary", [True, False])
def test_classes_of_a_batch_with_labels(client: Driver, is_binary: bool) -> None:
    output = RequestedOutput(name="FP32", binary_data=is_binary, parameters={"classification": 2})
    result = client.infer("batches", {"FP32": floats(2, 4)}, outputs=[output])
    expected = [[b"3.000000:3:owl", b"2.000000:2:otter"], [b"7.000000:3:owl", b"6.000000:2:otter"]]
    assert result["FP32"].tolist() == expected
    assert [spec.is_binary for spec in result.header.tensors] == [is_binary]


@pytest.mark.interop(feature="classification")
def test_classes_without_labels_and_fewer_than_asked_for(client: Driver) -> None:
    values = np.array([0.5, np.nan, 1.25], dtype=np.float32)
    output = RequestedOutput(name="FP32", parameters={"classification": 9})
    result = client.infer("identity", {"FP32": values}, outputs=[output])
    assert result["FP32"].tolist() == [b"1.250000:2", b"0.500000:0", b"nan:1"]
