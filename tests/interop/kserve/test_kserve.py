"""KServe's own client, unmodified, against our server.

Its 66 packages live in an environment of their own, without pytest. So a script there (`client_script.py`) does all
cases in one go and says what happened, and each test here looks at one of them. What the client itself cannot do is an
expected error with a name, like all else.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.interop.conftest import ServerProcess
from tests.interop.tensors import TENSORS, datatype, fingerprint

_ROOT = Path(__file__).parents[3]
_INTERPRETER = "STREAMCODEC_KSERVE_PYTHON"
_HOW = (
    "KServe's client is not here: run .ci/run, or python3 -m venv /tmp/kserve && /tmp/kserve/bin/pip install -q kserve "
    f"&& {_INTERPRETER}=/tmp/kserve/bin/python .venv/bin/python -m pytest tests/interop/kserve"
)
_SCRIPT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Fails:
    """The case ends with an exception in the client."""

    kind: str
    text: str
    """Part of its message."""


def _refused(status: str, text: str) -> Fails:
    """The server answers with an error, and the client passes on our words."""
    return Fails("HTTPStatusError", f"{text}, '{status}' for url")


_BAD_REQUEST = "400 Bad Request"
_NOT_FOUND = "404 Not Found"

# What KServe's client cannot do, or the server refuses for a reason.
_NAN_SENT_AS_NULL = _refused(_BAD_REQUEST, "a value is not a number ($.inputs[0].data[0])")
"""The client writes NaN and the infinities as null; a null is no number, and what it was is lost."""
_NAN_NOT_READ = Fails("InvalidInput", "Unrecognized request format: unexpected character")
"""The client's JSON parser does not know NaN, which we write as Triton does."""
_FP16_NOT_SENT = Fails("InvalidInput", "Sending FP16 data via JSON is not supported")
_FP16_NOT_ANSWERED = _refused(_BAD_REQUEST, "FP16 has no JSON form; ask for binary data")
_NOT_TEXT = Fails("InferenceError", "using UTF-8. Please use binary_data=True")
"""The client turns binary BYTES into text, also those that it receives."""
_NOT_TEXT_NOT_ANSWERED = _refused(_BAD_REQUEST, "a BYTES element is not UTF-8, which JSON needs; use the binary form")


def _sending_fails(name: str, there: str) -> Fails | None:
    if there == "binary":
        return None
    if "NaN" in name:
        return _NAN_SENT_AS_NULL
    return {"FP16": _FP16_NOT_SENT, "BYTES not in UTF-8": _NOT_TEXT}.get(name)


def _answer_fails(name: str, back: str) -> Fails | None:
    if back == "json":
        if "NaN" in name:
            return _NAN_NOT_READ
        return {"FP16": _FP16_NOT_ANSWERED, "BYTES not in UTF-8": _NOT_TEXT_NOT_ANSWERED}.get(name)
    return _NOT_TEXT if name == "BYTES not in UTF-8" else None


def _as_read(name: str) -> dict[str, Any]:
    """The fingerprint of a tensor after the client has read it."""
    array = TENSORS[name]
    if name.startswith("FP32 NaN payloads"):
        # It takes them through Python floats, which makes signalling NaNs quiet. The model had them as sent.
        array = (array.view("u4") | 0x00400000).view("f4")
    return fingerprint(array)


def _tensors() -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for name, there in product(TENSORS, ("binary", "json")):
        unsent = _sending_fails(name, there)
        seen = {"binary": ["x"] if there == "binary" else [], **fingerprint(TENSORS[name])}
        expected[f"{name}: reaches the model, {there}"] = unsent or seen
        for back in ("binary", "json"):
            read = {"datatype": datatype(name), "binary": back == "binary", **_as_read(name)}
            failure = unsent or _answer_fails(name, back)
            expected[f"{name}: comes back, {there} to {back}"] = failure or read
    return expected


_FLOATS = [0.0, 1.0, 2.0, 3.0]
EXPECTED: dict[str, Any] = _tensors() | {
    "all plain tensors in one request, mixed both ways": [],
    "BF16: the client makes none from numpy": Fails(
        "InferenceError", "got unexpected datatype UINT16 from numpy array, expected BF16"
    ),
    "BF16: given as bytes, it reaches the model": fingerprint(np.array([1, 2], dtype=ml_dtypes.bfloat16)),
    "BF16: the client does not read it": Fails("InvalidInput", "invalid datatype in the input"),
    "tensor of 600 KB: comes back": True,
    "tensor of 64 MiB: reaches the sink": {"COUNT": [64 << 20]},
    "several inputs: the sink counts the bytes of all": {"COUNT": [16 * 4 + (4 + 3) + 4]},
    "requests at once: each gets its own answer": [0, 1, 2, 3, 4, 5, 6, 7],
    "input given as a list": {"x": [[1, 2.5], [3, 4]]},
    "input given as a nested list": {"x": [[1, 2.5], [3, 4]]},
    "input given as an array": {"x": _FLOATS},
    "request given as a dict": {"id": "7", "x": [-(2**63), 2**63 - 1]},
    "graph endpoint: the answer as a dict": {
        "model_name": "identity",
        "model_version": "1",
        "id": "7",
        "outputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [-(2**63), 2**63 - 1]}],
    },
    "request id: echoed": 'größer 🦊 " \\ \n',
    "request id: the one that the client makes up is echoed": True,
    "parameters: reach the model": {"text": "größer", "count": 2**53 + 1, "flag": True, "ratio": 0.5},
    "requested outputs: a subset, in the order asked for": ["c", "a"],
    "requested output: no wish is JSON": False,
    "requested output: binary_data true is binary": True,
    "requested output: binary_data false is JSON": False,
    "requested output: binary_data_output true counts where outputs are listed": True,
    "requested output: binary_data false wins over binary_data_output": False,
    "requested output: binary_data true wins over binary_data_output": True,
    "model that declares all: computes": {"SCALED": [[0, 2, 4], [6, 8, 10]], "MEAN": [3, 5, 7]},
    "model name: percent-decoded": "prüfung 1",
    "model version: the client has no way to ask, but its name's path works": "1",
    "model version: the client drops it from the answer": None,
    "refused: unknown model": _refused(_NOT_FOUND, "there is no model 'nothing'"),
    "refused: unknown output": _refused(_BAD_REQUEST, "the model has no output 'y' ($.outputs[0].name)"),
    "refused: unknown input": _refused(_BAD_REQUEST, "the model has no input 'x' ($.inputs[0].name)"),
    "refused: missing input": _refused(_BAD_REQUEST, "the model also needs the input 'IMAGE' ($.inputs)"),
    "refused: wrong shape": _refused(_BAD_REQUEST, "the shape is [4], the model takes [-1, 3] ($.inputs[0].shape)"),
    "refused: wrong datatype": _refused(
        _BAD_REQUEST, "the datatype is FP64, the model takes FP32 ($.inputs[0].datatype)"
    ),
    "refused: unknown model, with 100 KB": _refused(_NOT_FOUND, "there is no model 'nothing'"),
    # The server answers at once; the client reads nothing while it sends, so the answer has to wait for it.
    "refused: unknown model, with 64 MiB": _refused(_NOT_FOUND, "there is no model 'nothing'"),
    "refused: the next request works": {"x": _FLOATS},
    "server: live": True,
    "server: ready": True,
    "model: ready": True,
    "model: unknown, so not ready": False,
}


@pytest.fixture(scope="module")
def outcomes(server_process: ServerProcess) -> dict[str, dict[str, Any]]:
    """What the script says, by case."""
    command = [os.environ[_INTERPRETER], "-m", "tests.interop.kserve.client_script", f"http://{server_process.address}"]
    environment = os.environ | {"NO_PROXY": "*"}
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=_SCRIPT_SECONDS, check=False
    )
    if done.returncode:
        pytest.fail(f"the script ended with status {done.returncode}:\n{done.stderr}", pytrace=False)
    outcomes = {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert set(outcomes) == set(EXPECTED), "every case of the script is checked here"
    return outcomes


@pytest.mark.skipif(_INTERPRETER not in os.environ, reason=_HOW)
@pytest.mark.usefixtures("server")  # to watch the process
@pytest.mark.parametrize("case", EXPECTED)
def test_kserve_client(outcomes: dict[str, dict[str, Any]], case: str) -> None:
    outcome, expected = outcomes[case], EXPECTED[case]
    if isinstance(expected, Fails):
        kind, _, text = outcome.get("error", f": no error but {outcome.get('result')}").partition(": ")
        assert expected.text in text
        assert kind == expected.kind
    else:
        assert "error" not in outcome, outcome["error"]
        assert outcome["result"] == expected
