"""Memory maps: a tensor goes into a file that numpy reads."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import DATATYPES, HeaderReceived, MemoryMap, TensorReceived, request_decoder
from tests.formats.v2.messages import Message, binary, jsonic, request

FIXED = [name for name, datatype in DATATYPES.items() if not datatype.is_bytes]


def received(message: Message, path: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - text or a path
    decoder = request_decoder(
        header_length=message.header_length, body_length=len(message.body), place=lambda _: MemoryMap(path)
    )
    decoder.feed(message.body)
    assert isinstance(decoder.next_event(), HeaderReceived)
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    return event.array


@pytest.mark.parametrize("shape", [[], [2, 3], [0], [3, 0, 2]], ids=str)
@pytest.mark.parametrize("name", FIXED)
def test_numpy_reads_the_file_while_the_array_is_there_and_after(tmp_path: Path, name: str, shape: list[int]) -> None:
    datatype = DATATYPES[name]
    nbytes = math.prod(shape) * datatype.itemsize
    payload = (b"\1\0" * nbytes)[:nbytes]
    path = tmp_path / "tensor.npy"
    array = received(request(binary(name, shape, nbytes), payload=payload), path)
    assert (array.dtype, array.shape, array.tobytes()) == (datatype.dtype, tuple(shape), payload)
    assert array.ctypes.data % 64 == 0
    kept = [array]
    del array
    for _ in range(2):
        mapped = np.load(path, mmap_mode="r")
        assert mapped.dtype == (np.dtype("<u2") if name == "BF16" else datatype.dtype)
        assert (mapped.shape, mapped.tobytes()) == (tuple(shape), payload)
        kept.clear()


def test_a_tensor_of_json_goes_into_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "tensor.npy"
    received(request(jsonic("FP32", [2, 2], [[1, 2], [3, 4]])), str(path))
    assert np.load(path).tolist() == [[1, 2], [3, 4]]


def test_the_transport_writes_into_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "tensor.npy"
    message = request(binary("UINT8", [5000], 5000))
    decoder = request_decoder(header_length=len(message.body), body_length=None, place=lambda _: MemoryMap(path))
    decoder.feed(message.body)
    decoder.get_buffer()[:] = b"x" * 5000
    assert np.load(path, mmap_mode="r").tobytes() == b"x" * 5000


def test_a_file_that_cannot_be_made_is_the_systems_own_error(tmp_path: Path) -> None:
    message = request(binary("UINT8", [1], 1))
    decoder = request_decoder(
        header_length=len(message.body), body_length=None, place=lambda _: MemoryMap(tmp_path / "no" / "x.npy")
    )
    decoder.feed(message.body + b"x")
    decoder.next_event()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            decoder.next_event()


def test_a_disk_without_room_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(_: int, start: int, nbytes: int) -> None:
        asked.append((start, nbytes))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    path = tmp_path / "tensor.npy"
    with pytest.raises(OSError, match="space"):
        received(request(binary("UINT8", [1000], 1000), payload=bytes(1000)), path)
    assert asked == [(0, path.stat().st_size)]


def test_where_the_system_cannot_keep_room_the_file_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    array = received(request(binary("UINT8", [3], 3), payload=b"abc"), tmp_path / "tensor.npy")
    assert array.tobytes() == b"abc"
