"""Whole lines: the lines of several workers never mix in one log, whether that is a pipe or a file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import announced
from tests.server.wire import Wire

pytestmark = pytest.mark.slow
_WORKERS = 4
_CONNECTIONS = 16
_REQUESTS = 100
_LONG = "%E2%82%AC" * 28


def _ask(address: tuple[str, int], number: int) -> None:
    request = b"GET /%s/%d HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\n\r\n" % (_LONG.encode(), number, b"i" * 250)
    with Wire(address) as wire:
        for _ in range(_REQUESTS // 10):
            wire.send(request * 10)
            for _ in range(10):
                assert wire.response().status == 404


@pytest.mark.parametrize("kind", ["pipe", "file", "appended"])
def test_lines_are_whole(tmp_path: Path, kind: str) -> None:
    """Batches are longer than what a pipe takes at once (PIPE_BUF)."""
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0", "--workers", str(_WORKERS)]
    path = tmp_path / "log"
    with (
        path.open("ab" if kind == "appended" else "wb") as file,
        subprocess.Popen(
            [*command, "--access-log-format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if kind == "pipe" else file,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        read: list[str] = []
        reader = threading.Thread(target=lambda: read.extend(process.stderr or ()))
        address = "127.0.0.1", int(announced(process.stdout).rsplit(":", 1)[1])
        clients = [threading.Thread(target=_ask, args=(address, number)) for number in range(_CONNECTIONS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        reader.start()  # only now: the pipe is full, and several workers wait to write more
        process.terminate()
        process.wait(60)
        reader.join()
    lines = read if kind == "pipe" else path.read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    assert len(documents) == _CONNECTIONS * _REQUESTS
