"""Outputs: which are answered, in which form, and what happens when a model does not keep its word."""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import (
    Elements,
    ErrorCode,
    NonFiniteOutput,
    NotRepresentableError,
    RemoteProtocolError,
    RequestedOutput,
    Rows,
    Tensor,
    datatype_of,
    encode_request,
)
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service import (
    InferenceRequest,
    Model,
    ModelRegistry,
    ResolvedHead,
    Service,
    TensorMetadata,
    demo_models,
)
from tests.service.requests import Array, ask, head, infer, post, service_of

TARGET = "/v2/models/m/infer"


def _constant(outputs: Any) -> Callable[[InferenceRequest], Any]:  # noqa: ANN401 - what models return by mistake
    return lambda _: outputs


def _raising(error: BaseException) -> Callable[[InferenceRequest], Mapping[str, npt.ArrayLike]]:
    def predict(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        raise error

    return predict


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("binary_data", [True, False, None])
@pytest.mark.parametrize("binary_data_output", [True, False, None])
def test_form_of_an_output(is_listed: bool, binary_data: bool | None, binary_data_output: bool | None) -> None:
    """An explicit `binary_data` wins, else `binary_data_output`, else JSON."""
    service = service_of(_constant({"a": np.zeros(2), "b": np.ones(2)}))
    outputs = [RequestedOutput(name="b", binary_data=binary_data)] if is_listed else None
    parameters = None if binary_data_output is None else {"binary_data_output": binary_data_output}
    result = ask(service, outputs=outputs, parameters=parameters)
    explicit = binary_data if is_listed else None
    is_binary = bool(binary_data_output) if explicit is None else explicit
    names = ["b"] if is_listed else ["a", "b"]
    assert list(result.outputs) == names
    assert result.binary == (set(names) if is_binary else set())
    assert result.fields["Content-Type"] == ("application/octet-stream" if is_binary else "application/json")
    assert ("Inference-Header-Content-Length" in result.fields) is is_binary
    assert result.fields["Content-Length"] == str(len(result.body))


def test_mixed_forms_in_the_order_of_the_request() -> None:
    service = service_of(_constant({"a": [1.0], "b": [2.0], "c": [3.0]}))
    outputs = [
        RequestedOutput(name="c", binary_data=None),
        RequestedOutput(name="a", binary_data=False),
        RequestedOutput(name="b", binary_data=True),
    ]
    result = ask(service, outputs=outputs, parameters={"binary_data_output": True})
    assert {name: float(array[0]) for name, array in result.outputs.items()} == {"c": 3, "a": 1, "b": 2}
    assert list(result.outputs) == ["c", "a", "b"]
    assert result.binary == {"c", "b"}


def test_an_empty_list_of_outputs_asks_for_all() -> None:
    assert list(ask(service_of(_constant({"a": [1], "b": [2]})), outputs=[]).outputs) == ["a", "b"]


@pytest.mark.parametrize("request_id", ["7", "", "ä\n\0\u2028", "x" * 10_000])
def test_the_id_is_echoed_exactly(request_id: str) -> None:
    assert ask(service_of(_constant({})), request_id=request_id).document["id"] == request_id


def test_no_id_no_echo_and_the_rest_of_the_header() -> None:
    document = ask(service_of(_constant({"a": 1}))).document
    assert "id" not in document
    assert (document["model_name"], document["model_version"]) == ("m", "1")


def test_the_version_is_the_urls_or_the_newest() -> None:
    seen: list[tuple[str, str]] = []

    def predict(request: InferenceRequest) -> dict[str, Array]:
        seen.append((request.model_name, request.model_version))
        return {}

    service = Service(ModelRegistry.of([Model(name="m", predict=predict, versions=("a", "b"))]))
    body = b'{"inputs": [], "model_name": "ignored", "model_version": "ignored"}'
    for target, version in ((TARGET, "b"), ("/v2/models/m/versions/a/infer", "a")):
        assert post(service, target, body).document["model_version"] == version
    assert seen == [("m", "b"), ("m", "a")]


@pytest.mark.parametrize(
    ("value", "shape", "datatype"),
    [
        (3, [], datatype_of(np.dtype(int)).name),  # INT32 on a machine of 32 bits
        (2.5, [], "FP64"),
        (True, [], "BOOL"),
        ([1.0, 2.0], [2], "FP64"),
        ([], [0], "FP64"),
        ("text", [], "BYTES"),
        (["a", "bc"], [2], "BYTES"),
        ([b"a", b"bc"], [2], "BYTES"),
        (np.float32(1), [], "FP32"),
        (np.zeros((0, 3), np.int8), [0, 3], "INT8"),
        (np.arange(6, dtype=">i2").reshape(2, 3).T, [3, 2], "INT16"),
    ],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_lists_and_scalars_are_outputs_too(
    value: npt.ArrayLike, shape: list[int], datatype: str, is_binary: bool
) -> None:
    result = ask(service_of(_constant({"a": value})), parameters={"binary_data_output": is_binary})
    (entry,) = result.document["outputs"]
    assert (entry["shape"], entry["datatype"]) == (shape, datatype)
    expected = np.asarray(value)
    if datatype == "BYTES":
        expected = np.char.encode(expected) if expected.dtype.kind == "U" else expected
        expected = expected.astype(object)
    assert np.array_equal(result.outputs["a"], expected)


@pytest.mark.parametrize(
    "array",
    [
        np.ones(2, np.float16),
        np.array([b"\xff"], dtype=object),
    ],
    ids=["FP16", "BYTES that are not UTF-8"],
)
def test_what_json_cannot_hold_is_400_and_names_the_binary_form(array: Array) -> None:
    service = service_of(_constant({"a": array}))
    result = ask(service)
    assert result.status == 400
    assert "binary" in result.error
    assert ask(service, parameters={"binary_data_output": True}).status == 200


def test_bf16_has_no_json_form() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert ask(service_of(_constant({"a": np.ones(2, bfloat16)}))).status == 400


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_in_json_is_a_setting(dtype: type) -> None:
    values: Array = np.array([1, np.nan, np.inf, -np.inf], dtype)
    texts = {NonFiniteOutput.LITERAL: "[1.0,NaN,Infinity,-Infinity]", NonFiniteOutput.NULL: "[1.0,null,null,null]"}
    model = Model(name="m", predict=_constant({"a": values}))
    for setting, text in texts.items():
        result = ask(Service(ModelRegistry.of([model]), nonfinite=setting))
        assert f'"data":{text}'.encode() in result.body
    service = Service(ModelRegistry.of([model]), nonfinite=NonFiniteOutput.ERROR)
    assert ask(service).status == 400
    assert ask(service, parameters={"binary_data_output": True}).status == 200


def test_an_output_that_turns_out_not_to_exist_is_400() -> None:
    service = service_of(_constant({"a": [1]}))
    result = ask(service, outputs=[RequestedOutput(name="a"), RequestedOutput(name="b")])
    assert result.status == 400
    assert "$.outputs[1].name" in result.error


SECRET = "the password is swordfish"  # noqa: S105 - what must not leak


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        OSError(SECRET),
        StopIteration(SECRET),
        SystemExit(SECRET),
        GeneratorExit(SECRET),
        CancelledError(SECRET),
    ],
)
def test_a_model_that_raises_is_500_and_says_no_more(error: BaseException) -> None:
    result = ask(service_of(_raising(error)))
    assert result.status == 500
    assert result.error == f"model 'm' failed with {type(error).__name__}"
    assert result.cause is error


class _TextlessError(RemoteProtocolError):
    def __str__(self) -> str:
        raise ValueError(SECRET)


class _TextlessFormError(NotRepresentableError):
    def __str__(self) -> str:
        raise ValueError(SECRET)


@pytest.mark.parametrize("error", [_TextlessError("no", code=ErrorCode.NOT_FOUND), _TextlessFormError()])
def test_a_model_whose_error_has_no_text_is_500(error: Exception) -> None:
    result = ask(service_of(_raising(error)))
    assert (result.status, result.error) == (500, f"model 'm' failed with {type(error).__name__}")
    assert result.cause is error


def test_a_model_without_memory_is_503_and_says_no_more() -> None:
    result = ask(service_of(_raising(error := MemoryError(SECRET))))
    assert result.status == 503
    assert result.error == "there is no memory for model 'm' to answer"
    assert error.__traceback__ is None, "its frames hold the inputs"


def test_what_may_be_a_key_that_somebody_pressed_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(service_of(_raising(KeyboardInterrupt())))


@pytest.mark.parametrize("status", [400, 422, 429, 503])
def test_a_model_may_refuse_a_request(status: int) -> None:
    error = RemoteProtocolError("too many cats", code=ErrorCode.MODEL_MISMATCH, path="$.inputs[0]", status_hint=status)
    result = ask(service_of(_raising(error)))
    assert (result.status, result.error, result.cause) == (status, "too many cats ($.inputs[0])", None)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, r"^model 'm' has returned nothing \(None\), not a mapping of its outputs by name$"),
        ([1.0], "^model 'm' has returned list, not a mapping"),
        ({"y": None}, "^model 'm' has returned an output that cannot be sent: tensor 'y': .*not NoneType$"),
        (
            {"y": np.ones(1, np.complex64)},
            "^model 'm' has returned an output that cannot be sent: tensor 'y': .*complex64",
        ),
    ],
)
def test_what_no_model_may_return_is_told_with_its_name(returned: Any, words: str) -> None:  # noqa: ANN401
    result = ask(service_of(lambda _: returned))
    assert (result.status, result.error) == (500, "model 'm' failed with LocalProtocolError")
    assert re.match(words, str(result.cause))


def test_any_mapping_is_one() -> None:
    assert ask(service_of(lambda request: MappingProxyType({"y": request.inputs["x"]}))).status == 200


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({}, "model 'm' has not returned its output 'y'"),
        ({"y": np.ones(1, complex)}, "model 'm' has returned complex128 [1] for its output 'y', declared FP32 [2]"),
        ({"y": Elements([b""])}, "model 'm' has returned BYTES [1] for its output 'y', declared FP32 [2]"),
    ],
)
def test_what_is_not_as_declared_is_told_with_its_name(returned: Any, words: str) -> None:  # noqa: ANN401
    result = ask(service_of(lambda _: returned, outputs=(TensorMetadata("y", "FP32", (2,)),)))
    assert (result.status, str(result.cause)) == (500, words)


DECLARED = (TensorMetadata("a", "FP32", (2,)),)


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"b": np.ones(2, np.float32)},
        {"a": np.ones(3, np.float32)},
        {"a": np.ones((2, 1), np.float32)},
        {"a": np.ones(2)},
        {"a": np.ones(2, complex)},
        {"a": None},
        None,
        [("a", 1)],
    ],
    ids=repr,
)
def test_outputs_that_are_not_as_declared_are_the_models_fault(outputs: Any) -> None:  # noqa: ANN401
    result = ask(service_of(_constant(outputs), outputs=DECLARED))
    assert result.status == 500
    assert result.cause is not None


@pytest.mark.parametrize(
    "value",
    [
        np.ones(2, complex),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([1, None], dtype=object),
        {"a": 1},
        np.array(["\ud800"]),
    ],
    ids=["complex", "dates", "objects", "dict", "surrogate"],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_outputs_without_a_form_are_the_models_fault(value: Any, is_binary: bool) -> None:  # noqa: ANN401
    result = ask(service_of(_constant({"a": value})), parameters={"binary_data_output": is_binary})
    assert result.status == 500


@pytest.mark.parametrize("names", [{"": 1}, {"\ud800": 1}])
def test_names_of_outputs_without_a_form_are_the_models_fault(names: Any) -> None:  # noqa: ANN401
    assert ask(service_of(_constant(names))).status == 500


def test_an_undeclared_output_beside_the_declared_ones_is_answered() -> None:
    service = service_of(_constant({"a": np.ones(2, np.float32), "more": [1]}), outputs=DECLARED)
    assert set(ask(service).outputs) == {"a", "more"}


def test_unknown_parameters_reach_the_model() -> None:
    seen: list[Mapping[str, Any]] = []

    def predict(request: InferenceRequest) -> dict[str, Array]:
        seen.append(request.header.parameters)
        return {}

    ask(service_of(predict), parameters={"temperature": 0.5, "tags": ["a"]})
    assert seen == [{"temperature": 0.5, "tags": ["a"]}]


def test_demo_models() -> None:
    service = Service(demo_models())
    words = np.array([b"", b"abc"], dtype=object)
    for x, count in ((np.zeros((3, 5), "<f2"), 30), (words, 11), (np.zeros(0, "<f8"), 0)):
        echo = ask_model(service, "identity", x)
        assert echo.dtype == x.dtype
        assert np.array_equal(echo, x)
        assert ask_model(service, "sink", x, "COUNT").tolist() == [count]


def test_sink_counts_json_tensors_as_they_would_be_in_binary() -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["ä", ""]}]}).encode()
    assert post(Service(demo_models()), "/v2/models/sink/infer", body).outputs["COUNT"].tolist() == [10]


def ask_model(service: Service, model: str, x: Array, output: str = "x") -> Array:
    message = encode_request([Tensor(name="x", array=x)], parameters={"binary_data_output": True})
    return infer(service, f"/v2/models/{model}/infer", message).outputs[output]


def test_an_unknown_encoding_is_told_the_known_ones() -> None:
    service = service_of(_constant({}))
    answer = post(service, TARGET, b"x", [("Content-Encoding", "br")])
    assert (answer.status, answer.fields["Accept-Encoding"]) == (415, "gzip, deflate, identity")


LARGE = np.zeros(1 << 16, "<f4")
QUICK: dict[str, tuple[Mapping[str, Any], Mapping[str, bool], bool]] = {
    "small": ({"a": np.zeros(100), "b": [1.0], "c": 3}, {}, True),
    "large, as JSON": ({"a": LARGE}, {"b": True}, False),
    "large, asked for in binary": ({"a": LARGE}, {"a": True}, True),
    "large, asked for as JSON though others are not": ({"a": LARGE}, {"": True, "a": False}, False),
    "large, in binary": ({"a": LARGE, "b": [1.0]}, {"": True}, True),
    "small ones, large together": (dict.fromkeys("abc", LARGE[: 1 << 13]), {}, False),
    "large, to be put in order": ({"a": LARGE.reshape(256, 256).T}, {"": True}, False),
    "large, to be swapped": ({"a": LARGE.astype(">f4")}, {"": True}, False),
    "many objects": ({"a": np.full(1 << 16, b"", object)}, {"": True}, False),
    "few objects": ({"a": np.array([b"a", "b", 1], object)}, {}, True),
    "one large object": ({"a": np.array([bytes(1 << 17)], object)}, {"": True}, False),
    "elements in binary": ({"a": Elements([bytes(1 << 17)])}, {"": True}, True),
    "elements as JSON": ({"a": Elements([bytes(1 << 17)])}, {}, False),
    "rows in binary": ({"a": Rows("FP32", (1 << 16,), [LARGE])}, {"": True}, True),
    "rows as JSON": ({"a": Rows("FP32", (1 << 16,), [LARGE])}, {}, False),
}


def _is_quick(outputs: Mapping[str, Any], forms: Mapping[str, bool], **options: Any) -> bool:  # noqa: ANN401 - those of Service
    """Ask for outputs in the forms given by name; "" is for those that are not listed."""
    resolved = service_of(_constant(outputs), **options).open(head(TARGET, "POST", [("Accept-Encoding", "gzip")]))
    assert isinstance(resolved, ResolvedHead)
    listed = tuple(RequestedOutput(name=name, binary_data=form) for name, form in forms.items() if name)
    parameters = {"binary_data_output": True} if forms.get("") else {}
    return resolved.is_quick(outputs, RequestHeader(tensors=(), outputs=listed or None, parameters=parameters))


@pytest.mark.parametrize("name", QUICK)
def test_an_answer_is_quickly_made_if_it_is_small_or_goes_as_it_is(name: str) -> None:
    outputs, forms, is_quick = QUICK[name]
    assert _is_quick(outputs, forms) is is_quick


def test_what_is_compressed_or_classified_goes_not_as_it_is() -> None:
    small = {"a": np.zeros(4)}
    assert not _is_quick(small, {"": True}, compresses=True)
    assert _is_quick(small, {"": True}, classifies=True)
    assert not _is_quick({"a": LARGE}, {"": True}, classifies=True)
