"""Slow uploads: bodies that arrive while a server's time limits are looked at many times, whole all the same."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.benchmarks.embedding import request
from tests.embedding.servers import AIOHTTP, ASGI, SERVERS, embedded

pytestmark = pytest.mark.slow

_SECONDS: Final = 60
_PIECE_BYTES: Final = 64 << 10
_PAUSE_SECONDS: Final = 0.001

X: Final = np.zeros(8 << 20, np.float32)


@pytest.mark.parametrize("name", [*ASGI, *AIOHTTP])
def test_a_body_comes_whole_however_often_the_time_is_looked_at(name: str, tmp_path: Path) -> None:
    command, kind = SERVERS[name]
    message = memoryview(b"".join(request("/v2/models/sink/infer", X)))
    with embedded(command, f"tests.embedding.apps:hurried_{kind}", tmp_path / "log") as embedding:
        for _ in range(3):
            with socket.create_connection(embedding.address, _SECONDS) as sock:
                for start in range(0, len(message), _PIECE_BYTES):
                    sock.sendall(message[start : start + _PIECE_BYTES])
                    time.sleep(_PAUSE_SECONDS)
                assert sock.recv(12) == b"HTTP/1.1 200"
