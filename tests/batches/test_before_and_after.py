"""The how-to for batches: what users of Triton and of LitServe have before, and after it, means the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec.client import Client
from streamcodec.service import Model, ModelRegistry, Service
from tests.ports import free_port
from tests.server.programs import server_here
from tests.service.requests import get
from tests.waiting import until

_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "batches.md"
_INTERPRETER = "STREAMCODEC_BATCH_PYTHON"


def _blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```\n", _PAGE.read_text(), re.DOTALL | re.MULTILINE)


def _ours() -> dict[str, Any]:
    """Run the blocks up to the model with declared tensors."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in _blocks()[:2]:
        exec(block, namespace)  # noqa: S102 - our own page
    return namespace


def _numbers(text: str, name: str) -> list[int]:
    found = re.findall(rf"{name}: (?:\[ )?([\d, ]+)", text)
    return [int(number) for each in found for number in each.split(",")]


def test_the_model_says_what_triton_was_told() -> None:
    [before] = re.findall(r"^```text\n(name: .*?)^```\n", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    after = _ours()["declared"]
    assert isinstance(after, Model)
    config = get(Service(ModelRegistry.of([after])), "/v2/models/net/config").document
    batching = config["dynamic_batching"]
    assert [config["max_batch_size"]] == _numbers(before, "max_batch_size")
    assert batching["preferred_batch_size"] == _numbers(before, "preferred_batch_size")
    assert [int(batching["max_queue_delay_microseconds"])] == _numbers(before, "max_queue_delay_microseconds")
    dims = [int(size) for tensors in ("input", "output") for tensor in config[tensors] for size in tensor["dims"]]
    assert dims == _numbers(before, "dims")


@pytest.mark.skipif(_INTERPRETER not in os.environ, reason=f"{_INTERPRETER} is a Python that has litserve")
def test_the_model_answers_what_litserve_did(tmp_path: Path) -> None:
    port = free_port()
    [before] = [block for block in _blocks() if block.startswith("# needs litserve")]
    run = f"litserve.LitServer(api, accelerator='cpu').run(host='127.0.0.1', port={port}, generate_client_file=False)"
    program = tmp_path / "before.py"
    program.write_text(f"import numpy as np\n{before}\nif __name__ == '__main__':\n    {run}\n")
    rows = np.arange(32, dtype=np.float32).reshape(8, 4)

    def ask(row: Any) -> Any:  # noqa: ANN401 - JSON
        body, url = json.dumps({"x": row.tolist()}).encode(), f"http://127.0.0.1:{port}/predict"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
            return json.load(answer)["y"]

    def is_ready() -> bool:
        try:
            return bool(ask(rows[0]))
        except OSError:
            return False

    with subprocess.Popen([os.environ[_INTERPRETER], str(program)], cwd=tmp_path, start_new_session=True) as process:
        try:
            until(is_ready)
            with ThreadPoolExecutor(8) as pool:
                expected = list(pool.map(ask, rows))
        finally:
            os.killpg(process.pid, 9)
    with server_here(ModelRegistry.of([_ours()["model"]])) as (_, (host, http_port)), ThreadPoolExecutor(8) as pool:

        def infer(row: Any) -> Any:  # noqa: ANN401 - an array
            with Client(f"http://{host}:{http_port}") as client:
                return client.infer("net", {"x": row[None]})["y"][0].tolist()

        assert list(pool.map(infer, rows)) == expected
