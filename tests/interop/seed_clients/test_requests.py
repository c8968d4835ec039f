"""Requests: what can be asked besides tensors, and in which wrappings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.interop.models import NAME_WITH_BLANK
from tests.interop.seed_clients.jobs import Caller, assert_same, floats
from tests.interop.seed_clients.systems import GO, NODE, PYTHON, only
from tests.interop.tensors import elements

Deviation = Callable[[str], None]
_ALGORITHMS = ("gzip", "deflate")
_INPUTS = {"x": floats(50_000), "y": elements(b"a\0", b"")}
_COMPRESSED = [pytest.param(name, marks=pytest.mark.interop(feature=f"{name} request")) for name in _ALGORITHMS]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", _COMPRESSED)
@pytest.mark.parametrize("framing", ["headerless", "length"])
@pytest.mark.parametrize("as_json", ["", "x", "xy"])
def test_compressed_request(client: Caller, algorithm: str, framing: str, as_json: str) -> None:
    answer = client.infer(_INPUTS, encoding=algorithm, framing=framing, as_json=as_json, binary_output=True)
    assert_same(answer.outputs, _INPUTS)


@only(PYTHON, NODE, GO)
@pytest.mark.parametrize("algorithm", _COMPRESSED)
def test_compressed_request_in_chunks(client: Caller, algorithm: str) -> None:
    answer = client.infer(_INPUTS, encoding=algorithm, chunk_bytes=1000, binary_output=True)
    assert_same(answer.outputs, _INPUTS)


@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("back", [True, False], ids=["binary", "json"])
def test_client_asks_for_a_compressed_answer_by_itself_and_reads_it(
    compressing_client: Caller, back: bool, deviation: Deviation
) -> None:
    inputs = {"x": floats(5000), "y": elements(b"a\0", b"")}
    answer = compressing_client.infer(inputs, binary_output=back)
    assert answer.compressed
    assert_same(answer.outputs, inputs)
    deviation(
        "asks for compressed answers in every request unless told otherwise; "
        "answered plain unless the server was started with `--compress`"
    )


@only(PYTHON, NODE, GO)
@pytest.mark.interop(feature="compressed response")
@pytest.mark.parametrize("algorithm", _ALGORITHMS)
def test_compressed_answer_in_the_encoding_asked_for(compressing_client: Caller, algorithm: str) -> None:
    inputs = {"x": floats(5000)}
    answer = compressing_client.infer(inputs, fields={"Accept-Encoding": algorithm}, binary_output=True)
    assert answer.fields["content-encoding"] == algorithm
    assert_same(answer.outputs, inputs)


@only(PYTHON, NODE, GO)
@pytest.mark.interop(feature="compressed response")
def test_client_that_asks_for_none_gets_no_compressed_answer(compressing_client: Caller) -> None:
    answer = compressing_client.infer({"x": floats(5000)}, fields={"Accept-Encoding": "identity"})
    assert not answer.compressed
    assert_same(answer.outputs, {"x": floats(5000)})


@pytest.mark.interop(feature="compressed response")
def test_plain_answer_of_a_server_that_does_not_compress_is_read(client: Caller) -> None:
    answer = client.infer({"x": floats(5000)}, binary_output=True)
    assert not answer.compressed
    assert_same(answer.outputs, {"x": floats(5000)})


@pytest.mark.interop(feature="compressed response")
def test_error_of_a_server_that_compresses_is_read(compressing_client: Caller) -> None:
    assert "there is no model 'nothing'" in compressing_client.infer({"x": floats()}, model="nothing").error


@pytest.mark.interop(feature="raw binary request")
def test_raw_binary_request(client: Caller) -> None:
    answer = client.infer({"x": floats()}, model="single", framing="raw")
    assert_same(answer.outputs, {"x": floats()})
    assert answer.is_binary("x")


@pytest.mark.interop(feature="raw binary request")
def test_raw_binary_request_to_a_batching_model(client: Caller) -> None:
    answer = client.infer({"SCORES": floats()}, model="animals", framing="raw")
    assert_same(answer.outputs, {"SCORES": floats().reshape(1, 4)})


@pytest.mark.interop(feature="raw binary request")
def test_raw_binary_request_to_a_model_of_two_inputs_is_refused(client: Caller) -> None:
    answer = client.infer({"IMAGE": floats(3)}, model="calibrate", framing="raw")
    assert answer.status == 400
    assert answer.error == "a raw binary request needs a model with one input; this one takes 2 inputs"


@pytest.mark.interop(feature="ids and parameters")
@pytest.mark.parametrize("request_id", ["42", 'größer 🦊 " \\ \n', "x" * 1000])
def test_request_id_is_echoed(client: Caller, request_id: str) -> None:
    assert client.infer({"x": floats()}, members={"id": request_id}).document["id"] == request_id


@pytest.mark.interop(feature="ids and parameters")
def test_no_request_id_gives_none_back(client: Caller) -> None:
    document = client.infer({"x": floats()}).document
    assert "id" not in document
    assert (document["model_name"], document["model_version"]) == ("identity", "1")


@pytest.mark.interop(feature="ids and parameters")
def test_parameters_reach_the_model(client: Caller) -> None:
    parameters = {"text": "größer", "count": 2**53 - 1, "flag": True, "ratio": 0.5}
    answer = client.infer({"x": floats()}, model="seen", members={"parameters": parameters})
    assert answer.seen["parameters"] == parameters


@pytest.mark.interop(feature="requested outputs")
def test_outputs_are_those_asked_for_in_that_order(client: Caller) -> None:
    inputs = {name: floats() for name in "abcd"}
    answer = client.infer(inputs, members={"outputs": [{"name": "c"}, {"name": "a"}]})
    assert [output["name"] for output in answer.document["outputs"]] == ["c", "a"]


@pytest.mark.interop(feature="requested outputs")
@pytest.mark.parametrize(
    ("asked", "all_outputs", "is_binary"),
    [(None, None, False), (None, True, True), (True, False, True), (False, True, False), (True, None, True)],
)
def test_form_of_an_output_is_the_one_asked_for(
    client: Caller, asked: bool | None, all_outputs: bool | None, is_binary: bool
) -> None:
    parameters = {} if asked is None else {"parameters": {"binary_data": asked}}
    members = {"outputs": [{"name": "x", **parameters}]}
    answer = client.infer({"x": floats()}, members=members, binary_output=all_outputs)
    assert answer.is_binary("x") is is_binary
    assert_same(answer.outputs, {"x": floats()})


@pytest.mark.interop(feature="requested outputs")
def test_without_a_list_all_outputs_of_the_model_come(client: Caller) -> None:
    image = floats(6).reshape(2, 3)
    answer = client.infer({"GAIN": floats(3)[2:], "IMAGE": image}, model="calibrate", binary_output=True)
    assert_same(answer.outputs, {"SCALED": image * 2, "MEAN": np.array([3, 5, 7], dtype=np.float32)})


@pytest.mark.interop(feature="versions")
@pytest.mark.parametrize("version", ["1", "2"])
def test_version_in_the_url(client: Caller, version: str) -> None:
    inputs = {"IMAGE": floats(3).reshape(1, 3), "GAIN": floats(1)}
    assert client.infer(inputs, model=f"calibrate/versions/{version}").document["model_version"] == version


@pytest.mark.interop(feature="versions")
def test_unknown_version_is_refused_with_our_text(client: Caller) -> None:
    answer = client.infer({"x": floats()}, model="identity/versions/9")
    assert answer.status == 404
    assert answer.error == "model 'identity' has no version '9'"


@pytest.mark.interop(feature="metadata and health")
def test_name_of_a_model_is_percent_decoded(client: Caller) -> None:
    answer = client.infer({"x": floats()}, model=NAME_WITH_BLANK)
    assert answer.seen["model"] == answer.document["model_name"] == NAME_WITH_BLANK


@pytest.mark.interop(feature="classification")
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_classes_of_a_batch_with_labels(client: Caller, binary: bool) -> None:
    scores = np.array([[0.5, -1, 8, 2], [3, 9, 9, 0]], dtype=np.float32)
    wanted = {"name": "SCORES", "parameters": {"classification": 2, "binary_data": binary}}
    answer = client.infer({"SCORES": scores}, model="animals", members={"outputs": [wanted]})
    expected = [b"8.000000:2:otter", b"2.000000:3:owl", b"9.000000:1:dog", b"9.000000:2:otter"]
    assert_same(answer.outputs, {"SCORES": elements(*expected, shape=(2, 2))})
    assert answer.is_binary("SCORES") is binary
