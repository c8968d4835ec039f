"""Classification (an extension of Triton's): which values are the highest, and how they are written."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcodec import DATATYPES, Limits, LocalProtocolError, RemoteProtocolError, RequestedOutput
from streamcodec.service import ANY_SIZE, Inference, InferenceRequest, Model, Service, TensorMetadata
from streamcodec.service.models.classification import top_classes
from tests.service.requests import Answer, Array, ask, get, head, service_of

SCORES = np.array([1, 5, 10, 4], np.float32)
PATH = "$.outputs[0].parameters.classification"


def _constant(array: npt.ArrayLike) -> Callable[[InferenceRequest], Mapping[str, npt.ArrayLike]]:
    return lambda _: {"y": array}


def _service(array: npt.ArrayLike, **options: Any) -> Service:  # noqa: ANN401 - those of service_of
    return service_of(_constant(array), classifies=True, **options)


def _ask(service: Service, count: Any, name: str = "y", **options: Any) -> Answer:  # noqa: ANN401 - any JSON value
    return ask(service, outputs=[RequestedOutput(name=name, parameters={"classification": count}, **options)])


def _classes(array: npt.ArrayLike, count: int, **options: Any) -> Any:  # noqa: ANN401 - those of service_of
    """What is answered, as nested lists of texts."""
    result = _ask(_service(array, **options), count, binary_data=True)
    assert result.status == 200, result.body
    texts: Array = result.outputs["y"]
    assert texts.dtype == object
    return np.vectorize(bytes.decode, otypes=[object])(texts).tolist()


def test_the_highest_values_come_first_with_their_index() -> None:
    assert _classes(SCORES, 2) == ["10.000000:2", "5.000000:1"]
    assert _classes(SCORES, 4) == ["10.000000:2", "5.000000:1", "4.000000:3", "1.000000:0"]


def test_more_than_there_are_is_all_of_them() -> None:
    assert _classes(SCORES, 5) == _classes(SCORES, 4)
    assert _classes(SCORES, 10**30) == _classes(SCORES, 4)
    assert _classes(np.float32(7), 3) == ["7.000000:0"]
    assert _classes(np.zeros(0), 3) == []


def test_the_answer_is_a_bytes_tensor_in_either_form() -> None:
    binary = _ask(_service(SCORES), 2, binary_data=True)
    (entry,) = binary.document["outputs"]
    assert (entry["datatype"], entry["shape"]) == ("BYTES", [2])
    assert entry["parameters"] == {"binary_data_size": len(b"10.000000:2" + b"5.000000:1") + 8}
    (entry,) = _ask(_service(SCORES), 2, binary_data=None).document["outputs"]
    assert entry == {"name": "y", "datatype": "BYTES", "shape": [2], "data": ["10.000000:2", "5.000000:1"]}


@pytest.mark.parametrize(
    ("shape", "is_batching", "answered"),
    [
        ((2, 3), False, (2,)),
        ((2, 3), True, (2, 2)),
        ((2, 3, 4), True, (2, 2)),
        ((1, 3), True, (1, 2)),
        ((5,), True, (5, 1)),
        ((0, 3), True, (0, 2)),
        ((3, 0), True, (3, 0)),
        ((0, 3), False, (0,)),
        ((), False, (1,)),
        ((), True, (1,)),
    ],
)
def test_shape(shape: tuple[int, ...], is_batching: bool, answered: tuple[int, ...]) -> None:
    result = _ask(_service(np.zeros(shape), is_batching=is_batching), 2, binary_data=True)
    assert result.outputs["y"].shape == answered


def test_each_row_of_a_batch_is_ranked_for_itself_and_otherwise_the_whole() -> None:
    scores = np.array([[1, 3, 2], [9, 7, 8]], np.int32)
    assert _classes(scores, 2, is_batching=True) == [["3:1", "2:2"], ["9:0", "8:2"]]
    assert _classes(scores, 2) == ["9:3", "8:5"]
    assert _classes(scores.reshape(2, 3, 1), 1, is_batching=True) == [["3:1"], ["9:0"]]


def test_labels_stand_behind_the_index_as_far_as_there_are_any() -> None:
    labels = {"y": ("cat", "größe: 1", ""), "z": ("other",)}
    assert _classes(SCORES, 4, labels=labels) == ["10.000000:2", "5.000000:1:größe: 1", "4.000000:3", "1.000000:0:cat"]
    rows = np.array([[1, 3], [9, 7]], np.int8)
    assert _classes(rows, 1, labels={"y": ["no", "yes"]}, is_batching=True) == [["3:1:yes"], ["9:0:no"]]


NUMBERS = [name for name in DATATYPES if name not in {"BOOL", "BYTES"}]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_type_of_number(name: str) -> None:
    if name == "BF16":
        pytest.importorskip("ml_dtypes", reason="not every processor has it")
    scores = np.array([0, 2, 1]).astype(DATATYPES[name].dtype)
    expected = ["2.000000:1", "1.000000:2"] if DATATYPES[name].kind == "f" else ["2:1", "1:2"]
    assert _classes(scores, 2) == expected


def test_bf16_without_a_package_that_knows_it() -> None:
    bits = np.array([0xC000, 0x3F80, 0x7FC0, 0x4000]).astype(np.dtype("<u2", metadata={"streamcodec.datatype": "BF16"}))
    assert _classes(bits, 4) == ["2.000000:3", "1.000000:1", "-2.000000:0", "nan:2"]


@pytest.mark.parametrize("name", ["INT8", "INT64", "UINT8", "UINT64"])
def test_integers_at_both_ends_of_their_range(name: str) -> None:
    info = np.iinfo(DATATYPES[name].dtype)
    scores = np.array([info.min, info.max, info.min + 1, info.max - 1], DATATYPES[name].dtype)
    assert _classes(scores, 4) == [f"{info.max}:1", f"{info.max - 1}:3", f"{info.min + 1}:2", f"{info.min}:0"]


def test_of_equal_values_the_first_comes_first_also_at_the_end_of_what_is_asked_for() -> None:
    assert _classes(np.array([1, 2, 2, 1, 2], np.uint8), 2) == ["2:1", "2:2"]
    assert _classes(np.array([1, 2, 2, 1, 2], np.uint8), 4) == ["2:1", "2:2", "2:4", "1:0"]
    assert _classes(np.array([-0.0, 0.0]), 2) == ["-0.000000:0", "0.000000:1"]


def test_values_that_are_not_finite() -> None:
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    scores = np.array([np.nan, -np.inf, 1, np.inf, signalling, -np.nan], np.float32)
    assert _classes(scores, 6) == ["inf:3", "1.000000:2", "-inf:1", "nan:0", "nan:4", "nan:5"]
    assert _classes(np.full(3, np.nan), 2) == ["nan:0", "nan:1"]


def test_values_are_printed_like_c_does_with_f() -> None:
    scores = np.array([3.3, 1e-7, -2.5, 1e20, 0.1234567], np.float64)
    assert _classes(scores, 5) == [
        "100000000000000000000.000000:3",
        "3.300000:0",
        "0.123457:4",
        "0.000000:1",
        "-2.500000:2",
    ]
    assert _classes(np.array([np.finfo(np.float64).max]), 1) == [f"{np.finfo(np.float64).max:f}:0"]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12.0).reshape(2, 6)[:, ::2],
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.arange(6, dtype=">i4").reshape(2, 3),
        [[0, 1, 2], [3, 4, 5]],
    ],
    ids=["Fortran", "not contiguous", "big-endian floats", "big-endian integers", "lists"],
)
def test_whatever_the_memory_of_the_output_is_like(array: npt.ArrayLike) -> None:
    assert [text.partition(":")[2] for text in _classes(array, 2)] == ["5", "4"]


@given(
    rows=st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan]), min_size=6, max_size=6),
        min_size=1,
        max_size=3,
    ),
    count=st.integers(0, 6),
)
def test_the_order_is_that_of_a_stable_sort_with_nan_at_the_end(rows: list[list[float]], count: int) -> None:
    scores = np.array(rows)

    def key(row: list[float], index: int) -> tuple[bool, float]:
        return (True, 0.0) if np.isnan(row[index]) else (False, -row[index])

    for texts, row in zip(top_classes(scores, count, ()), rows, strict=True):
        order = sorted(range(6), key=lambda index: key(row, index))
        assert [int(text.partition(":")[2]) for text in texts] == order[:count]


def test_a_large_output_takes_no_sort_of_all_of_it() -> None:
    scores = np.random.default_rng(0).standard_normal((1, 1 << 20))
    tracemalloc.start()
    texts = top_classes(scores, 3, ())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [int(text.split(":")[1]) for text in texts[0]] == np.argsort(scores[0])[:-4:-1].tolist()
    assert peak < 3 * scores.nbytes


# Refusals


@pytest.mark.parametrize("count", [0, -1, 1.0, 1.5, "3", True, False, [1], {}])
def test_the_number_of_classes_is_an_integer_from_1(count: object) -> None:
    result = _ask(_service(SCORES), count)
    assert result.status == 400
    assert f"an integer >= 1 ({PATH})" in result.error


def test_the_path_names_the_output_that_is_wrong() -> None:
    outputs = [RequestedOutput(name=name, parameters={"classification": n}) for name, n in (("y", 1), ("z", 0))]
    assert "$.outputs[1].parameters.classification" in ask(_service(SCORES), outputs=outputs).error


@pytest.mark.parametrize("array", [[True, False], [b"a", b"b"], ["a", "b"]], ids=["BOOL", "BYTES", "text"])
def test_what_has_no_order_is_refused(array: npt.ArrayLike) -> None:
    result = _ask(_service(array), 1)
    assert result.status == 400
    assert "have no order" in result.error
    assert PATH in result.error


def _never(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    raise AssertionError(request)


@pytest.mark.parametrize(("datatype", "count"), [("BOOL", 1), ("BYTES", 1), ("FP32", 0)])
def test_what_the_header_and_the_metadata_show_is_refused_before_a_tensor_is_read(datatype: str, count: int) -> None:
    outputs = (TensorMetadata("y", datatype, (ANY_SIZE,)),)
    service = service_of(_never, outputs=outputs, classifies=True)
    output = {"name": "y", "parameters": {"classification": count}}
    tensor = {"name": "x", "datatype": "INT8", "shape": [9], "parameters": {"binary_data_size": 9}}
    text = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    fields = [("Inference-Header-Content-Length", str(len(text)))]
    inference = service.begin(head("/v2/models/m/infer", "POST", fields, len(text) + 9))
    assert isinstance(inference, Inference)
    inference.decoder.feed(text)
    with pytest.raises(RemoteProtocolError) as caught:
        inference.decoder.next_event()
    assert (caught.value.path, caught.value.status_hint) == (PATH, 400)


def test_the_model_still_checks_the_rest() -> None:
    service = service_of(_constant(SCORES), inputs=(TensorMetadata("z", "FP32", (2,)),), classifies=True)
    assert "no input 'x'" in ask(service).error
    assert "no output 'z'" in _ask(_service(SCORES), 1, name="z").error


def test_the_model_is_still_held_to_its_word() -> None:
    service = _service(SCORES, outputs=(TensorMetadata("y", "FP64", (4,)),))
    assert _ask(service, 1).status == 500
    assert _ask(_service(SCORES, outputs=(TensorMetadata("y", "FP32", (4,)),)), 1).status == 200


def test_the_number_of_texts_is_limited() -> None:
    scores = np.zeros((4, 5), np.int8)
    assert _ask(_service(scores, limits=Limits(max_bytes_elements=8)), 8).status == 200
    for count, is_batching in ((9, False), (3, True)):
        result = _ask(_service(scores, limits=Limits(max_bytes_elements=8), is_batching=is_batching), count)
        assert result.status == 400
        assert PATH in result.error


def test_labels_that_could_not_be_shown() -> None:
    outputs = (TensorMetadata("y", "FP32", (2,)),)
    Model(name="m", predict=_never, outputs=outputs, labels={"y": ("a", "b")})
    with pytest.raises(LocalProtocolError, match="labels for 'z', which is not one of its outputs"):
        Model(name="m", predict=_never, outputs=outputs, labels={"z": ("a", "b")})
    for labels in ("ab", (1, 2), (b"a",)):
        with pytest.raises(LocalProtocolError, match="a sequence of str"):
            Model(name="m", predict=_never, labels={"y": labels})  # type: ignore[dict-item] # what is refused


# With other things


def test_outputs_without_the_parameter_are_answered_as_they_are() -> None:
    service = service_of(lambda _: {"a": SCORES, "b": SCORES}, classifies=True)
    outputs = [
        RequestedOutput(name="b", binary_data=True, parameters={"classification": 1}),
        RequestedOutput(name="a", binary_data=True, parameters={"classification": None}),
    ]
    answered = ask(service, outputs=outputs).outputs
    assert {name: array.tolist() for name, array in answered.items()} == {"b": [b"10.000000:2"], "a": SCORES.tolist()}
    for nothing_listed in (None, list[RequestedOutput]()):
        assert ask(service, outputs=nothing_listed).outputs["a"].tolist() == SCORES.tolist()


@pytest.mark.parametrize("value", [2, 0, "anything"])
def test_switched_off_it_is_refused(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Who asks for classes can do nothing with the tensor they would be of."""
    result = _ask(service_of(_never), value)
    assert (result.status, result.error) == (
        400,
        f"this server offers no classification; its operator can switch it on ({PATH})",
    )


def test_switched_off_null_means_absent() -> None:
    service = service_of(_constant(SCORES))
    assert _ask(service, None, binary_data=True).outputs["y"].tolist() == SCORES.tolist()


def test_the_metadata_name_the_extension_only_if_it_is_there() -> None:
    assert "classification" in get(_service(SCORES), "/v2").document["extensions"]
    assert "classification" not in get(service_of(_never), "/v2").document["extensions"]
