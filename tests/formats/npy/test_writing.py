"""Writing: byte for byte what numpy writes, without a copy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, Message, Rows
from streamcodec.formats import npy
from streamcodec.formats.npy import zipping
from tests.formats.npy.files import SQUARE, archived, loaded, read_archive, saved

ARRAYS = {
    "square": SQUARE,
    "fortran": np.asfortranarray(SQUARE),
    "scalar": np.array(1.5, "<f8"),
    "empty": np.zeros((0, 3), np.int8),
    "long": np.arange(300, dtype="<u2"),
    "strings": np.array(["a", "bé"], "<U2"),
    "booleans": np.array([[True], [False]]),
    "dates": np.array(["2026-11-22"], "<M8[D]"),
    "strided": np.arange(10, dtype="<i8")[::2],
    "ranks": np.zeros((1,) * 64, np.int8),
    "é": np.ones(1, "<f8"),
}


def joined(message: Message) -> bytes:
    data = b"".join(message.buffers)
    assert len(data) == message.nbytes
    return data


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_the_bytes_are_those_of_numpy(array: np.ndarray[Any, Any]) -> None:
    assert joined(npy.encode(array)) == saved(array)


def test_types_of_ml_dtypes_are_bytes_without_a_type_as_with_numpy(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    array = np.ones(3, ml_dtypes.bfloat16)
    assert joined(npy.encode(array)) == saved(array)


@pytest.mark.parametrize("rank", range(1, 24))
def test_a_header_leaves_as_much_room_to_grow_as_that_of_numpy(rank: int) -> None:
    for size in (0, 9, 12_345, 10**9):
        array = np.zeros((size, 0, *[1] * rank), np.int8)
        assert joined(npy.encode(array)) == saved(array)


def test_big_endian_arrays_become_little_endian() -> None:
    assert joined(npy.encode(SQUARE.astype(">i4"))) == saved(SQUARE)


@pytest.mark.parametrize("array", [SQUARE, np.asfortranarray(SQUARE)])
def test_arrays_are_not_copied(array: np.ndarray[Any, Any]) -> None:
    array = array.copy(order="K")
    _, view = npy.encode(array).parts
    array[0, 0] = 7
    assert bytes(memoryview(view)[:4]) == b"\7\0\0\0"  # type: ignore[arg-type] # no `Rows`


def test_rows() -> None:
    rows = Rows("INT32", (2, 3), (SQUARE[index : index + 1] for index in range(2)))
    assert joined(npy.encode(rows)) == saved(SQUARE)


@pytest.mark.parametrize("array", [np.array([None]), np.zeros(1, "i4,f4"), [1], None])
def test_what_has_no_form(array: Any) -> None:  # noqa: ANN401 - of wrong types, too
    with pytest.raises(LocalProtocolError):
        npy.encode(array)


def test_the_archive_is_that_of_numpy() -> None:
    written = joined(npy.encode_archive(ARRAYS))
    if sys.version_info >= (3, 11, 4):  # whose `zipfile` writes sizes in one place only
        assert written == archived(**ARRAYS)
    assert joined(npy.encode_archive({})) == archived()
    for name, array in read_archive(written).items():
        assert array.tobytes() == loaded(written)[name].tobytes()


@pytest.mark.parametrize("name", ["\0", "a" * 65_532, "\ud800", 1])
def test_names_that_no_member_can_have(name: Any) -> None:  # noqa: ANN401 - of a wrong type, too
    with pytest.raises(LocalProtocolError):
        npy.encode_archive({name: SQUARE})


def test_rows_cannot_be_archived() -> None:
    with pytest.raises(LocalProtocolError, match="checksum"):
        npy.encode_archive({"a": Rows("INT32", (1,), [])})  # type: ignore[dict-item]


def test_long_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 2 GiB were 100 bytes, for numpy and for us."""
    monkeypatch.setattr("zipfile.ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipping, "LONG_FROM", 100)
    expected = archived(**ARRAYS)
    assert joined(npy.encode_archive(ARRAYS)) == expected
    assert list(read_archive(expected)) == list(ARRAYS)
