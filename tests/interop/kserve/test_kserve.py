"""KServe's own client, unmodified, against our server.

Its 66 packages live in an environment of their own, without pytest. So a script there (`client_script.py`) does all
cases in one go and says what happened, and each test here looks at one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.kserve.expectations import EXPECTED, Fails
from tests.interop.serving import ServerProcess

_SYSTEM = "KServe InferenceRESTClient"
_ROOT = Path(__file__).parents[3]
_INTERPRETER = "STREAMCODEC_KSERVE_PYTHON"
_HOW = (
    f"KServe's client is not here: {_INTERPRETER} is not set; "
    "tests/interop/run installs what is missing and runs everything"
)
_SCRIPT_SECONDS = 240

pytestmark = [
    pytest.mark.interop(system=_SYSTEM),
    pytest.mark.skipif(_INTERPRETER not in os.environ, reason=_HOW),
]


@pytest.fixture(scope="module")
def outcomes(
    server_process: ServerProcess, compressing_process: ServerProcess, peer_version: Callable[[str, str], None]
) -> dict[str, dict[str, Any]]:
    """What the script says, by case."""
    urls = [f"http://{process.address}" for process in (server_process, compressing_process)]
    done = subprocess.run(
        [os.environ[_INTERPRETER], "-m", "tests.interop.kserve.client_script", *urls],
        cwd=_ROOT,
        env=os.environ | {"NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=_SCRIPT_SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"the script ended with status {done.returncode}:\n{done.stderr}", pytrace=False)
    first, *lines = map(json.loads, done.stdout.splitlines())
    peer_version(_SYSTEM, first["versions"])
    outcomes = {line["case"]: line for line in lines}
    assert set(outcomes) == set(EXPECTED), "every case of the script is checked here"
    return outcomes


@pytest.mark.usefixtures("server", "compressing_server")  # to watch the processes
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.interop(feature=EXPECTED[case].feature)) for case in EXPECTED],
)
def test_kserve_client(outcomes: dict[str, dict[str, Any]], case: str, deviation: Callable[[str], None]) -> None:
    outcome, expected = outcomes[case], EXPECTED[case]
    if isinstance(expected.outcome, Fails):
        kind, _, text = outcome.get("error", f": no error but {outcome.get('result')}").partition(": ")
        assert expected.outcome.text in text
        assert kind == expected.outcome.kind
    else:
        assert "error" not in outcome, outcome["error"]
        assert outcome["result"] == expected.outcome
    if expected.deviation is not None:
        deviation(expected.deviation)
