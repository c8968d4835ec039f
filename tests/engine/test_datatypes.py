"""Datatypes: the table of 14, numpy's side of it, and BF16 with and without `ml_dtypes`."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import streamcodec
from streamcodec import DATATYPES, Datatype, LocalProtocolError, datatype_of
from streamcodec.engine.datatypes import is_big_endian, little_endian
from tests.formats.v2.messages import binary, request

TABLE = {
    "BOOL": ("?", 1, "b", True),
    "UINT8": ("u1", 1, "u", True),
    "UINT16": ("<u2", 2, "u", True),
    "UINT32": ("<u4", 4, "u", True),
    "UINT64": ("<u8", 8, "u", True),
    "INT8": ("i1", 1, "i", True),
    "INT16": ("<i2", 2, "i", True),
    "INT32": ("<i4", 4, "i", True),
    "INT64": ("<i8", 8, "i", True),
    "FP16": ("<f2", 2, "f", False),
    "FP32": ("<f4", 4, "f", True),
    "FP64": ("<f8", 8, "f", True),
    "BYTES": ("O", 4, "O", True),
}
"""All but BF16."""


def test_there_are_14() -> None:
    assert set(DATATYPES) == {*TABLE, "BF16"}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    datatype = DATATYPES[name]
    assert (datatype.name, datatype.dtype, datatype.itemsize, datatype.kind, datatype.has_json) == (
        name,
        np.dtype(TABLE[name][0]),
        *TABLE[name][1:],
    )
    assert datatype.is_bytes is (name == "BYTES")


@pytest.mark.parametrize("name", TABLE)
def test_dtype_and_back_in_any_byte_order(name: str) -> None:
    dtype: Any = np.dtype(TABLE[name][0])
    for order in "<>=|":
        assert datatype_of(dtype.newbyteorder(order)) is DATATYPES[name]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("S5", "BYTES"),
        ("S0", "BYTES"),
        ("<U3", "BYTES"),
        (">U3", "BYTES"),
        (np.longlong, {8: "INT64"}[np.dtype(np.longlong).itemsize]),
        (np.ulonglong, {8: "UINT64"}[np.dtype(np.ulonglong).itemsize]),
        (np.dtype("<f4", metadata={"unit": "m"}), "FP32"),
    ],
)
def test_other_dtypes_of_the_same_values(dtype: Any, name: str) -> None:  # noqa: ANN401 - anything numpy takes
    assert datatype_of(np.dtype(dtype)) is DATATYPES[name]


@pytest.mark.parametrize(
    "dtype", ["c8", "c16", "M8[s]", "m8[ns]", "V4", "i4,f4", np.dtype([("a", "u1")]), np.longdouble]
)
def test_dtypes_that_the_protocol_does_not_have(dtype: Any) -> None:  # noqa: ANN401 - anything numpy takes
    if np.dtype(dtype) == np.dtype("f8"):
        pytest.skip("long double is double here")
    with pytest.raises(LocalProtocolError, match="convert the array first"):
        datatype_of(np.dtype(dtype))


def test_four_bits_are_no_datatype_of_the_protocol(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    with pytest.raises(LocalProtocolError, match="convert the array first"):
        datatype_of(np.dtype(ml_dtypes.int4))


# BF16

BITS = [0x0000, 0x8000, 0x3F80, 0xFF80, 0x7FC0, 0x7F81, 0x0001]
"""0, -0, 1, -inf, NaN, a signalling NaN, the smallest number."""
PAYLOAD = np.array(BITS, "<u2").tobytes()


def test_bfloat16_in_the_table(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    datatype, dtype = DATATYPES["BF16"], np.dtype(ml_dtypes.bfloat16)
    assert datatype.dtype == dtype.newbyteorder("<")
    assert (datatype.itemsize, datatype.kind, datatype.has_json, datatype.is_bytes) == (2, "f", False, False)
    for order in "<>=|":
        assert datatype_of(dtype.newbyteorder(order)) is datatype


def test_bfloat16_keeps_every_bit(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    message = streamcodec.encode_request([streamcodec.Tensor(name="x", array=_bfloat16(streamcodec))])
    assert bytes([*message.buffers][1]) == PAYLOAD
    array = _decoded(streamcodec)
    assert array.dtype == np.dtype(ml_dtypes.bfloat16).newbyteorder("<")
    assert array.tobytes() == PAYLOAD
    assert float(array[2]) == 1.0


def test_bfloat16_in_the_other_byte_order_is_swapped(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    swapped = _bfloat16(streamcodec).astype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    assert swapped.tobytes() == np.array(BITS, ">u2").tobytes()
    assert bytes([*streamcodec.encode_request({"x": swapped}).buffers][1]) == PAYLOAD
    wire = little_endian(swapped.dtype)
    assert np.frombuffer(PAYLOAD, wire).astype("f4").tolist()[:3] == [0.0, -0.0, 1.0]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4"])
def test_one_byte_has_no_order_on_any_host(name: str, ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    dtype = np.dtype(getattr(ml_dtypes, name))
    assert dtype.byteorder == "="  # unlike numpy's own types of one byte
    for host in ("little", "big"):
        assert not is_big_endian(dtype, host=host)
        assert little_endian(dtype, host=host) is dtype


def test_the_byte_order_of_the_host_is_no_order_of_the_wire(ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    dtype = np.dtype(ml_dtypes.bfloat16)
    assert [is_big_endian(dtype, host=host) for host in ("little", "big")] == [False, True]
    assert little_endian(dtype, host="little") is dtype
    chosen = little_endian(dtype, host="big")
    assert chosen.byteorder == "<"  # it is said, as the dtype of the host is "="
    assert not is_big_endian(chosen, host="big")
    swapped = np.dtype(">f4") if sys.byteorder == "little" else dtype.newbyteorder(">")
    assert is_big_endian(swapped, host=sys.byteorder)


@pytest.fixture
def without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A streamcodec imported anew, where `ml_dtypes` is not to be had."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "streamcodec"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    yield importlib.import_module("streamcodec")
    for name in [name for name in sys.modules if name.partition(".")[0] == "streamcodec"]:
        del sys.modules[name]


def test_bfloat16_without_ml_dtypes_is_uint16_that_says_so(without_ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    array = _decoded(without_ml_dtypes)
    assert array.dtype == np.dtype("<u2")
    assert array.tolist() == BITS
    for derived in (
        array,
        array[1:],
        array.reshape(7, 1),
        array.copy(),
        array.view(),
        array[::2],
        np.empty_like(array),
    ):
        assert without_ml_dtypes.datatype_of(derived.dtype).name == "BF16"
    assert without_ml_dtypes.datatype_of(np.dtype("<u2")).name == "UINT16"
    assert without_ml_dtypes.datatype_of(pickle.loads(pickle.dumps(array.dtype))).name == "BF16"  # noqa: S301 - ours


def test_bfloat16_without_ml_dtypes_goes_both_ways(without_ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    codec = without_ml_dtypes
    for array in (_decoded(codec), np.array(BITS, codec.DATATYPES["BF16"].dtype), np.repeat(_decoded(codec), 2)[::2]):
        message = codec.encode_request([codec.Tensor(name="x", array=array)])
        assert b'"datatype":"BF16"' in next(iter(message.buffers))
        assert bytes([*message.buffers][1]) == PAYLOAD


def _bfloat16(codec: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - a module
    return np.frombuffer(PAYLOAD, codec.DATATYPES["BF16"].dtype)


def _decoded(codec: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - a module
    good = request(binary("BF16", [7], 14), payload=PAYLOAD)
    decoder = codec.request_decoder(header_length=good.header_length, body_length=good.body_length)
    decoder.feed(good.body)
    decoder.next_event()
    array: np.ndarray[Any, Any] = decoder.next_event().array
    return array


# Datatypes of one's own

F2 = np.dtype("<f2")


def test_a_datatype_of_ones_own_is_its_name_and_its_dtype() -> None:
    one, same = Datatype("F2", F2), Datatype("F2", F2)
    assert one == same
    assert hash(one) == hash(same)
    assert one not in {Datatype("F2", np.dtype("<u2")), Datatype("F3", F2), "F2"}
    assert (one.itemsize, one.has_json, one.is_bytes) == (2, False, False)
    assert repr(one) == f"Datatype('F2', {F2!r})"


def test_a_datatype_stays_as_it_is() -> None:
    with pytest.raises(AttributeError, match="immutable; itemsize"):
        Datatype("F2", F2).itemsize = 2
    with pytest.raises(AttributeError, match="immutable; name"):
        DATATYPES["INT8"].name = "x"


def test_datatypes_are_pickled() -> None:
    for name in DATATYPES:
        assert pickle.loads(pickle.dumps(DATATYPES[name])) is DATATYPES[name]  # noqa: S301 - our own
    own = Datatype("C64", np.dtype("<c8"), has_json=True)
    again = pickle.loads(pickle.dumps(own))  # noqa: S301 - our own
    assert again == own
    assert again.has_json


@pytest.mark.parametrize("dtype", ["O", "V0", "i4,f4", "(2,)i4", "S0"])
def test_values_of_no_fixed_size_are_no_datatype(dtype: str) -> None:
    with pytest.raises(LocalProtocolError, match="plain values of a fixed size"):
        Datatype("X", np.dtype(dtype))


def test_a_datatype_has_the_byte_order_of_its_dtype() -> None:
    big, little = (Datatype("X", np.dtype(f"{order}f4")) for order in "><")
    assert (big.dtype.str, little.dtype.str) == (">f4", "<f4")
    assert big != little
