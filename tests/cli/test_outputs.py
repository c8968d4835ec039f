"""Outputs that `infer` receives straight into files: in little memory, complete or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.inferring import outputs
from tests.server.models import models
from tests.server.programs import server_here

COMMAND = [sys.executable, "-m", "streamcodec", "infer"]
LARGE = 64 << 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.arange(3, dtype=np.float32))
    np.save("large.npy", np.arange(LARGE >> 6, dtype=np.int64).reshape(4, -1))
    return tmp_path / "out"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _infer(url: str, *options: str) -> int:
    return main(["infer", url, "identity", "--input", "x=large.npy", "--output-dir", "out", *options])


def test_large_and_small_outputs_are_written(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("other.npy", np.ones(3, np.int8))
    assert _infer(url, "--input", "y=small.npy", "--input", "z=other.npy", "--repeat", "2") == 0
    assert np.array_equal(np.load(folder / "x.npy"), np.load("large.npy"))
    assert np.load(folder / "y.npy").tolist() == [0, 1, 2]
    assert np.load(folder / "z.npy").tolist() == [1, 1, 1]
    assert _names(folder) == ["x.npy", "y.npy", "z.npy"]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "x: INT64 [4, 262144] -> out/x.npy",
        "y: FP32 [3] -> out/y.npy",
        "z: INT8 [3] -> out/z.npy",
    ]


def test_a_large_output_replaces_nothing_without_force(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / "x.npy").write_text("precious")
    assert _infer(url, "--input", "y=small.npy") == 1
    assert "output x: out/x.npy exists already; --force replaces it" in capsys.readouterr().err
    assert (folder / "x.npy").read_text() == "precious"
    assert _names(folder) == ["x.npy", "y.npy"]
    assert _infer(url, "--force") == 0
    assert np.array_equal(np.load(folder / "x.npy"), np.load("large.npy"))


@pytest.mark.parametrize("form", ["--json", "--output=none"])
def test_what_comes_otherwise_leaves_no_unfinished_file(form: str, url: str, folder: Path) -> None:
    np.save("large.npy", np.arange(200_000, dtype=np.int64))
    assert _infer(url, form) == (0 if form == "--json" else 1)
    assert _names(folder) == (["x.npy"] if form == "--json" else [])


@pytest.mark.slow
def test_a_large_output_needs_no_memory_of_its_own(url: str, folder: Path) -> None:
    """The pages of the files count, which the system can drop; memory that it cannot drop does not grow."""
    np.save("large.npy", np.zeros(LARGE, np.uint8))
    code = """
import sys
from streamcodec.cli import main
from streamcodec.cli.inferring import outputs
status = main(sys.argv[1:])
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")))
sys.exit(status)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("asks Linux")
    anonymous = []
    for name in ("small", "large"):
        arguments = ["infer", url, "identity", "--input", f"x={name}.npy", "--output-dir", "out", "--force"]
        result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        anonymous.append(int(result.stdout.split()[-1]))
    assert anonymous[1] - anonymous[0] < 8 << 10
    assert (folder / "x.npy").stat().st_size > LARGE


@pytest.mark.slow
def test_a_large_output_without_room_is_refused_before_it_is_received(url: str, folder: Path) -> None:
    """No file may have more than 1 MiB, as on a small disk."""
    arguments = [url, "identity", "--input", "x=large.npy", "--input", "y=small.npy", "--output-dir", "out"]
    result = subprocess.run(
        ["/bin/bash", "-c", 'ulimit -f 1024; trap "" XFSZ; exec "$@"', "bash", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "streamcodec: output x, 8388608 bytes, cannot be written to out: File too large\n"
    assert _names(folder) == []


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_told_in_one_line(url: str, tmp_path: Path) -> None:
    """A program can be root, which may write to every folder, so this one is no folder."""
    (tmp_path / "out").write_text("")
    result = subprocess.run(
        [*COMMAND, url, "identity", "--input", "x=large.npy", "--output-dir", "out/there"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "Not a directory" in result.stderr


@pytest.mark.usefixtures("windows")
def test_a_file_without_room_is_removed_although_it_was_open(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros are written where no room can be reserved, and the disk is full at some point."""

    def full(descriptor: int, _: int) -> None:
        os.write(descriptor, bytes(100))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outputs, "reserve_bytes", full)
    assert _infer(url) == 1
    assert "cannot be written to out: No space left on device" in capsys.readouterr().err
    assert _names(folder) == []
