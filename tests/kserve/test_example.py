"""The example of the documentation, as it is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from streamcodec.client import Client, ServerError
from tests.kserve.conftest import INTERPRETER
from tests.ports import free_port

_ROOT = Path(__file__).parents[2]
_EXAMPLE = _ROOT / "docs" / "examples" / "kserve_model.py"


def test_it_is_short() -> None:
    assert len(_EXAMPLE.read_text().splitlines()) <= 40


def test_it_doubles() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    port, grpc_port = str(free_port()), str(free_port())
    command = [os.environ[INTERPRETER], str(_EXAMPLE), "--http_port", port, "--grpc_port", grpc_port]
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    with (
        subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process,
        Client(f"http://127.0.0.1:{port}") as client,
    ):
        try:
            deadline = time.monotonic() + 120
            while not _is_ready(client):
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.1)
            np.testing.assert_array_equal(client.infer("double", {"x": x})["y"], 2 * x, strict=True)
            with pytest.raises(ServerError, match="does not exist"):
                client.infer("nothing", {"x": x})
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _is_ready(client: Client) -> bool:
    try:
        return client.is_server_ready()
    except ConnectionError:
        return False
