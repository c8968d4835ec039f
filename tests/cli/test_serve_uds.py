"""`streamcodec serve --uds`: where it listens, what is refused, who ends with whom, and that nothing is left behind."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.arguments import permissions
from streamcodec.client import Client
from streamcodec.server import open_unix_listener
from tests.processes import announced
from tests.server.programs import MODELS, ROOT
from tests.server.wire import GET_LIVE, Wire, infer_request

SECONDS = 60
DEAD = signal.SIGKILL


@contextmanager
def _serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-W", "error", "-m", "streamcodec", "serve", MODELS, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            yield process, announced(process.stdout) if ready else ""
        finally:
            process.kill()


@pytest.mark.slow
def test_from_start_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a socket"
    np.save(tmp_path / "x.npy", np.arange(3))
    with _serving("--uds", str(path), "--uds-permissions", "640") as (process, url):
        assert url.startswith("http+unix://%2F")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert main(["infer", url, "identity", "--input", f"x={tmp_path / 'x.npy'}"]) == 0
        assert capsys.readouterr().out == "x: INT64 [3] = 0, 1, 2\n"
        process.terminate()
        _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert re.search(rf"unix:uid={os.getuid()},pid={os.getpid()} .*/infer", log)
    assert not path.exists()


@pytest.mark.slow
def test_what_a_killed_server_leaves_is_replaced_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with _serving("--uds", str(path)) as (process, _):
        process.kill()
        process.wait(SECONDS)
    assert path.is_socket()
    with _serving("--uds", str(path)) as (process, url), Client(url) as client:
        assert client.is_server_live()
        process.terminate()
        assert process.wait(SECONDS) == 0
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("delay", ["0", "0.3"])
def test_workers_share_a_socket_and_remove_it_once(delay: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with _serving("--uds", str(path), "--workers", "2", "--drain-delay", delay) as (process, url):
        with Client(url) as client:
            assert client.is_server_live()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = set(map(int, children.read_text().split()))
        assert len(workers) == 2
        os.kill(min(workers), signal.SIGTERM)  # one is renewed, and the file stays
        while min(workers) in map(int, children.read_text().split()):
            pass
        for _ in range(4):
            with Wire(str(path)) as wire:
                assert wire.send(infer_request()).response().status == 200
        with Wire(str(path)) as wire:
            assert wire.send(GET_LIVE).response().status == 200
            process.terminate()
            assert process.wait(SECONDS) == 0
    assert not path.exists()


@pytest.mark.slow
def test_workers_whose_first_process_dies_remove_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with _serving("--uds", str(path), "--workers", "2") as (process, _):
        process.send_signal(DEAD)
        process.wait(SECONDS)
        for _ in range(200):
            if not path.exists():
                break
            select.select([], [], [], 0.05)
    assert not path.exists()


def test_a_path_that_cannot_be_had_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with open_unix_listener(tmp_path / "live"):
        for path, words in {
            tmp_path / "file": "cannot listen at {}: there is a file that is not a socket; it is not replaced",
            tmp_path / "live": "cannot listen at {}: another server listens there",
            tmp_path / "no" / "s": "cannot listen at {}: the directory " + str(tmp_path / "no"),
            tmp_path / ("x" * 200): "the path of a Unix socket has at most ",
        }.items():
            for workers in ((), ("--workers", "2")):
                assert main(["serve", "--uds", str(path), *workers]) == 1
                complaint = capsys.readouterr().err
                assert complaint.count("\n") == 1
                assert words.format(path) in complaint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--uds", "s", "--port", "8000"), "--uds: not together with --port"),
        (("--uds", "s", "--host", "::", "--reuse-port"), "--uds: not together with --host and --reuse-port"),
        (("--uds", "s", "--ssl-certfile", "c"), "there is no TLS on a Unix socket"),
        (("--uds-permissions", "600"), "there is no Unix socket without --uds"),
        (("--memory-lane", "1G"), "--memory-lane: memory is shared by a Unix socket only; add --uds"),
        (("--uds", "s", "--memory-lane", "0"), "is not a size"),
        (("--uds", "s", "--uds-permissions", "8"), "three octal digits"),
    ],
)
def test_options_that_contradict_each_other(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_permissions() -> None:
    assert (permissions("660"), permissions("0600"), permissions("000")) == (0o660, 0o600, 0)
    for text in ("66", "1777", "0x60", "-60", "\uff16\uff16\uff10", "888", "00660", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="three octal digits"):
            permissions(text)
