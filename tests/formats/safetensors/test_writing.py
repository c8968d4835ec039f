"""Writing: byte for byte what the format's own implementation writes, but that its metadata are in random order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import DATATYPES, Elements, LocalProtocolError, Message, Rows
from streamcodec.formats import safetensors
from tests.formats.safetensors.files import DTYPES, read, reference, values, viewed

numpys: Any = pytest.importorskip("safetensors.numpy", reason="not every processor has it")

NUMPYS = [name for name in DTYPES if name != "BF16" and not name.startswith("F8")]


def joined(message: Message) -> bytes:
    data = b"".join(message.buffers)
    assert len(data) == message.nbytes
    return data


@pytest.mark.parametrize("metadata", [None, {}, {'é"': 'é"\\\n\x1f\x7f'}])
def test_the_bytes_are_those_of_the_reference(metadata: dict[str, str] | None) -> None:
    tensors = {f'{index}é"\n/': values(name) for index, name in enumerate(NUMPYS)}
    tensors |= {
        "scalar": np.array(5.0),
        "empty": np.zeros((2, 0), np.int8),
        "a": np.ones(3, ">i4"),
        "B": np.ones(1, "u1"),
    }
    written = joined(safetensors.encode(tensors, metadata))
    expected = numpys.save(
        {name: np.asarray(array, array.dtype.newbyteorder("<")) for name, array in tensors.items()}, metadata
    )
    assert written == expected
    assert read(written).header.metadata == (metadata or {})


def test_no_tensors() -> None:
    assert joined(safetensors.encode({})) == numpys.save({})


def test_every_dtype_and_back() -> None:
    tensors = {f"x{name}": values(name) for name in DTYPES}
    written = joined(safetensors.encode(tensors))
    specs = {}
    for name, array in tensors.items():
        specs[name] = reference.TensorSpec(
            dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
        )
    expected = reference.serialize(specs)
    assert written == bytes(expected)
    assert _dtypes(written) == {f"x{name}": name for name in DTYPES}
    for event in read(written).tensors:
        assert event.array.tobytes() == tensors[event.spec.name].tobytes()


def _dtypes(data: bytes) -> dict[str, str]:
    return {name: dtype for name, (dtype, *_) in (viewed(data) or {}).items()}


def test_arrays_are_not_copied() -> None:
    array = np.zeros((100, 100), np.float32)
    _, view = safetensors.encode({"a": array}).parts
    array[0, 0] = 1
    assert bytes(memoryview(view)[:4]) == np.float32(1).tobytes()  # type: ignore[arg-type] # no `Rows`


def test_other_layouts_are_copied() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    assert numpys.load(joined(safetensors.encode({"a": array})))["a"].tolist() == array.tolist()


def test_rows() -> None:
    rows = Rows("BF16", (4, 2), (np.full((2, 2), index, DATATYPES["BF16"].dtype) for index in range(2)))
    (event,) = read(joined(safetensors.encode({"a": rows}))).tensors
    assert event.array.astype(int).tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]


def test_bfloat16_without_ml_dtypes() -> None:
    dtype = np.dtype("<u2", metadata={"streamcodec.datatype": "BF16"})
    written = joined(safetensors.encode({"a": np.array([0x3F80], dtype), "b": np.array([1], "<u2")}))
    assert _dtypes(written) == {"a": "BF16", "b": "U16"}


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        ({"a": np.array(["text"])}, None),
        ({"a": np.array([None])}, None),
        ({"a": np.zeros(1, np.complex128)}, None),
        ({"a": np.zeros(1, "i4,f4")}, None),
        ({"a": Elements([b"x"])}, None),
        ({"a": [1]}, None),
        ({1: np.zeros(1)}, None),
        ({"__metadata__": np.zeros(1)}, None),
        ({"\ud800": np.zeros(1)}, None),
        ({}, {"a": 1}),
        ({}, {1: "a"}),
    ],
)
def test_what_has_no_form(tensors: Any, metadata: Any) -> None:  # noqa: ANN401 - of wrong types, too
    with pytest.raises(LocalProtocolError):
        safetensors.encode(tensors, metadata)
