"""Our clients against KServe's ModelServer: what it does in its own way, or Triton not at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcodec import HEADER_LENGTH_FIELD, RequestedOutput, Tensor, encode_raw_request, encode_request
from streamcodec.client import ServerError
from tests.client.drivers import Driver, Kind
from tests.interop.servers.cases import CASES, tours
from tests.interop.servers.exchanges import post, send, without
from tests.interop.tensors import BINARY_ONLY, NOT_FINITE, PLAIN, Array, fingerprint

pytestmark = pytest.mark.interop(system="KServe ModelServer")

Deviation = Callable[[str], None]
_RANKS = [name for name in PLAIN if PLAIN[name].ndim not in (1, 2)]
_SIGNALLING = "FP32 NaN payloads, quiet and signalling"
_QUIET = 1 << 22
"""The bit that tells quiet from signalling NaNs in FP32."""


@pytest.fixture
def url(kserve: str) -> str:
    return kserve


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


@pytest.mark.parametrize(("name", "there", "back"), tours(_RANKS))
def test_tensor_of_any_rank_comes_back_as_sent(client: Driver, name: str, there: bool, back: bool) -> None:
    output = RequestedOutput(name="x", binary_data=back)
    result = client.infer("identity", {"x": CASES[name]}, outputs=[output], is_binary=there)
    assert fingerprint(result["x"]) == fingerprint(CASES[name])
    assert [spec.is_binary for spec in result.header.tensors] == [back]


@pytest.mark.interop(feature="non-finite as JSON")
@pytest.mark.parametrize("name", NOT_FINITE)
def test_nan_and_infinities_as_bare_words_in_json_are_read(client: Driver, name: str) -> None:
    outputs = [RequestedOutput(name="x", binary_data=True)]
    result = client.infer("identity", {"x": CASES[name]}, outputs=outputs, is_binary=False)
    assert fingerprint(result["x"]) == fingerprint(CASES[name])


@pytest.mark.interop(feature="non-finite as JSON")
@pytest.mark.parametrize("name", NOT_FINITE)
def test_nan_and_infinities_are_null_in_json_and_read_as_nan(client: Driver, name: str, deviation: Deviation) -> None:
    outputs = [RequestedOutput(name="x", binary_data=False)]
    result = client.infer("identity", {"x": CASES[name]}, outputs=outputs)
    assert np.isnan(result["x"]).all()
    deviation("writes NaN and both infinities as null; read as NaN")


@pytest.mark.interop(feature="NaN payloads")
def test_signalling_nan_is_sent_as_such_and_made_quiet_by_the_server(client: Driver, deviation: Deviation) -> None:
    sent = CASES[_SIGNALLING].view(np.uint32)
    result = client.infer("identity", {"x": CASES[_SIGNALLING]})
    assert result["x"].view(np.uint32).tolist() == (sent | _QUIET).tolist()
    deviation("converts binary FP32 to Python floats, which makes signalling NaNs quiet; sent as they are")


@pytest.mark.interop(feature="NaN payloads")
def test_nan_payloads_are_received_as_sent(client: Driver) -> None:
    result = client.infer("payloads", {"x": floats()})
    expected = {name.split()[0]: fingerprint(BINARY_ONLY[name]) for name in BINARY_ONLY if "NaN" in name}
    assert {name: fingerprint(array) for name, array in result.outputs.items()} == expected


@pytest.mark.interop(feature="BF16")
def test_bf16_is_refused(client: Driver, deviation: Deviation) -> None:
    with pytest.raises(ServerError, match="invalid datatype") as refused:
        client.infer("identity", {"x": CASES["BF16"]})
    assert refused.value.status == 400
    deviation("does not support BF16 (400); its error is passed on")


@pytest.mark.interop(feature="BYTES hostile to text")
def test_elements_that_are_not_utf8_are_an_error(client: Driver, deviation: Deviation) -> None:
    with pytest.raises(ServerError, match=r"Failed to encode .* using UTF-8") as failed:
        client.infer("identity", {"x": CASES["BYTES not in UTF-8"]})
    assert failed.value.status == 500
    deviation("fails (500) on binary elements that are not UTF-8; its error is passed on")


@pytest.mark.interop(feature="binary tensors")
def test_binary_answer_has_neither_type_nor_length(url: str, deviation: Deviation) -> None:
    message = encode_request([Tensor(name="x", array=floats())], parameters={"binary_data_output": True})
    answer = post(url, "identity/infer", message)
    assert answer.forms() == {"x": "binary"}
    assert answer.value(b"content-type") is None
    assert answer.value(b"content-length") is None
    assert answer.value(b"transfer-encoding") == "chunked"
    deviation("answers without Content-Type and in chunks; read, with one more copy")


@pytest.mark.interop(feature="ids and parameters")
def test_an_answer_in_json_needs_an_id_which_our_clients_always_send(
    client: Driver, url: str, deviation: Deviation
) -> None:
    message = encode_request([Tensor(name="x", array=floats(), is_binary=False)])
    assert post(url, "echo/infer", message).status == 500
    assert np.array_equal(client.infer("echo", {"x": floats()}, is_binary=False)["x"], floats())
    deviation("cannot answer in JSON if neither request nor model gives an id (500); our clients always send one")


@pytest.mark.interop(feature="raw binary request")
def test_raw_request_is_refused(url: str, deviation: Deviation) -> None:
    answer = post(url, "identity/infer", encode_raw_request(floats()))
    assert answer.status == 400
    assert "Input is a zero-length, empty document" in answer.text
    deviation("parses JSON of length 0 and refuses it (400); its error is passed on")


@pytest.mark.interop(feature="headerless form")
@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/octet-stream", "'inference-header-content-length' header is missing"),
        ("application/json", "There was an error parsing the body"),
    ],
)
def test_headerless_form_is_refused(url: str, content_type: str, text: str, deviation: Deviation) -> None:
    message = encode_request([Tensor(name="x", array=floats())])
    fields = [*without(message, HEADER_LENGTH_FIELD, "Content-Type"), ("Content-Type", content_type)]
    answer = send(url, "identity/infer", fields, message.buffers)
    assert answer.status == 400
    assert text in answer.text
    deviation("refuses it (400); never sent")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=pytest.mark.interop(feature=f"{name} request")) for name in ("gzip", "deflate")],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_compressed_request_is_refused(
    kind: Kind, url: str, algorithm: str, is_binary: bool, deviation: Deviation
) -> None:
    with (
        kind.client(url, request_compression=algorithm) as client,
        pytest.raises(ServerError, match=r"Unrecognized request format|error parsing the body") as refused,
    ):
        client.infer("identity", {"x": floats(50_000)}, is_binary=is_binary)
    assert refused.value.status == 400
    deviation("does not look at Content-Encoding and refuses (400); its error is passed on")


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("is_binary", [True, False])
def test_response_is_plain_though_asked_for_compressed(
    kind: Kind, url: str, is_binary: bool, deviation: Deviation
) -> None:
    message = encode_request([Tensor(name="x", array=floats())])
    assert post(url, "identity/infer", message, fields=[("Accept-Encoding", "gzip")]).value(b"content-encoding") is None
    with kind.client(url, response_compression="gzip") as client:
        result = client.infer("identity", {"x": floats(50_000)}, is_binary=is_binary)
    assert fingerprint(result["x"]) == fingerprint(floats(50_000))
    deviation("does not compress; the plain answer is read")


@pytest.mark.interop(feature="errors")
@pytest.mark.parametrize(
    ("fail", "status", "text"),
    [("invalid", 400, "the model wants it otherwise"), ("broken", 500, "RuntimeError : the model is broken")],
)
def test_failing_model_is_an_error_with_the_models_text(client: Driver, fail: str, status: int, text: str) -> None:
    with pytest.raises(ServerError) as failed:
        client.infer("identity", {"x": floats()}, parameters={"fail": fail})
    assert (failed.value.status, failed.value.text) == (status, text)


@pytest.mark.interop(feature="errors")
def test_connection_ends_unannounced_after_a_500_and_the_next_call_works(client: Driver, deviation: Deviation) -> None:
    for _ in range(20):
        with pytest.raises(ServerError, match="the model is broken"):
            client.infer("identity", {"x": floats()}, parameters={"fail": "broken"})
        assert fingerprint(client.infer("identity", {"x": floats()})["x"]) == fingerprint(floats())
    deviation("closes the connection after a 500 without `Connection: close`; our clients make a new connection")


@pytest.mark.interop(feature="metadata and health")
def test_metadata_does_not_tell_all(client: Driver, deviation: Deviation) -> None:
    server = client.call("server_metadata")
    assert server["name"] == "kserve"
    assert "binary_tensor_data" not in server["extensions"]
    deviation("does not list `binary_tensor_data` among its extensions; our clients do not use this list")


@pytest.mark.interop(feature="versions")
def test_versions_are_refused(client: Driver, deviation: Deviation) -> None:
    with pytest.raises(ServerError, match="Model versioning not supported yet") as refused:
        client.infer("identity", {"x": floats()}, version="1")
    assert refused.value.status == 501
    assert client.call("is_model_ready", "identity", "1") is False
    assert client.call("model_metadata", "identity")["versions"] is None
    assert client.infer("identity", {"x": floats()}).header.model_version is None
    deviation("has no versions of models (501); its error is passed on")


@pytest.mark.interop(feature="classification")
def test_classes_are_not_known(client: Driver, deviation: Deviation) -> None:
    output = RequestedOutput(name="x", binary_data=True, parameters={"classification": 2})
    result = client.infer("identity", {"x": floats()}, outputs=[output])
    assert fingerprint(result["x"]) == fingerprint(floats())
    deviation("does not know this extension of Triton, and answers with the tensor; read as a tensor")
