"""`infer --resumable`: over a link that breaks, and after a restart of the command."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.server import ServerOptions
from tests.server.breaking import breaking
from tests.server.models import models
from tests.server.programs import server_here

X = np.arange(300_000, dtype=np.float32)
OPTIONS = ServerOptions(resumable_uploads=4)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def arguments(url: str, files: Path, *others: str) -> list[str]:
    given = ["infer", url, "identity", "--input", f"x={files / 'x.npy'}", "--output-dir", str(files / "out")]
    return [*given, "--force", "--resumable", str(files / "upload"), *others]


class Link:
    """Breaks after some bytes, and then at once, until it is repaired."""

    is_repaired = False

    def cuts(self) -> Iterator[int]:
        yield from (3000, 700_000)
        while not self.is_repaired:
            yield 1


def test_the_command_goes_on_after_its_restart(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = Link()
    with server_here(models(), OPTIONS) as (_, address), breaking(address, link.cuts()) as broken:
        assert main(arguments(broken.url, files, "--outage", "0.5s")) == 1
        said = capsys.readouterr().err
        found = re.search(
            r"gave up after \d+ failures in [\d.]+ s without progress, the server had (\d+) of (\d+)", said
        )
        assert found, said
        passed = broken.passed
        link.is_repaired = True
        assert main(arguments(broken.url, files)) == 0
        assert broken.passed - passed < X.nbytes, "it did not begin anew"
    assert np.array_equal(np.load(files / "out" / "x.npy"), X)
    assert not (files / "upload").exists()


def test_a_time_needs_a_request_that_is_resumed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["infer", "http://127.0.0.1:1", "m", "--input", f"x={files / 'x.npy'}"]
    with pytest.raises(SystemExit) as caught:
        main([*request, "--outage", "10m"])
    assert caught.value.code == 2
    assert "add --resumable FILE" in capsys.readouterr().err
    for text in ("0", "-1s", "m", "1d", "nan", "inf", ""):
        with pytest.raises(SystemExit):
            main([*request, "--resumable", "f", f"--outage={text}"])
        assert "as 90, 90s, 10m or 2h" in capsys.readouterr().err or text in {"m", ""}


@pytest.mark.slow
def test_a_terminal_shows_percentage_and_time_left(files: Path) -> None:
    """The link is slow enough for the first second to be over."""
    link = Link()
    with server_here(models(), OPTIONS) as (_, address), breaking(address, link.cuts()) as broken:
        terminal, child = pty.openpty()
        command = [sys.executable, "-m", "streamcodec", *arguments(broken.url, files, "--outage", "3s")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child) as process:
            os.close(child)
            shown = b""
            while process.poll() is None or not shown:
                try:
                    shown += os.read(terminal, 1 << 16)
                except OSError:  # the other end is closed
                    break
            process.wait(60)
        os.close(terminal)
    assert re.search(rb"sent [\d.]+ [KM]iB, received .*, \d+%", shown), shown
