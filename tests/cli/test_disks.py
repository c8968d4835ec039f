"""Disks that are full or read-only, and no temporary directory: one line, a status, and no incomplete file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.server import ServerOptions
from tests.server.models import models
from tests.server.programs import server_here

COMMAND = [sys.executable, "-m", "streamcodec"]
IN_OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
DISK = "mount -t tmpfs -o size=1m,mode=700 tmpfs disk || exit 99\n"
ROOMY, FULL, READ_ONLY = "", "cat /dev/zero >disk/fill 2>/dev/null", "mount -o remount,ro disk"
NO_SPACE = "[Errno 28] No space left on device"
NO_WRITING = "[Errno 30] Read-only file system"
BENCH = "bench URL --model identity --shape x:FP32:1 --duration 0.1 --warmup 0"
FUZZ = "fuzz URL --model identity --input x:FP32:-1 --only json/null"


def _can_mount() -> bool:
    try:
        return (
            subprocess.run([*IN_OWN_MOUNTS, "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False).returncode
            == 0
        )
    except FileNotFoundError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _can_mount(), reason="only root of a Linux machine may mount disks"),
]


class Told(NamedTuple):
    """What a command says, and the files that are left on the disk."""

    status: int
    complaints: str
    left: list[str]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models(), ServerOptions(resumable_uploads=2)) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk").mkdir()
    np.save("small.npy", np.arange(3, dtype=np.float32))
    np.save("medium.npy", np.zeros(700_000, np.uint8))
    np.save("large.npy", np.zeros(1 << 20, np.float32))


def on_disk(preparation: str, *arguments: str) -> Told:
    """Run a command; `disk` is a disk of 1 MiB."""
    script = f'{DISK}{preparation}\n"$@"\nstatus=$?\nls -A disk >left\nexit $status'
    command = [*IN_OWN_MOUNTS, script, "sh", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    left = [name for name in Path("left").read_text(encoding="utf-8").splitlines() if name != "fill"]
    return Told(result.returncode, result.stderr, left)


@pytest.mark.parametrize(
    ("preparation", "command", "complaint"),
    [
        (ROOMY, "infer URL identity --input x=large.npy --output-dir disk",
         "output x, 4194304 bytes, cannot be written to disk: No space left on device"),
        (READ_ONLY, "infer URL identity --input x=small.npy --output-dir disk", f"{NO_WRITING}: 'disk'"),
        (READ_ONLY, "infer URL identity --input x=small.npy --output-dir disk/new", f"{NO_WRITING}: 'disk/new'"),
        (ROOMY, "encode identity disk/request --input x=large.npy", f"{NO_SPACE}: 'disk/request'"),
        (FULL, "encode identity disk/request --input x=small.npy", f"{NO_SPACE}: 'disk/request'"),
        (READ_ONLY, "encode identity disk/request --input x=small.npy", f"{NO_WRITING}: 'disk/request'"),
        (FULL, "inspect small.npy --html disk/page.html", f"{NO_SPACE}: 'disk/page.html'"),
        (READ_ONLY, "inspect small.npy --html disk/page.html", f"{NO_WRITING}: 'disk/page.html'"),
        (FULL, "infer URL identity --input x=small.npy --resumable disk/state", f"{NO_SPACE}: 'disk/state'"),
        (READ_ONLY, "infer URL identity --input x=small.npy --resumable disk/state", f"{NO_WRITING}: 'disk/state'"),
        (READ_ONLY, "serve --port 0 --resumable-uploads 2 --upload-dir disk",
         "--upload-dir: disk: no file can be made here"),
        (READ_ONLY, "serve --port 0 --resumable-uploads 2 --upload-dir disk/new",
         "--upload-dir: disk/new: Read-only file system"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_written(preparation: str, command: str, complaint: str, url: str) -> None:
    told = on_disk(preparation, *COMMAND, *command.replace("URL", url).split())
    assert told == (1, f"streamcodec: {complaint}\n", [])


@pytest.mark.parametrize(
    ("command", "name", "status"),
    [
        (f"{BENCH} --json", "found.json", 1),
        (f"{BENCH} --plot", "found.svg", 1),
        (f"{FUZZ} --json", "found.json", 2),
        (f"{FUZZ} --junit", "found.xml", 2),
    ],
)
@pytest.mark.parametrize(("preparation", "cause"), [(FULL, NO_SPACE), (READ_ONLY, NO_WRITING)])
def test_a_report_without_a_place(  # noqa: PLR0917 - three of a command, two of a disk
    preparation: str, cause: str, command: str, name: str, status: int, url: str
) -> None:
    if "--plot" in command:
        pytest.importorskip("matplotlib", reason="an extra")
    told = on_disk(preparation, *COMMAND, *command.replace("URL", url).split(), f"disk/{name}")
    assert told == (status, f"streamcodec: {cause}: 'disk/{name}'\n", [])


def test_an_output_without_room_does_not_take_the_others_with_it(url: str) -> None:
    inputs = ("--input", "x=medium.npy", "--input", "y=medium.npy")
    told = on_disk(ROOMY, *COMMAND, "infer", url, "identity", *inputs, "--output-dir", "disk")
    assert told == (
        1,
        "streamcodec: output y: No space left on device\nstreamcodec: 1 of 2 outputs could not be written\n",
        ["x.npy"],
    )


@pytest.mark.parametrize("option", ["--resumable-uploads", "--metrics"])
def test_processes_without_a_temporary_directory(option: str) -> None:
    everywhere = (
        "for place in /tmp /var/tmp /usr/tmp; do mount --bind $place $place && mount -o remount,bind,ro $place; done"
    )
    arguments = (option, "2") if option == "--resumable-uploads" else (option,)
    command = ["env", "TMPDIR=none", "--chdir=disk", *COMMAND, "serve", "--port", "0", "--workers", "2", *arguments]
    told = on_disk(f"{READ_ONLY}; ({everywhere}) 2>/dev/null", *command)
    line = "processes share files in a temporary directory, and none can be written to; TMPDIR names one"
    assert told == (1, f"streamcodec: {line}\n", [])


def test_an_upload_whose_folder_is_full_is_sent_plainly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = f'{DISK}{FULL}\nexec "$@"'
    options = ("serve", "--port", "0", "--resumable-uploads", "2", "--upload-dir", "disk")
    command = [*IN_OWN_MOUNTS, script, "sh", *COMMAND, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert main(["infer", url, "identity", "--input", "x=large.npy", "--resumable", "state"]) == 0
        disk = Path(f"/proc/{process.pid}/root{tmp_path}/disk")
        left = [path.name for path in disk.iterdir() if path.suffix == ".upload"]
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert capsys.readouterr().out == "x: FP32 [1048576] = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...\n"
    assert [line.split()[7] for line in log.splitlines()] == ["503", "200"]
    assert (process.returncode, left) == (0, [])
    assert not Path("state").exists()
