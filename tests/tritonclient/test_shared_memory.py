"""System shared memory: regions of ours and of tritonclient are the same."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from streamcodec.tritonclient.utils import serialize_byte_tensor, shared_memory
from streamcodec.tritonclient.utils.shared_memory import SharedMemoryException


@pytest.fixture
def key() -> str:
    return f"/streamcodec_{os.getpid()}"


def test_arrays(key: str) -> None:
    numbers, texts = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([[b"ab"], [b""]], object)
    region = shared_memory.create_shared_memory_region("name", key, 64)
    assert shared_memory.mapped_shared_memory_regions() == [key]
    shared_memory.set_shared_memory_region(region, [numbers, serialize_byte_tensor(texts)], offset=8)
    found = shared_memory.get_contents_as_numpy(region, np.int32, [2, 3], offset=8)
    assert np.array_equal(found, numbers)
    found += 1  # in place
    assert np.array_equal(shared_memory.get_contents_as_numpy(region, np.int32, [6], 8), np.arange(1, 7))
    assert shared_memory.get_contents_as_numpy(region, np.object_, [2, 1], 8 + 24).tolist() == texts.tolist()
    assert shared_memory.get_contents_as_numpy(region, np.bytes_, [2], 8 + 24).tolist() == [b"ab", b""]
    assert shared_memory.get_contents_as_numpy(region, object, [0]).tolist() == []
    del found  # its memory goes
    shared_memory.destroy_shared_memory_region(region)
    assert shared_memory.mapped_shared_memory_regions() == []
    with pytest.raises(SharedMemoryException, match="was destroyed"):
        shared_memory.destroy_shared_memory_region(region)
    with pytest.raises(SharedMemoryException, match="was destroyed"):
        shared_memory.get_contents_as_numpy(region, np.int32, [1])


def test_several_handles(key: str) -> None:
    first = shared_memory.create_shared_memory_region("a", key, 16)
    with pytest.warns(UserWarning, match="bytes instead of 1048576"):
        second = shared_memory.create_shared_memory_region("b", key, 1 << 20)
    with pytest.raises(SharedMemoryException, match="unable to create"):
        shared_memory.create_shared_memory_region("c", key, 16, create_only=True)
    shared_memory.set_shared_memory_region(first, [np.array([7], np.uint8)])
    assert shared_memory.get_contents_as_numpy(second, np.uint8, [1]) == [7]
    shared_memory.destroy_shared_memory_region(first)
    assert shared_memory.mapped_shared_memory_regions() == [key]
    shared_memory.destroy_shared_memory_region(second)
    new = shared_memory.create_shared_memory_region("d", key, 16, create_only=True)  # it had gone
    shared_memory.destroy_shared_memory_region(new)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.zeros(2), "a list/tuple of numpy arrays"),
        ([[1]], "each element of input_values must be a numpy array"),
        ([np.zeros(100_000)], "unable to set"),
        ([np.array([1, 2], object)], "unable to set"),
    ],
)
def test_what_cannot_be_put_there(key: str, values: Any, complaint: str) -> None:  # noqa: ANN401 - no arrays
    region = shared_memory.create_shared_memory_region("name", key, 16)
    with pytest.raises(SharedMemoryException, match=complaint):
        shared_memory.set_shared_memory_region(region, values)
    shared_memory.destroy_shared_memory_region(region)


def test_with_tritonclient(key: str) -> None:
    theirs: ModuleType = pytest.importorskip("tritonclient.utils.shared_memory", reason="tritonclient is not here")
    array = np.arange(4, dtype=np.float32)
    other = theirs.create_shared_memory_region("name", key, 64)
    mine = shared_memory.create_shared_memory_region("name", key, 64)
    theirs.set_shared_memory_region(other, [array], 4)
    assert np.array_equal(shared_memory.get_contents_as_numpy(mine, np.float32, [4], 4), array)
    shared_memory.destroy_shared_memory_region(mine)
    theirs.destroy_shared_memory_region(other)
