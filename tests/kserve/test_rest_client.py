"""Our REST client by itself, and in the place of KServe's between a transformer and its predictor."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

from streamcodec.client import Client, ServerError
from streamcodec.formats.v2.model import RequestedOutput
from tests.interop.servers.processes import Peer
from tests.interop.tensors import BINARY_ONLY, PLAIN
from tests.kserve.conftest import INTERPRETER, Start

_ROOT = Path(__file__).parents[2]
_HERE = PLAIN | {"FP16": BINARY_ONLY["FP16"]}


def test_what_it_sends_and_takes() -> None:
    done = subprocess.run(
        [os.environ[INTERPRETER], "-m", "tests.kserve.transports_script"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 7


def _host(peer: Peer) -> str:
    return peer.url.removeprefix("http://")


@pytest.fixture(scope="module", params=[True, False], ids=["our predictor", "their predictor"])
def chain(request: pytest.FixtureRequest, start: Start) -> Iterator[Client]:
    """Talk to a transformer with ours installed."""
    with (
        start(installs=request.param) as predictor,
        start(predictor=_host(predictor)) as transformer,
        Client(transformer.url, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("name", _HERE)
def test_tensors_pass_through_a_transformer(chain: Client, name: str) -> None:
    result = chain.infer("identity", {"x": _HERE[name]}, request_id="7", outputs=["x"])
    np.testing.assert_array_equal(result["x"], _HERE[name], strict=True)
    assert result.header.id == "7"


@pytest.mark.parametrize("is_binary", [True, False])
def test_answer_has_the_form_that_was_asked_for(chain: Client, is_binary: bool) -> None:
    x = np.arange(6, dtype=np.float32)
    result = chain.infer("identity", {"x": x}, outputs=[RequestedOutput(name="x", binary_data=is_binary)])
    np.testing.assert_array_equal(result["x"], x)
    assert result.tensors["x"].spec.is_binary is is_binary


def test_error_of_the_predictor_comes_back(chain: Client) -> None:
    with pytest.raises(ServerError, match="the model wants it otherwise"):
        chain.infer("identity", {"x": np.ones(1)}, parameters={"fail": "invalid"})
    np.testing.assert_array_equal(chain.infer("identity", {"x": np.ones(1)})["x"], [1.0])


def test_v1_passes_through_too(start: Start) -> None:
    with start() as predictor, start(predictor=_host(predictor), protocol="v1") as transformer:
        url = f"{transformer.url}/v1/models/dictionary:predict"
        headers = {"Content-Type": "application/json"}
        question = Request(url, json.dumps({"instances": [[1, 2], [3]]}).encode(), headers)  # noqa: S310 - a server of the test
        with urlopen(question, timeout=60) as answer:  # noqa: S310 - as above
            assert json.load(answer) == {"predictions": [[1, 2], [3]]}
