"""JSON values: the text of large tensors is that of `json.dumps`, made in slices, of a length that is known before."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from streamcodec import (
    Elements,
    EncodedMessage,
    LocalProtocolError,
    NonFiniteOutput,
    NotRepresentableError,
    Rows,
    Tensor,
    compress_message,
    encode_request,
    encode_response,
)
from streamcodec.formats.v2.json import values as jsonvalues
from streamcodec.formats.v2.json.integers import integers_as_text, length_of_integers
from streamcodec.formats.v2.json.values import SMALL_BYTES

Array = np.ndarray[Any, Any]

INTEGERS = ("?", "i1", "u1", "<i2", ">i2", "<u2", "<i4", "<u4", ">u4", "<i8", ">i8", "<u8")
NUMBERS = (*INTEGERS, "<f4", ">f4", "<f8", ">f8")

random = np.random.default_rng(20)


def response(array: Array | Elements | Rows, *, nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL) -> EncodedMessage:
    return encode_response([Tensor(name="y", array=array, is_binary=False)], model_name="m", nonfinite=nonfinite)


def text_of(message: EncodedMessage) -> str:
    body = b"".join(message.buffers)
    assert len(body) == message.body_length
    return body.decode().partition(',"data":')[2].removesuffix("}]}")


def expected(values: list[Any]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def noise(dtype: str, count: int) -> Array:
    """Values of all magnitudes; of floats also those that are no numbers."""
    array = np.frombuffer(random.bytes(count * np.dtype(dtype).itemsize), dtype)
    return array.view("u1") % 2 == 1 if dtype == "?" else array


@pytest.fixture(params=[1, 3, 50])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Everything is large, and cut after so many values, bytes or elements."""
    size: int = request.param
    monkeypatch.setattr(jsonvalues, "SMALL_BYTES", 0)
    monkeypatch.setattr(jsonvalues, "_SLICE_BYTES", 8 * size)
    monkeypatch.setattr(jsonvalues, "_FLOAT_COUNT", size)
    monkeypatch.setattr(jsonvalues, "_ELEMENT_COUNT", size)
    return size


WAYS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda array: array,
    "backwards": lambda array: array[::-1],
    "columns first": lambda array: array.reshape(-1, 4).T,
    "every other": lambda array: array[::2],
    "one value everywhere": lambda array: np.broadcast_to(array[:1], (7, 11)),
    "no dimension": lambda array: array[:1].reshape(()),
}


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_any_datatype_and_layout(dtype: str, way: str) -> None:
    array = WAYS[way](noise(dtype, 200))
    message = response(array)
    assert message.is_streamed
    assert text_of(message) == expected(array.reshape(-1).tolist())
    assert text_of(message) == expected(array.reshape(-1).tolist())  # any number of times


@pytest.mark.parametrize("has_package", [True, False])
@pytest.mark.parametrize("count", [1, 12, 13, 127, 128, 129, 511, 512, 513, 3_000])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_a_tensor_that_is_not_large(
    dtype: str, count: int, has_package: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonvalues, "writes_floats", lambda: has_package)
    array = noise(dtype, count)
    message = response(array)
    assert not message.is_streamed
    assert text_of(message) == expected(array.tolist())


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_a_few_floats_that_are_unusual_among_others(dtype: str) -> None:
    array = np.linspace(-9, 9, 1_000).astype(dtype)
    array[[0, 500, 501, 999]] = np.nan, 1e30, np.inf, 1e-30
    assert text_of(response(array)) == expected(array.tolist())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_the_edges(dtype: str) -> None:
    kind = np.dtype(dtype)
    least, most = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    edges = {sign * 10**power + step for power in range(20) for sign in (1, -1) for step in (-1, 0, 1)}
    values = sorted(value for value in edges | {least, most} if least <= value <= most)
    for array in (np.array(values, kind), *(np.array([value], kind) for value in values)):
        text = "".join(f",{str(value).lower()}" for value in array.tolist())
        assert integers_as_text(array).decode() == text
        assert length_of_integers(array) == len(text)


@given(
    array=st.sampled_from(INTEGERS).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(max_dims=1, max_side=300))
    )
)
def test_integers_one_way_or_the_other(array: Array) -> None:
    text = expected(array.tolist())
    assert integers_as_text(array).decode() == f",{text[1:-1]}"
    assert length_of_integers(array) == len(text) - 1
    assert text_of(response(array)) == text


def test_any_byte_that_is_not_zero_is_true() -> None:
    array = np.arange(256, dtype=np.uint8).view(np.bool_)
    assert text_of(response(array)) == expected([False] + [True] * 255)
    assert length_of_integers(array) == len(integers_as_text(array))


WORDS = ["", "a", "é\n\"\\'", "\x01\x7f\u2028", "😀", "grün " * 30, "ü" * 101, "漢" * 77, '"' * 200, "x"]


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize(
    "form",
    [
        lambda words: np.array(words, object),
        np.array,
        lambda words: np.array([word.encode() for word in words], object),
        lambda words: np.fromiter([bytearray(word.encode()) for word in words], object).reshape(2, -1),
        lambda words: np.array([word.encode() for word in words]),
        Elements,
    ],
)
@given(chosen=st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: [*words, *words]))
def test_text_of_any_form_and_length(form: Callable[[list[str]], Array | Elements], chosen: list[str]) -> None:
    values = form(chosen) if chosen else np.array(["a"], object)
    assert text_of(response(values)) == expected(chosen or ["a"])


@pytest.mark.parametrize("nonfinite", NonFiniteOutput)
def test_what_is_not_finite(nonfinite: NonFiniteOutput) -> None:
    array = np.zeros(SMALL_BYTES, np.float32)
    assert text_of(response(array, nonfinite=nonfinite)) == expected(array.tolist())
    array[5], array[40_000], array[-1] = np.nan, np.inf, -np.inf
    if nonfinite is NonFiniteOutput.ERROR:
        with pytest.raises(NotRepresentableError, match="not finite"):
            response(array, nonfinite=nonfinite)
        return
    text = expected(array.tolist())
    if nonfinite is NonFiniteOutput.NULL:
        text = text.replace("NaN", "null").replace("-Infinity", "null").replace("Infinity", "null")
    assert text_of(response(array, nonfinite=nonfinite)) == text


LONG = b"x" * SMALL_BYTES


@pytest.mark.parametrize(
    ("elements", "complaint"),
    [
        ([*[b"a"] * 9000, b"\xff"], "not UTF-8"),
        ([LONG, b"\xff"], "not UTF-8"),
        ([LONG + b"\xc3"], "not UTF-8"),
        ([LONG + b"\xc3" + LONG], "not UTF-8"),
        ([*[b"a"] * 9000, 5], "bytes or str, not int"),
        ([LONG, 5], "bytes or str, not int"),
        ([LONG.decode(), "\ud800"], "lone surrogate"),
    ],
)
def test_refused_before_anything_is_sent(elements: list[Any], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        response(np.array(elements, object))


@pytest.mark.parametrize("array", [np.zeros(SMALL_BYTES, np.float16), np.zeros(3, np.float16)])
def test_datatype_that_json_does_not_have(array: Array) -> None:
    with pytest.raises(NotRepresentableError, match="FP16 has no JSON form"):
        response(array)


def test_length_is_exact_beside_other_tensors() -> None:
    large, small, binary = noise("<i4", 50_000), noise("<i4", 3), noise("u1", 70)
    message = encode_request(
        [
            Tensor(name="a", array=large, is_binary=False),
            Tensor(name="b", array=small, is_binary=False, parameters={"unit": "m"}),
            Tensor(name="c", array=binary),
            Tensor(name="d", array=large[1:], is_binary=False),
        ]
    )
    body = b"".join(message.buffers)
    assert len(body) == message.body_length
    assert message.header_length is not None
    assert message.header_length % 64 == 0
    assert body[message.header_length :] == binary.tobytes()
    entries = json.loads(body[: message.header_length])["inputs"]
    assert [entry.get("data") for entry in entries] == [large.tolist(), small.tolist(), None, large[1:].tolist()]
    assert [type(part) for part in message.parts] == [bytes, Rows, bytes, Rows, bytes, memoryview]


def test_rows_wanted_as_json_are_collected() -> None:
    array = noise("<i2", 60_000).reshape(-1, 2)
    message = response(Rows("INT16", array.shape, iter([array[:9], array[9:]])))
    assert text_of(message) == expected(array.reshape(-1).tolist())


@pytest.mark.parametrize("change", [10_000, -1])
@pytest.mark.parametrize("dtype", ["<i4", "<f8"])
def test_array_that_changes_in_between(dtype: str, change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonvalues, "KEPT_BYTES", 1000)
    array = np.full(SMALL_BYTES, 100, dtype)
    message = response(array)
    array[-7] = change if change > 0 else 1
    sent = bytearray()
    with pytest.raises(LocalProtocolError, match="rows"):
        sent.extend(chain.from_iterable(message.buffers))
    assert len(sent) < message.body_length


def test_short_text_of_floats_is_made_once() -> None:
    array = np.full(SMALL_BYTES, 0.25)
    message = response(array)
    text = expected(array.tolist())
    array[:] = np.pi
    assert text_of(message) == text


def make_words() -> Elements:
    return Elements(random.integers(97, 123, (150_000, 7)).astype("u1").view("V7")[:, 0].astype(object))


LARGE: dict[str, Callable[[], Array | Elements]] = {
    "INT8": lambda: noise("i1", 1 << 20),
    "BOOL": lambda: noise("?", 1 << 20),
    "INT64": lambda: noise("<i8", 1 << 18),
    "FP32": lambda: noise("<f4", 80_000),
    "FP64 by columns": lambda: noise("<f8", 80_000).reshape(100, -1).T,
    "one byte everywhere": lambda: np.broadcast_to(np.int8(-100), (1024, 1024)),
    "elements": make_words,
    "one long element": lambda: Elements([b"long \xc3\xa9" * 250_000]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_memory_is_constant(name: str) -> None:
    array = LARGE[name]()
    integers_as_text(np.zeros(1, "<i8"))  # has its tables made
    integers_as_text(np.zeros(1, "i1"))
    integers_as_text(np.zeros(1, "?"))
    tracemalloc.start()
    message = response(array)
    length = sum(map(len, message.buffers))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert length == message.body_length > 1_200_000
    assert peak < jsonvalues.KEPT_BYTES + (2 << 20)


def test_compressed_in_little_memory() -> None:
    array = np.zeros(8 << 20, np.uint8)
    tracemalloc.start()
    message = compress_message(response(array), "gzip")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message.content_encoding == "gzip"
    assert not message.is_streamed
    assert peak < 3 << 20


def test_compressed_no_further_than_it_takes_little_memory() -> None:
    array = noise("<i8", 4 << 20)
    message = response(array)
    tracemalloc.start()
    assert compress_message(message, "gzip") is message
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


def test_windows_beside_it_keep_a_message_from_being_compressed() -> None:
    large = Tensor(name="a", array=noise("<i8", 10_000), is_binary=False)
    windows: Iterator[Array] = iter(())
    assert encode_request([large]).is_compressible
    assert not encode_request([large, Tensor(name="b", array=Rows("INT8", (1,), windows))]).is_compressible
