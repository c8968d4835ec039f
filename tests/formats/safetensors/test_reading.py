"""Reading: each rule of the format, against its own implementation, cut everywhere, in bounded memory."""

from __future__ import annotations

import json
import sys
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_TURN,
    Discard,
    HeaderReceived,
    Into,
    LimitExceededError,
    Limits,
    Place,
    TensorSpec,
    Windows,
    chosen,
    format_decoder,
    new_array,
)
from streamcodec.formats import safetensors
from streamcodec.formats.safetensors import dtypes
from streamcodec.testing import assert_split_invariant, assert_stops_at_end, chunkings, run_pull, run_push, run_scatter
from tests.cputime import least_cpu_seconds
from tests.formats.safetensors.files import ACCEPTED, DTYPES, REFUSED, STRICTER, entry, file, read, values, viewed

SOME = partial(chunkings, at_most=30)
RUNS = (run_push, run_pull, run_scatter)


def ours(data: bytes, **options: Any) -> dict[str, tuple[str, list[int], bytes]]:  # noqa: ANN401 - of the decoder
    outcome = read(data, **options)
    assert outcome.end is not None, outcome.error
    return {
        event.spec.name: (event.spec.datatype.name, list(event.array.shape), event.array.tobytes())
        for event in outcome.tensors
    }


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_right_is_read_as_by_the_reference(data: bytes) -> None:
    assert ours(data) == viewed(data)
    assert ours(data, length=len(data)) == viewed(data)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_as_by_the_reference(name: str) -> None:
    data, code, words = REFUSED[name]
    error = read(data).error
    assert error is not None
    assert (error.code, words in error.message) == (code, True), error
    if name == "2^38 bytes of data":  # a file that nobody can make for the reference
        return
    assert (viewed(data) is not None) == (name in STRICTER)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_where_the_length_is_known(name: str) -> None:
    data, code, _ = REFUSED[name]
    error = read(data, length=len(data)).error
    assert error is not None
    sizes = {"truncated", "trailing-bytes"}
    assert error.code == code or (
        (code in sizes or "2^38" in name) and error.code in {"body-length-mismatch", "header-exceeds-body"}
    )


@pytest.mark.parametrize("data", [*ACCEPTED.values(), *(refusal.data for refusal in REFUSED.values())])
def test_cuts_change_nothing(data: bytes) -> None:
    assert_split_invariant(safetensors.decoder, data, runs=RUNS, chunkings=SOME)
    assert_split_invariant(lambda: safetensors.decoder(length=len(data)), data, chunkings=SOME)


def test_every_cut_changes_nothing() -> None:
    for name in ("another order", "letters in metadata"):
        assert_split_invariant(safetensors.decoder, ACCEPTED[name], runs=RUNS)


def test_any_end_is_truncated() -> None:
    data = ACCEPTED["another order"]
    for end in range(len(data)):
        error = read(data[:end]).error
        assert error is not None
        assert (error.code, error.offset) == ("truncated", end)


def test_every_byte_changed_is_refused_or_read_as_by_the_reference() -> None:
    data = file('{"__metadata__":{"a":"b"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
    accepted = 0
    for position in range(8, len(data) - 4):
        for value in b'"{}[],:0123456789aU \\\x00\xff-.':
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            expected = viewed(changed)
            outcome = read(changed)
            if outcome.end is not None:
                accepted += 1
                assert expected == ours(changed), changed
    assert accepted > 100


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name: str) -> None:
    array = values(name)
    data = entry(array.tobytes(), dtype=name, shape=[2, 1], data_offsets=[0, array.nbytes])
    (event,) = read(data).tensors
    assert event.array.dtype == np.dtype(DTYPES[name]).newbyteorder("<")
    assert event.array.tobytes() == array.tobytes()
    assert viewed(data) == ours(data)


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtypes.find_datatype.cache_clear()
    error = read(entry(b"1", dtype="F8_E4M3", data_offsets=[0, 1])).error
    dtypes.find_datatype.cache_clear()
    assert error is not None
    assert error.code == "unknown-datatype"
    assert "if it is installed" in error.message


def test_metadata() -> None:
    header = read(ACCEPTED["letters in metadata"]).header
    assert dict(header.metadata) == {"é": "ü"}
    assert dict(read(ACCEPTED["metadata null"]).header.metadata) == {}
    with pytest.raises(TypeError):
        header.metadata["a"] = "b"


def test_places_of_errors() -> None:
    cases = {"a control character": (10, None), "2^64 elements": (None, "$['a'].shape"), "a space first": (8, None)}
    for name, place in cases.items():
        error = read(REFUSED[name].data).error
        assert error is not None
        assert (error.offset, error.path) == place


def test_tensors_without_elements_keep_the_order_of_the_header() -> None:
    """They begin and end at the same byte, so their bytes say nothing about their order."""
    text = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in "bca"})
    assert [spec.name for spec in read(file(text, b"")).header.tensors] == ["b", "c", "a"]


FOUR = safetensors.encode({name: np.full((4, 2), index, np.int16) for index, name in enumerate("abcd")})
FOUR_BYTES = b"".join(map(bytes, FOUR.buffers))


def test_only_chosen_tensors() -> None:
    outcome = read(FOUR_BYTES, place=chosen({"b", "d", "x"}))
    assert [event.spec.name for event in outcome.tensors] == ["b", "d"]
    assert [spec.name for spec in outcome.header.tensors] == ["a", "b", "c", "d"]
    assert outcome.end is not None


def test_windows_and_memory_of_ones_own() -> None:
    mine = np.zeros((4, 2), "<i2")
    places = {"a": Windows(max_window_bytes=8), "b": Into(mine), "c": Discard()}

    def place(spec: TensorSpec) -> Any:  # noqa: ANN401 - several kinds
        return places.get(spec.name) or new_array(spec)

    def make() -> Any:  # noqa: ANN401 - a decoder
        return safetensors.decoder(place=place)

    outcome = assert_split_invariant(make, FOUR_BYTES, runs=RUNS)
    assert [(window.name, window.row) for window in outcome.windows] == [("a", 0), ("a", 2)]
    assert [event.spec.name for event in outcome.tensors] == ["b", "d"]
    assert mine.tolist() == [[1, 1]] * 4


def test_what_nobody_wants_takes_no_memory() -> None:
    nbytes = 64 << 20
    head = b"".join(map(bytes, safetensors.encode({"a": np.zeros(0, np.uint8)}).buffers))
    head = head.replace(b"[0]", b"[%d]" % nbytes).replace(b"[0,0]", b"[0,%d]" % nbytes).rstrip()
    head = (len(head) - 8).to_bytes(8, "little") + head[8:]
    decoder = safetensors.decoder(length=len(head) + nbytes, place=chosen(()))
    tracemalloc.start()
    decoder.feed(head)
    block = bytes(1 << 20)
    for _ in range(64):
        decoder.feed(block)
        decoder.next_event()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert decoder.is_complete
    assert peak < 4 << 20


def test_others_have_turns_while_the_header_is_parsed() -> None:
    decoder = safetensors.decoder(paced=True)
    decoder.feed(FOUR_BYTES)
    for _ in range(4):  # before the text, behind it, before its entries, and before they are put in order
        assert decoder.next_event() is NEED_TURN
        decoder.work()
    decoder.feed(FOUR_BYTES[decoder.offset :])
    assert isinstance(decoder.next_event(), HeaderReceived)


def test_files_one_after_the_other() -> None:
    assert_stops_at_end(lambda: format_decoder(safetensors.read), FOUR_BYTES)


@pytest.mark.parametrize(
    ("limit", "most"),
    [("max_header_bytes", 100), ("max_tensors", 3), ("max_tensor_bytes", 15), ("max_rank", 1), ("max_elements", 7)],
)
def test_limits(limit: str, most: int) -> None:
    error = read(FOUR_BYTES, limits=Limits(**{limit: most})).error
    assert isinstance(error, LimitExceededError)
    assert error.limit == limit


def test_a_header_is_refused_before_its_memory_is_taken() -> None:
    tracemalloc.start()
    error = read(file("{}", b"", length=90_000_000)).error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, LimitExceededError)
    assert peak < 1 << 20


@pytest.mark.parametrize("values", ["[[],[],[],", '{"a":1,"b":2},', '{"a":{"a":'])
def test_a_header_of_many_values_takes_little_time_and_memory(values: str) -> None:
    text = '{"a":[' + values * (4_000_000 // len(values))
    data = file(text)
    tracemalloc.start()
    error = read(data).error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, LimitExceededError)
    assert error.limit == "max_tensors"
    assert peak < 4 * len(data)
    assert least_cpu_seconds(lambda: read(data), enough=1) < 1


@pytest.mark.slow
def test_many_tensors_are_read_in_linear_time() -> None:
    place: Place = chosen(())

    def seconds(count: int) -> float:
        message = safetensors.encode({str(index): np.zeros(1, np.uint8) for index in range(count)})
        data = b"".join(map(bytes, message.buffers))
        assert read(data, place=place).end is not None
        return least_cpu_seconds(lambda: read(data, place=place))

    assert seconds(16_000) < 24 * seconds(2_000)
