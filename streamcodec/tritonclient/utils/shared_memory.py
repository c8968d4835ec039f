"""Shared memory: system shared memory that a program and a Triton server on the same machine both see.

A program makes a region, copies arrays into it, registers it with the client's `register_system_shared_memory`, and
names it in `InferInput.set_shared_memory`. This module only makes, fills, reads and removes the memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.tritonclient.utils import Array

__all__ = [
    "SharedMemoryException",
    "SharedMemoryRegion",
    "create_shared_memory_region",
    "destroy_shared_memory_region",
    "get_contents_as_numpy",
    "mapped_shared_memory_regions",
    "set_shared_memory_region",
]

_PREFIX_BYTES = 4


class SharedMemoryException(Exception):  # noqa: N818 - its name is tritonclient's
    """A region cannot be made, or values cannot be put there."""


class SharedMemoryRegion:
    """A region of shared memory, as this process has it."""

    def __init__(self, triton_shm_name: str, shm_key: str) -> None:
        """Name a region: `triton_shm_name` for the server, `shm_key` for the operating system."""
        self.name = triton_shm_name
        self.key = shm_key
        self.memory: SharedMemory | None = None

    @property
    def view(self) -> memoryview:
        """The memory.

        Raises:
            SharedMemoryException: the region was destroyed.
        """
        view = None if self.memory is None else self.memory.buf
        if view is None:
            raise SharedMemoryException(f"the shared memory region {self.name!r} was destroyed")
        return view


class _Key:
    """What this process has of one key: how many handles, and whether it has made the memory."""

    def __init__(self) -> None:
        self.handles = 0
        self.is_ours = False


_keys: dict[str, _Key] = {}


def create_shared_memory_region(
    triton_shm_name: str,
    shm_key: str,
    byte_size: int,
    create_only: bool = False,
) -> SharedMemoryRegion:
    """Make a region of shared memory, or open the one that has this key.

    Args:
        triton_shm_name: name for the server.
        shm_key: name for the operating system, with or without a slash at its start.
        byte_size: of the region, if it is made now.
        create_only: whether a region that exists is an error.

    Raises:
        SharedMemoryException: the region cannot be made.
    """
    region = SharedMemoryRegion(triton_shm_name, shm_key)
    with suppress(FileNotFoundError):  # it is made below
        region.memory = None if create_only else SharedMemory(shm_key)
    is_new = region.memory is None
    if region.memory is None:
        try:
            region.memory = SharedMemory(shm_key, create=True, size=byte_size)
        except (OSError, ValueError) as error:
            raise SharedMemoryException("unable to create the shared memory region") from error
    key = _keys.setdefault(shm_key, _Key())
    key.handles += 1
    key.is_ours |= is_new
    if region.memory.size < byte_size:
        warnings.warn(
            f"the shared memory region with key {shm_key!r} exists, and has {region.memory.size} bytes instead of "
            f"{byte_size}",
            stacklevel=2,
        )
    return region


def set_shared_memory_region(shm_handle: SharedMemoryRegion, input_values: Sequence[Array], offset: int = 0) -> None:
    """Copy arrays into a region, one behind the other.

    Args:
        shm_handle: the region.
        input_values: a list or tuple of arrays; an array of objects holds one `bytes`, as from `serialize_byte_tensor`.
        offset: bytes of the region before the first array.

    Raises:
        SharedMemoryException: they are no arrays, or do not fit.
    """
    if not isinstance(input_values, list | tuple):
        raise SharedMemoryException("input_values must be specified as a list/tuple of numpy arrays")
    if not all(isinstance(value, np.ndarray) for value in input_values):
        raise SharedMemoryException("each element of input_values must be a numpy array")
    try:
        for value in input_values:
            array = np.frombuffer(value.item(), np.uint8) if value.dtype == np.object_ else value
            np.ndarray(array.shape, array.dtype, shm_handle.view, offset)[...] = array
            offset += array.nbytes
    except (TypeError, ValueError) as error:
        raise SharedMemoryException("unable to set the shared memory region") from error


def get_contents_as_numpy(
    shm_handle: SharedMemoryRegion,
    datatype: Any,  # noqa: ANN401 - what numpy.dtype takes
    shape: Sequence[int],
    offset: int = 0,
) -> Array:
    """Return an array of what is in a region.

    The array shares the region's memory and must not be used after the region was destroyed. BYTES are copied.

    Args:
        shm_handle: the region.
        datatype: of the array; objects or `numpy.bytes_` for BYTES.
        shape: of the array.
        offset: bytes of the region before it.

    Raises:
        RemoteProtocolError: the lengths of BYTES elements do not fit.
    """
    if np.dtype(datatype).kind not in "OS":
        return np.ndarray(shape, datatype, shm_handle.view, offset)
    memory, end = shm_handle.view, offset
    for _ in range(math.prod(shape)):
        end += _PREFIX_BYTES + int.from_bytes(memory[end : end + _PREFIX_BYTES], "little")
    return Elements.from_wire(bytes(memory[offset:end]), tuple(shape)).array


def mapped_shared_memory_regions() -> list[str]:
    """Return the keys of all regions that were made or opened and not destroyed."""
    return list(_keys)


def destroy_shared_memory_region(shm_handle: SharedMemoryRegion) -> None:
    """Give a region back; the last handle removes the memory, if this process has made it.

    Arrays that share its memory must not be used any more.

    Raises:
        SharedMemoryException: it was destroyed before.
    """
    memory = shm_handle.memory
    if memory is None:
        raise SharedMemoryException(f"the shared memory region {shm_handle.name!r} was destroyed before")
    memory.close()
    shm_handle.memory = None
    key = _keys[shm_handle.key]
    key.handles -= 1
    if not key.handles:
        del _keys[shm_handle.key]
        if key.is_ours:
            memory.unlink()
