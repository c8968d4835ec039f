"""Reading one array: each rule of the format, against numpy, cut everywhere."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    Discard,
    Into,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    MemoryMap,
    Windows,
    format_decoder,
)
from streamcodec.formats import npy
from streamcodec.testing import assert_split_invariant, assert_stops_at_end, chunkings, run_pull, run_push, run_scatter
from tests.cputime import least_cpu_seconds
from tests.formats.npy.files import ACCEPTED, DATA, REFUSED, SQUARE, STRICTER, changed, file, loaded, read, saved

ANY_ERROR = (ValueError, EOFError, SyntaxError, TokenError, MemoryError)
"""Of numpy's, which parses the text of a header with Python's own parser."""
SOME = partial(chunkings, at_most=30)
RUNS = (run_push, run_pull, run_scatter)


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("has_length", [False, True])
def test_what_is_right_is_read_as_by_numpy(data: bytes, *, has_length: bool) -> None:
    outcome = read(data, length=len(data) if has_length else None)
    assert outcome.end is not None, outcome.error
    (event,) = outcome.tensors
    expected = loaded(data)
    assert event.spec.name == "array"
    assert (event.array.dtype, event.array.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(event.array, expected)
    assert event.array.tobytes() == expected.tobytes()
    assert event.array.flags.f_contiguous >= expected.flags.f_contiguous


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused(name: str) -> None:
    data, code, words = REFUSED[name]
    error = read(data).error
    assert error is not None
    assert least_cpu_seconds(lambda: read(data), enough=0.5) < 0.5
    assert (error.code, words in error.message) == (code, True), error


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - STRICTER - {"an archive"}))
def test_what_is_wrong_is_refused_by_numpy_too(name: str) -> None:
    with warnings.catch_warnings(action="ignore"), pytest.raises((*ANY_ERROR, OverflowError)):  # with 32 bits
        loaded(REFUSED[name].data)


@pytest.mark.parametrize("data", [*ACCEPTED.values(), *(refusal.data for refusal in REFUSED.values())])
def test_cuts_change_nothing(data: bytes) -> None:
    if len(data) < 1_000:
        assert_split_invariant(npy.decoder, data, runs=RUNS, chunkings=SOME)
        assert_split_invariant(lambda: npy.decoder(length=len(data)), data, chunkings=SOME)


def test_every_cut_changes_nothing() -> None:
    for name in ("Fortran order", "booleans"):
        assert_split_invariant(npy.decoder, ACCEPTED[name], runs=RUNS)


def test_any_end_is_truncated() -> None:
    for end in range(len(file())):
        error = read(file()[:end]).error
        assert error is not None
        assert (error.code, error.offset) == ("truncated", end)


def test_a_length_that_does_not_fit() -> None:
    for difference in (-1, 1):
        error = read(file() + b"x", length=len(file()) + difference).error
        assert error is not None
        assert error.code == "body-length-mismatch"


def test_every_byte_changed_is_refused_or_read_as_by_numpy() -> None:
    data = file("{'descr': '<i2', 'fortran_order': False, 'shape': (1,2)}")
    accepted = 0
    for position in range(10, len(data) - 4):
        for value in b"'\"{}[]()<>|=,:0123456789bicSUVMmTFL \t\n\\\x00\xff-._#":
            candidate = data[:position] + bytes([value]) + data[position + 1 :] + bytes(64)
            outcome = read(candidate)
            if outcome.end is not None and outcome.header is not None:
                accepted += 1
                with warnings.catch_warnings(action="ignore"):
                    expected = loaded(candidate)
                (event,) = outcome.tensors
                assert (event.array.dtype, event.array.shape) == (expected.dtype, expected.shape), candidate
                assert event.array.tobytes() == expected.tobytes()
    assert accepted > 50


def test_any_descr_is_a_datatype_or_refused() -> None:
    units = ("", "[s]", "[0s]", "[9999as]", "[x]", "[25generic]", "[]", "[D]")
    for order in "<>|=":
        for kind in "biufcmMSUVOa?":
            for size in ("", "0", "1", "2", "4", "8", "16", "32", "999", "99999999"):
                for unit in units if kind in "mM" else units[:2]:
                    outcome = read(changed(b"", descr=f"'{order}{kind}{size}{unit}'", shape="(0,)"))
                    assert outcome.end is not None or outcome.error is not None
                    if outcome.end is not None:
                        assert outcome.tensors[0].array.dtype == np.dtype(f"{order}{kind}{size}{unit}")


def test_arrays_one_after_the_other() -> None:
    assert_stops_at_end(npy.decoder, file())
    assert_stops_at_end(lambda: format_decoder(npy.read), file())


def test_windows_and_discards() -> None:
    data = saved(SQUARE)
    outcome = assert_split_invariant(lambda: npy.decoder(place=lambda _: Windows(max_window_bytes=12)), data, runs=RUNS)
    assert [window.row for window in outcome.windows] == [0, 1]
    for array in (SQUARE, np.asfortranarray(SQUARE)):
        outcome = read(saved(array), place=lambda _: Discard())
        assert (outcome.end is not None, outcome.tensors) == (True, [])


def test_fortran_order() -> None:
    data = saved(np.asfortranarray(SQUARE))
    mine = np.zeros((2, 3), "<i4", order="F")
    (event,) = read(data, place=lambda _: Into(mine.T)).tensors
    assert mine.tolist() == event.array.tolist() == SQUARE.tolist()
    assert dict(event.spec.parameters) == {"fortran_order": True}
    error = read(data, place=lambda _: Windows()).error
    assert error is not None
    assert (error.code, error.path) == ("invalid-member", "fortran_order")


@pytest.mark.parametrize(
    ("limit", "most"), [("max_header_bytes", 50), ("max_tensor_bytes", 23), ("max_rank", 1), ("max_elements", 5)]
)
def test_limits(limit: str, most: int) -> None:
    error = read(saved(SQUARE), limits=Limits(**{limit: most})).error
    assert isinstance(error, LimitExceededError)
    assert error.limit == limit


def test_memory_for_big_endian_values_has_their_byte_order() -> None:
    data = saved(SQUARE.astype(">i4"))
    mine = np.zeros((2, 3), ">i4")
    assert read(data, place=lambda _: Into(mine)).tensors[0].array is mine
    assert mine.tolist() == SQUARE.tolist()
    with pytest.raises(LocalProtocolError, match=f"the tensor is {mine.dtype}"):
        read(data, place=lambda _: Into(np.zeros((2, 3), "<i4")))


def test_a_mapped_file_has_the_byte_order_of_the_message(tmp_path: Path) -> None:
    data = saved(SQUARE.astype(">i4"))
    read(data, place=lambda _: MemoryMap(tmp_path / "array.npy"))
    assert (tmp_path / "array.npy").read_bytes() == data


def test_a_scalar_in_fortran_order() -> None:
    (event,) = read(changed(DATA[:2], shape="()", fortran_order="True")).tensors
    array: np.ndarray[Any, Any] = event.array
    assert array.tolist() == 1
