"""Inputs of commands from archives, safetensors files, images and standard input, and repeated calls."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import datatype_of
from streamcodec.cli import main
from streamcodec.formats import safetensors
from tests.server.models import models
from tests.server.programs import server_here


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensors: dict[str, Any] = {"a": np.arange(3, dtype=np.int64), "b": np.ones((2, 2), np.float32)}
    Path("two.safetensors").write_bytes(b"".join(safetensors.encode(tensors).buffers))


def _infer(url: str, *options: str) -> int:
    return main(["infer", url, "identity", *options])


def _lines(capsys: pytest.CaptureFixture[str]) -> set[str]:
    return set(capsys.readouterr().out.splitlines())


def test_all_tensors_of_a_file_or_one(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(url, "--input", "two.safetensors") == 0
    assert _lines(capsys) == {"a: INT64 [3] = 0, 1, 2", "b: FP32 [2, 2] = 1.0, 1.0, 1.0, 1.0"}
    assert _infer(url, "--input", "a=two.safetensors") == 0
    assert _lines(capsys) == {"a: INT64 [3] = 0, 1, 2"}


def test_a_tensor_given_twice(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        _infer(url, "--input", "two.safetensors", "--input", "a=two.safetensors")
    assert caught.value.code == 2
    assert "--input: 'a' is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_all_arrays_of_an_archive_or_one(
    save: Callable[..., None], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save("two.npz", a=np.arange(3, dtype=np.int64), b=np.ones((2, 2), np.float32))
    assert _infer(url, "--input", "two.npz") == 0
    assert _lines(capsys) == {"a: INT64 [3] = 0, 1, 2", "b: FP32 [2, 2] = 1.0, 1.0, 1.0, 1.0"}
    assert _infer(url, "--input", "a=two.npz") == 0
    assert _lines(capsys) == {"a: INT64 [3] = 0, 1, 2"}


COLOURS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


@pytest.mark.parametrize(
    ("name", "mode", "shown"),
    [
        ("x.png", "RGB", "[2, 3, 3] = 0, 1, 2, 3, 4, 5, 6, 7, ..."),
        ("x.PNG", "RGBA", "[2, 3, 3] = 0, 1, 2, 3, 4, 5, 6, 7, ..."),
        ("x.bmp", "L", "[2, 3, 1] = 1, 4, 7, 10, 13, 16"),
    ],
)
def test_the_pixels_of_an_image(name: str, mode: str, shown: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    images = pytest.importorskip("PIL.Image")
    images.fromarray(COLOURS).convert(mode).save(name)
    assert _infer(url, "--input", f"x={name}") == 0
    assert capsys.readouterr().out == f"x: UINT8 {shown}\n"


def test_an_image_that_a_camera_took_on_its_side_is_upright(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    images = pytest.importorskip("PIL.Image")
    image = images.fromarray(COLOURS[:, :, 0])
    exif = image.getexif()
    exif[0x0112] = 6  # it is shown when turned to the right
    image.save("x.png", exif=exif)
    assert _infer(url, "--input", "x=x.png") == 0
    assert capsys.readouterr().out == "x: UINT8 [3, 2, 1] = 9, 0, 12, 3, 15, 6\n"


def test_an_image_that_is_a_bomb_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pytest.importorskip("PIL.Image")
    images.fromarray(COLOURS).save("x.png")
    monkeypatch.setattr(images, "MAX_IMAGE_PIXELS", 2)
    with pytest.raises(SystemExit):
        _infer("http://127.0.0.1:1", "--input", "x=x.png")
    assert "cannot read 'x.png': Image size (6 pixels) exceeds limit" in capsys.readouterr().err


def test_without_pillow_it_says_what_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SystemExit):
        _infer("http://127.0.0.1:1", "--input", "x=x.png")
    assert "images need Pillow: pip install 'streamcodec[image]'" in capsys.readouterr().err


def test_arrays_of_standard_input_one_after_the_other(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    np.save(content, np.array([1, 2], np.uint8))
    np.save(content, np.array([b"x", b"yz"]))
    content.seek(0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert _infer(url, "--input", "first=-", "--input", "second=-") == 0
    assert _lines(capsys) == {"first: UINT8 [2] = 1, 2", "second: BYTES [2] = b'x', b'yz'"}


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", ">u2"])
def test_arrays_of_either_byte_order(
    dtype: str, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.array([1, 300], dtype)
    np.save("x.npy", array)
    np.savez("x.npz", x=array)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("x.npy").read_bytes())))
    for source in ("x.npy", "x.npz", "-"):
        assert _infer(url, "--input", f"x={source}") == 0
        values = "1.0, 300.0" if array.dtype.kind == "f" else "1, 300"
        assert _lines(capsys) == {f"x: {datatype_of(array.dtype).name} [2] = {values}"}


@pytest.mark.parametrize("array", [np.zeros(2, ">c16"), np.zeros(2, "<i2,>f4")], ids=["complex", "structure"])
def test_arrays_that_the_protocol_does_not_have(
    array: np.ndarray[Any, Any], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", array)
    assert _infer(url, "--input", "x=x.npy") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no datatype in the V2 protocol" in line


@pytest.mark.parametrize(
    "text",
    [
        "c=two.safetensors",
        "none.safetensors",
        "a=bad.safetensors",
        "bad.safetensors",
        "x=-",
        "x=bad.npz",
        "a=bad.npz",
        "c=one.npz",
        "x=array.npz",
        "x=one.npy",
        "x=objects.npy",
        "x=bad.png",
    ],
)
def test_inputs_that_cannot_be_read(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad.safetensors", "bad.npz", "bad.png"):
        Path(name).write_bytes(b"PK\x03\x04\x10")
    np.save("objects", np.array([None]))
    np.savez("one", a=np.arange(3))
    shutil.copy("one.npz", "one.npy")
    with Path("array.npz").open("wb") as file:
        np.save(file, np.arange(3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x93NUMPY")))
    with pytest.raises(SystemExit) as caught:
        _infer("http://127.0.0.1:1", "--input", text)
    assert caught.value.code == 2
    assert "cannot read" in capsys.readouterr().err


def test_files_of_no_kind_that_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x.py", "text.npy"):
        Path(name).write_text("text")
        with pytest.raises(SystemExit):
            _infer("http://127.0.0.1:1", "--input", f"x={name}")
        said = f"cannot read '{name}': it holds no numbers or texts of a kind that is read: .npy, .npz, .safetensors, ."
        assert said in capsys.readouterr().err
    Path("short.npy").write_bytes(b"\x93NUMPY\x01\x00\x02\x00{}")
    with pytest.raises(SystemExit):
        _infer("http://127.0.0.1:1", "--input", "x=short.npy")
    assert "of a kind that is read" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_pipe(url: str) -> None:
    """Which cannot be searched, unlike a file."""
    content = io.BytesIO()
    np.save(content, np.asfortranarray(np.arange(200_000, dtype=">i4").reshape(2, -1)))
    command = [sys.executable, "-m", "streamcodec", "infer", url, "identity", "--input", "x=-"]
    result = subprocess.run(command, input=content.getvalue(), capture_output=True, check=True)
    assert result.stdout == b"x: INT32 [2, 100000] = 0, 1, 2, 3, 4, 5, 6, 7, ...\n"


def test_repeated_calls(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(url, "--input", "a=two.safetensors", "--repeat", "3") == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("3 calls, in ms: shortest ")
    assert last == "a: INT64 [3] = 0, 1, 2"
