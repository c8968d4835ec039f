"""Memory maps: a tensor goes into a file that numpy reads."""

from __future__ import annotations

import errno
import math
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Decoder,
    EndOfMessage,
    HeaderReceived,
    LocalProtocolError,
    MemoryMap,
    RemoteProtocolError,
    RequestHeader,
    TensorReceived,
    TensorSpec,
    request_decoder,
)
from streamcodec.engine.memory import memory_map
from tests.effort import places
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
    decoder.get_buffer()[:4999] = b"x" * 4999
    assert path.read_bytes()[-5000:] == b"x" * 4999 + bytes(1)
    decoder.buffer_updated(4999)
    for mode in (None, "r"):
        with pytest.raises(ValueError, match="pickle"):
            np.load(path, mmap_mode=mode)
    decoder.feed(b"y")
    assert np.load(path).tobytes() == b"x" * 4999 + b"y"


def test_a_tensor_that_is_refused_leaves_no_file_that_numpy_reads(tmp_path: Path) -> None:
    path = tmp_path / "tensor.npy"
    with pytest.raises(RemoteProtocolError):
        received(request(binary("BOOL", [3], 3), payload=b"\1\2\1"), path)
    with pytest.raises(ValueError, match="pickle"):
        np.load(path)


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
    path, asked = tmp_path / "tensor.npy", []

    def full(_: int, start: int, nbytes: int) -> None:
        asked.append((start, nbytes, path.stat().st_size))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="space"):
        received(request(binary("UINT8", [1000], 1000), payload=bytes(1000)), path)
    assert asked == [(0, 1128, 1128)]
    assert not path.exists()


def unsupported(*_: int) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.mark.parametrize("nbytes", [0, 3, 3 << 20])
@pytest.mark.parametrize("is_known", [False, True])
def test_where_the_system_cannot_reserve_room_zeros_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, is_known: bool
) -> None:
    if is_known:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    else:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    payload = b"abc" * (nbytes // 3)
    path = tmp_path / "tensor.npy"
    array = received(request(binary("UINT8", [nbytes], nbytes), payload=payload), path)
    assert array.tobytes() == payload
    assert np.load(path).tobytes() == payload


PIECES = request(binary("INT16", [3, 5], 30), binary("BF16", [2], 4, name="y"), payload=bytes(range(34)))


def resumed(folder: Path, *, offset: int | None = None) -> tuple[Decoder[RequestHeader], int]:
    """Make a decoder as a process does that begins anew, and return it with the offset of the next byte."""
    header: list[RequestHeader] = []

    def place(spec: TensorSpec) -> MemoryMap:
        return MemoryMap(folder / f"{spec.name}.npy", resume=True)

    decoder = request_decoder(
        header_length=PIECES.header_length, body_length=len(PIECES.body), check=header.append, place=place
    )
    decoder.feed(PIECES.body[: PIECES.header_length])
    if offset is None:
        offset = len(PIECES.body)
        for spec in reversed(header[0].tensors):
            kept = place(spec).kept_bytes(spec)
            offset = offset if kept == spec.nbytes else (spec.offset or 0) + kept
    return decoder, decoder.resume_at(offset)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_map, "_PIECE_BYTES", 8)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def finished(decoder: Decoder[RequestHeader]) -> list[bytes]:
    arrays = []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays.append(event.array.tobytes())
    return arrays


@pytest.mark.usefixtures("small_pieces")
def test_a_tensor_goes_on_after_a_restart_at_the_last_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_map, "_write_out", lambda *_: None)  # which waits for the disk
    start, body = PIECES.header_length or 0, PIECES.body
    ends = [0, 8, 16, 24, 30, 34]
    for count in places(range(len(body) - start + 1)):
        folder = tmp_path / str(count)
        folder.mkdir()
        first, offset = resumed(folder)
        assert offset == start
        first.feed(body[start : start + count])
        second, offset = resumed(folder)
        assert offset - start == max(end for end in ends if end <= count)
        second.feed(body[offset:])
        assert finished(second) == [body[start : start + 30], body[start + 30 :]]
        assert np.load(folder / "x.npy").tobytes() == body[start : start + 30]
        assert np.load(folder / "y.npy").dtype == np.dtype("<u2")
        assert resumed(folder)[1] == len(body)


@pytest.mark.usefixtures("small_pieces")
def test_what_the_record_does_not_count_has_to_come_again(tmp_path: Path) -> None:
    start = PIECES.header_length or 0
    decoder, _ = resumed(tmp_path)
    decoder.feed(PIECES.body[start : start + 15])
    with pytest.raises(LocalProtocolError, match=f"byte {start + 8} of the message has to come again"):
        resumed(tmp_path, offset=start + 15)


@pytest.mark.usefixtures("small_pieces")
def test_the_data_are_on_the_disk_before_the_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []

    def write_out(mapped: np.ndarray[Any, Any], start: int) -> None:
        acts.append(f"data {mapped.tobytes()[start:].rstrip(bytes(1)).hex()}")
        memory_write_out(mapped, start)

    def replace(new: str, target: str) -> None:
        acts.append(f"record {Path(new).read_text().strip()}, {os.path.lexists(tmp_path / 'x.npy')}")
        os_replace(new, target)

    memory_write_out, os_replace = memory_map._write_out, os.replace  # noqa: SLF001 - it is called, too
    monkeypatch.setattr(memory_map, "_write_out", write_out)
    monkeypatch.setattr(os, "replace", replace)
    decoder, offset = resumed(tmp_path)
    decoder.feed(PIECES.body[offset : offset + 17])
    assert acts == [
        "record 0, False",
        "data 0001020304050607",
        "record 8, True",
        "data 08090a0b0c0d0e0f",
        "record 16, True",
    ]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("damage", ["no record", "no file", "words", "too many", "negative", "shape", "short", "order"])
def test_a_file_that_does_not_fit_is_begun_anew(tmp_path: Path, damage: str) -> None:
    path, record = tmp_path / "x.npy", tmp_path / "x.npy.received"
    decoder, offset = resumed(tmp_path)
    decoder.feed(PIECES.body[offset : offset + 20])
    assert record.read_text() == "16\n"
    assert record.stat().st_mode & 0o111 == 0, "nobody runs it"
    with pytest.raises(ValueError, match="pickle"):
        np.load(path)
    match damage:
        case "no record":
            MemoryMap(path, resume=True).forget()
            MemoryMap(path, resume=True).forget()
        case "no file":
            path.unlink()
        case "words" | "too many" | "negative":
            record.write_text({"words": "x", "too many": "31", "negative": "-1"}[damage])
        case "shape":
            np.save(path, np.zeros((5, 3), "<i2"))
        case "short":
            os.truncate(path, 140)
        case _:
            np.save(path, np.zeros((3, 5), "<i2", "F"))
    decoder, offset = resumed(tmp_path)
    assert offset == PIECES.header_length
    decoder.feed(PIECES.body[offset:])
    assert finished(decoder)[0] == bytes(range(30))


def test_without_a_record_nothing_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "tensor.npy"
    received(request(binary("UINT8", [3], 3), payload=b"abc"), path)
    assert [file.name for file in tmp_path.iterdir()] == ["tensor.npy"]
    array = received(request(binary("UINT8", [0], 0)), tmp_path / "empty.npy")
    assert array.shape == (0,)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("shape", [[], [0], [3, 0, 2], [4]], ids=str)
def test_tensors_of_every_shape_and_form_can_be_resumed(tmp_path: Path, shape: list[int]) -> None:
    count = math.prod(shape)
    values: Any = [7] * count
    payload = np.full(shape, 7, "<i8").tobytes()
    for message in (
        request(binary("INT64", shape, len(payload)), payload=payload),
        request(jsonic("INT64", shape, values)),
    ):
        decoder = request_decoder(
            header_length=message.header_length,
            body_length=len(message.body),
            place=lambda _: MemoryMap(tmp_path / "x.npy", resume=True),
        )
        decoder.feed(message.body)
        assert finished(decoder) == [payload]


@pytest.mark.usefixtures("small_pieces")
def test_a_disk_that_fails_ends_the_message_and_the_record_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, offset = resumed(tmp_path)
    decoder.feed(PIECES.body[offset : offset + 9])

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    decoder.feed(PIECES.body[offset + 9 :])
    assert isinstance(decoder.next_event(), HeaderReceived)
    with pytest.raises(OSError, match="error"):
        decoder.next_event()
    assert (tmp_path / "x.npy.received").read_text() == "8\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.npy.received"]


@pytest.mark.usefixtures("small_pieces")
def test_where_the_system_knows_no_folders_or_advice_a_tensor_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    monkeypatch.delattr(mmap, "MADV_DONTNEED", raising=False)
    decoder, offset = resumed(tmp_path)
    decoder.feed(PIECES.body[offset : offset + 9])
    decoder, offset = resumed(tmp_path)
    assert offset - (PIECES.header_length or 0) == 8
    decoder.feed(PIECES.body[offset:])
    assert finished(decoder)[0] == bytes(range(30))


KILLED = """
import os, signal, sys
from streamcodec import MemoryMap, request_decoder
header, nbytes = sys.argv[2].encode(), int(sys.argv[3])
place = MemoryMap(sys.argv[1], resume=True)
decoder = request_decoder(header_length=len(header), body_length=None, place=lambda _: place)
decoder.feed(header)
decoder.feed(b"\\7" * nbytes)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_loses_one_piece_at_most(tmp_path: Path) -> None:
    size, path = 20 << 20, tmp_path / "x.npy"
    message = request(binary("UINT8", [size], size))
    command = [sys.executable, "-c", KILLED, str(path), message.body.decode(), str(size - 1)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    decoder = request_decoder(
        header_length=len(message.body), body_length=None, place=lambda _: MemoryMap(path, resume=True)
    )
    decoder.feed(message.body)
    assert decoder.resume_at(len(message.body) + (16 << 20)) == len(message.body) + (16 << 20)
    decoder.feed(b"\7" * (4 << 20))
    assert decoder.is_complete
    assert np.load(path, mmap_mode="r").sum() == 7 * size


def test_a_path_without_a_folder_is_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = request(binary("UINT8", [3], 3), payload=b"abc")
    decoder = request_decoder(
        header_length=message.header_length, body_length=None, place=lambda _: MemoryMap("x.npy", resume=True)
    )
    decoder.feed(message.body)
    assert finished(decoder) == [b"abc"]
    assert {file.name for file in tmp_path.iterdir()} == {"x.npy", "x.npy.received"}


FULL = """
import os, resource, sys
from tests.engine.test_memory_map import received, binary, request
for name in sys.argv[2:]:
    delattr(os, name)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
nbytes = 4 << 20
try:
    received(request(binary("UINT8", [nbytes], nbytes), payload=bytes(nbytes)), sys.argv[1])
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
@pytest.mark.parametrize("missing", [[], ["posix_fallocate"]], ids=str)
def test_a_system_that_gives_no_room_ends_the_message_and_not_the_process(tmp_path: Path, missing: list[str]) -> None:
    """The room of a file is limited here as that of a disk is."""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", FULL, str(tmp_path / "x.npy"), *missing]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "File too large\n"
    assert list(tmp_path.iterdir()) == []
