"""The functions of `utils`, alone and beside those of tritonclient."""

from __future__ import annotations

import builtins
import copy
import importlib
import pickle
import struct
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from streamcodec import DATATYPES
from streamcodec.tritonclient import utils
from streamcodec.tritonclient.utils import InferenceServerException

Array = np.ndarray[Any, Any]


@pytest.fixture
def theirs() -> ModuleType:
    module: ModuleType = pytest.importorskip("tritonclient.utils", reason="tritonclient is not here")
    return module


def _objects(*values: object, shape: tuple[int, ...] | None = None) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if shape is None else array.reshape(shape)


@pytest.mark.parametrize("datatype", [*DATATYPES, "FP8", "", None])
def test_types_of_datatypes(theirs: ModuleType, datatype: str) -> None:
    assert utils.triton_to_np_dtype(datatype) is theirs.triton_to_np_dtype(datatype)


@pytest.mark.parametrize(
    "dtype",
    [*np.sctypeDict.values(), bool, object, np.dtype(">f4"), np.dtype("S3"), np.dtype("U3"), ml_dtypes.bfloat16],
)
def test_datatypes_of_types(theirs: ModuleType, dtype: Any) -> None:  # noqa: ANN401 - what numpy.dtype takes
    assert utils.np_to_triton_dtype(np.dtype(dtype)) == theirs.np_to_triton_dtype(np.dtype(dtype))


def test_bf16_without_ml_dtypes() -> None:
    """A type of two bytes takes its place."""
    code = """
import sys
sys.modules["ml_dtypes"] = None
from streamcodec.tritonclient.http import InferInput
from streamcodec.tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype
import numpy as np
dtype = np.dtype(triton_to_np_dtype("BF16"))
assert (dtype.itemsize, np_to_triton_dtype(dtype)) == (2, "BF16")
assert InferInput("x", [2], "BF16").set_data_from_numpy(np.zeros(2, dtype))
"""
    import subprocess  # noqa: PLC0415 - for this test alone

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


BYTES = [
    _objects(b"", b"word", b"a\0"),
    _objects("größe", b"", 7, None, 2.5, shape=(5, 1)),
    _objects(*[b"12345678"] * 100, shape=(10, 10)).T,
    np.array([b"a", b"bc\0d", b"e\0"]),
    np.array([[b"a"], [b"b"]], dtype="S4").T,
    _objects(),
    np.empty((2, 0), dtype="S1"),
]


@pytest.mark.parametrize("array", BYTES, ids=range(len(BYTES)))
def test_bytes(theirs: ModuleType, array: Array) -> None:
    wire, other = utils.serialize_byte_tensor(array), theirs.serialize_byte_tensor(array)
    assert (wire.dtype, wire.shape) == (other.dtype, other.shape)
    if array.size == 0:
        return
    assert wire.item() == other.item()
    back = utils.deserialize_bytes_tensor(wire.item())
    assert back.tolist() == theirs.deserialize_bytes_tensor(wire.item()).tolist()
    assert (back.dtype, back.shape) == (object, (array.size,))


def test_bytes_like_elements() -> None:
    """tritonclient sends their `repr`."""
    array = _objects(bytearray(b"ab"), memoryview(b"c"))
    assert utils.deserialize_bytes_tensor(utils.serialize_byte_tensor(array).item()).tolist() == [b"ab", b"c"]


@pytest.mark.parametrize("wire", [b"\1\0\0", b"\2\0\0\0a"])
def test_wrong_bytes(theirs: ModuleType, wire: bytes) -> None:
    for module in (utils, theirs):
        with pytest.raises(struct.error):
            module.deserialize_bytes_tensor(wire)
    assert utils.deserialize_bytes_tensor(b"").tolist() == []


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1])])
def test_what_is_no_bytes(theirs: ModuleType, array: Array) -> None:
    for module in (utils, theirs):
        with pytest.raises(module.InferenceServerException, match="cannot serialize bytes tensor: invalid datatype"):
            module.serialize_byte_tensor(array)


def test_sizes(theirs: ModuleType) -> None:
    for module in (utils, theirs):
        assert module.serialized_byte_size(_objects(b"abc", b"", shape=(2, 1))) == 3
        assert module.serialized_byte_size(_objects()) == 0
        with pytest.raises(module.InferenceServerException, match="The tensor_value dtype must be"):
            module.serialized_byte_size(np.zeros(2))


def test_bf16() -> None:
    values = np.array([[1.0, -2.5], [np.inf, 3.0e38]], np.float32)
    wire = utils.serialize_bf16_tensor(values)
    assert (wire.dtype, wire.shape, len(wire.item())) == (object, (), 8)
    back = utils.deserialize_bf16_tensor(wire.item())
    assert back.dtype == np.float32
    truncated = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert np.array_equal(back, truncated.reshape(-1))
    assert np.array_equal(np.frombuffer(wire.item(), ml_dtypes.bfloat16).astype(np.float32), back)
    assert utils.serialize_bf16_tensor(np.empty(0, np.float32)).shape == (0,)
    with pytest.raises(InferenceServerException, match="invalid datatype"):
        utils.serialize_bf16_tensor(np.zeros(2))


def test_the_exception(theirs: ModuleType) -> None:
    for arguments in ({"msg": "a"}, {"msg": "a", "status": "400", "debug_details": {"b": 1}}):
        ours, other = InferenceServerException(**arguments), theirs.InferenceServerException(**arguments)
        assert str(ours) == str(other)
        assert (ours.message(), ours.status()) == (other.message(), other.status())
        assert ours.debug_details() == other.debug_details()
        for again in (copy.copy(ours), pickle.loads(pickle.dumps(ours))):  # noqa: S301 - our own
            assert (str(again), again.debug_details()) == (str(ours), ours.debug_details())
    assert str(InferenceServerException(None, "500")) == "[500] "
    with pytest.raises(InferenceServerException, match="why"):
        utils.raise_error("why")


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("grpc", r"tritonclient\[grpc\]"),
        ("grpc.aio", r"tritonclient\[grpc\]"),
        ("utils.cuda_shared_memory", r"tritonclient\[cuda\]"),
    ],
)
def test_what_is_not_here_says_where_it_is(module: str, package: str) -> None:
    with pytest.raises(ImportError, match=package):
        importlib.import_module(f"streamcodec.tritonclient.{module}")


def test_nothing_of_tritonclient_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of what it needs."""
    foreign = {"aiohttp", "gevent", "geventhttpclient", "ml_dtypes", "rapidjson", "tritonclient"}
    ours = [name for name in sys.modules if name.startswith("streamcodec.tritonclient")]
    real_import = builtins.__import__

    def refusing(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        assert name.partition(".")[0] not in foreign
        return real_import(name, globals_, locals_, fromlist or (), level)

    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refusing)
    importlib.import_module("streamcodec.tritonclient.http.aio")
    importlib.import_module("streamcodec.tritonclient.http.auth")
    importlib.import_module("streamcodec.tritonclient.utils.shared_memory")
