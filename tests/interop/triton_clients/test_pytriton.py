"""PyTriton's client sends batches to a model of ours with a `Batch`: it reads their size from the model's `config`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from streamcodec.service import Batch, Model, ModelRegistry, TensorMetadata
from tests.server.programs import server_here

_INTERPRETER = "STREAMCODEC_TRITON_PYTHON"
_SCRIPT = Path(__file__).with_name("pytriton_script.py")


@pytest.mark.skipif(_INTERPRETER not in os.environ, reason=f"{_INTERPRETER} is a Python that has nvidia-pytriton")
def test_batches_and_samples_of_pytriton() -> None:
    rows = TensorMetadata("x", "FP32", (-1, 4)), TensorMetadata("y", "FP32", (-1, 4))
    model = Model(
        name="net",
        predict=lambda request: {"y": request.inputs["x"] * 2},
        inputs=rows[:1],
        outputs=rows[1:],
        batch=Batch(max_rows=3, max_delay=0.0),
    )
    with server_here(ModelRegistry.of([model])) as (_, (host, port)):
        command = [os.environ[_INTERPRETER], str(_SCRIPT), f"http://{host}:{port}", "net", "3"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "max_batch_size": 3,
        "batches": [[[2.0 * count] * 4] * count for count in (1, 2, 3)],
        "sample": [2.0] * 4,
    }
