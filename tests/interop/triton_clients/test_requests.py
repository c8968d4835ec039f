"""Requests: what can be asked besides tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tritonclient.http import InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.interop.models import NAME_WITH_BLANK
from tests.interop.tensors import elements
from tests.interop.triton_clients.clients import Client, as_input, assert_same, floats, is_binary, seen

Deviation = Callable[[str], None]
ALGORITHMS = ("gzip", "deflate")
IN_BOTH_FORMS = pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=pytest.mark.interop(feature=f"{name} request")) for name in ALGORITHMS]
)
@IN_BOTH_FORMS
def test_compressed_request(client: Client, algorithm: str, binary: bool) -> None:
    array = floats(50_000)
    result = client.infer(
        "identity",
        [as_input("x", array, "FP32", binary=binary), as_input("y", elements(b"a\0", b""), "BYTES")],
        request_compression_algorithm=algorithm,
    )
    assert_same(result, "x", array)
    assert_same(result, "y", elements(b"a\0", b""))


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@IN_BOTH_FORMS
def test_compressed_response(
    compressing_client: Client, algorithm: str, binary: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    array = floats(5000)
    result = compressing_client.infer(
        "identity",
        [as_input("x", array, "FP32"), as_input("y", elements(b"a\0", b""), "BYTES")],
        outputs=[InferRequestedOutput(name, binary_data=binary) for name in "xy"],
        response_compression_algorithm=algorithm,
    )
    assert is_compressed(capsys, algorithm)
    assert is_binary(result, "x") is binary
    assert_same(result, "x", array)
    assert_same(result, "y", elements(b"a\0", b""))


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_compressed_both_ways(compressing_client: Client, algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = compressing_client.infer(
        "identity",
        [as_input("x", floats(5000), "FP32")],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert is_compressed(capsys, algorithm)
    assert_same(result, "x", floats(5000))


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_error_where_a_compressed_response_was_asked_for_is_read(compressing_client: Client, algorithm: str) -> None:
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        compressing_client.infer("nothing", [as_input("x", floats(), "FP32")], response_compression_algorithm=algorithm)


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_plain_response_of_a_server_that_does_not_compress_is_read(client: Client, algorithm: str) -> None:
    result = client.infer("identity", [as_input("x", floats(), "FP32")], response_compression_algorithm=algorithm)
    assert_same(result, "x", floats())


@pytest.mark.interop(feature="compressed response")
def test_response_that_nobody_asked_to_be_compressed(
    compressing_client: Client, system: str, capsys: pytest.CaptureFixture[str], deviation: Deviation
) -> None:
    result = compressing_client.infer("identity", [as_input("x", floats(5000), "FP32")])
    assert_same(result, "x", floats(5000))
    asks_unawares = system == "tritonclient aio"  # by a field that aiohttp adds
    assert is_compressed(capsys, "gzip") is asks_unawares
    if asks_unawares:
        deviation(
            "asks for compressed answers in every request unless told otherwise; "
            "answered plain unless the server was started with `--compress`"
        )


@pytest.mark.interop(feature="ids and parameters")
@pytest.mark.parametrize("request_id", ["42", 'größer 🦊 " \\ \n', "x" * 1000])
def test_request_id_is_echoed(client: Client, request_id: str) -> None:
    result = client.infer("identity", [as_input("x", floats(), "FP32")], request_id=request_id)
    assert result.get_response()["id"] == request_id


@pytest.mark.interop(feature="ids and parameters")
def test_no_request_id_gives_none_back(client: Client) -> None:
    response = client.infer("identity", [as_input("x", floats(), "FP32")]).get_response()
    assert "id" not in response
    assert (response["model_name"], response["model_version"]) == ("identity", "1")


@pytest.mark.interop(feature="ids and parameters")
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


@pytest.mark.interop(feature="ids and parameters")
def test_headers_and_query_of_the_users_own_are_harmless(client: Client) -> None:
    result = client.infer(
        "identity", [as_input("x", floats(), "FP32")], headers={"X-Trace": "1"}, query_params={"a b": ["1", "&"]}
    )
    assert_same(result, "x", floats())


@pytest.mark.interop(feature="requested outputs")
def test_outputs_are_those_asked_for_in_that_order(client: Client) -> None:
    inputs = [as_input(name, floats(), "FP32") for name in "abcd"]
    result = client.infer("identity", inputs, outputs=[InferRequestedOutput(name) for name in "ca"])
    assert [output["name"] for output in result.get_response()["outputs"]] == ["c", "a"]
    assert result.as_numpy("b") is None


@pytest.mark.interop(feature="requested outputs")
def test_without_a_list_all_outputs_of_the_model_come_in_binary(client: Client) -> None:
    image = floats(6).reshape(2, 3)
    gain = np.array([2], dtype=np.float32)
    result = client.infer("calibrate", [as_input("GAIN", gain, "FP32"), as_input("IMAGE", image, "FP32")])
    assert_same(result, "SCALED", image * 2)
    assert_same(result, "MEAN", np.array([3, 5, 7], dtype=np.float32))
    assert is_binary(result, "SCALED")


@pytest.mark.interop(feature="versions")
@pytest.mark.parametrize("version", ["1", "2"])
def test_version_of_a_model(client: Client, version: str) -> None:
    inputs = [as_input("IMAGE", floats(3).reshape(1, 3), "FP32"), as_input("GAIN", floats(1), "FP32")]
    assert client.infer("calibrate", inputs, model_version=version).get_response()["model_version"] == version


@pytest.mark.interop(feature="versions")
def test_unknown_version_is_refused_with_our_text(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="model 'identity' has no version '9'") as refused:
        client.infer("identity", [as_input("x", floats(), "FP32")], model_version="9")
    assert refused.value.status() == "404"


@pytest.mark.interop(feature="metadata and health")
def test_name_of_a_model_is_percent_decoded(client: Client) -> None:
    result = client.infer(NAME_WITH_BLANK, [as_input("x", floats(), "FP32")])
    assert seen(result)["model"] == NAME_WITH_BLANK
    assert result.get_response()["model_name"] == NAME_WITH_BLANK


@pytest.mark.interop(feature="classification")
@IN_BOTH_FORMS
def test_classes_of_a_batch_with_labels(client: Client, binary: bool) -> None:
    scores = np.array([[0.5, -1, 8, 2], [3, 9, 9, -np.inf]], dtype=np.float32)
    wanted = InferRequestedOutput("SCORES", binary_data=binary, class_count=2)
    result = client.infer("animals", [as_input("SCORES", scores, "FP32")], outputs=[wanted])
    expected = [b"8.000000:2:otter", b"2.000000:3:owl", b"9.000000:1:dog", b"9.000000:2:otter"]
    assert_same(result, "SCORES", elements(*expected, shape=(2, 2)))
    assert is_binary(result, "SCORES") is binary


@pytest.mark.interop(feature="classification")
def test_classes_without_labels_beside_an_output_as_it_is(client: Client) -> None:
    scores = np.array([5, 2**63 - 1, -(2**63)], dtype=np.int64)
    result = client.infer(
        "identity",
        [as_input("a", scores, "INT64"), as_input("b", scores, "INT64")],
        outputs=[InferRequestedOutput("a", class_count=99), InferRequestedOutput("b")],
    )
    assert_same(result, "a", elements(b"9223372036854775807:1", b"5:0", b"-9223372036854775808:2"))
    assert_same(result, "b", scores)


@pytest.mark.interop(feature="classification")
def test_classes_of_bytes_are_refused_with_our_text(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="the output is BYTES, whose values have no order") as refused:
        client.infer(
            "identity",
            [as_input("x", elements(b"a", b"b"), "BYTES")],
            outputs=[InferRequestedOutput("x", class_count=1)],
        )
    assert refused.value.status() == "400"


def is_compressed(capsys: pytest.CaptureFixture[str], algorithm: str) -> bool:
    """Look for the response's field in what the client has printed, which ends with the fields and the JSON."""
    printed = capsys.readouterr().out.lower()
    return f"'content-encoding': '{algorithm}'" in printed
