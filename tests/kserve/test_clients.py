"""KServe's own clients get the same answers from both servers, and gRPC stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.tensors import PLAIN, fingerprint
from tests.kserve.conftest import INTERPRETER, Start
from tests.ports import free_port

_ROOT = Path(__file__).parents[2]


def outcomes(start: Start, *, installs: bool, client: str = "theirs") -> dict[str, Any]:
    """Return what KServe's clients say of each of their cases."""
    port = free_port()
    with start(installs=installs, grpc_port=port) as peer:
        done = subprocess.run(
            [os.environ[INTERPRETER], "-m", "tests.kserve.client_script", peer.url, str(port), client],
            cwd=_ROOT,
            env=os.environ | {"NO_PROXY": "*"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {line["case"]: _without_url(line["result"]) for line in lines}


def _without_url(result: Any) -> Any:  # noqa: ANN401 - any JSON value
    return result.partition(" for url")[0] if isinstance(result, str) else result


_REFUSED = {"FP16, back json", "unknown", "broken", "nameless", "no_scheme", "nobody", "half"}


@pytest.fixture(scope="module")
def of_their_client(start: Start) -> dict[str, Any]:
    return outcomes(start, installs=True)


def is_empty(case: str) -> bool:
    """Whether their client sends the tensor as neither binary nor JSON."""
    return "size 0" in case or "[2, 0, 3]" in case


def test_their_clients_see_no_difference(start: Start, of_their_client: dict[str, Any]) -> None:
    mine, theirs = of_their_client, outcomes(start, installs=False)
    assert mine == theirs
    failed = {case for case, result in mine.items() if isinstance(result, str)}
    assert failed == _REFUSED | {case for case in mine if is_empty(case)}
    assert mine["arrays"][:2] == ["9", {"by": "arrays"}]
    assert mine["arrays"][2] == {name: fingerprint(PLAIN[name]) for name in ("FP32", "BYTES", "BOOL of rank 8")}
    assert mine["gRPC"] == {name: fingerprint(PLAIN[name]) for name in ("FP32", "BYTES")}


@pytest.mark.parametrize("installs", [True, False], ids=["our server", "their server"])
def test_our_client_says_what_theirs_says(start: Start, of_their_client: dict[str, Any], installs: bool) -> None:
    mine = outcomes(start, installs=installs, client="ours")
    assert {case for case in mine if mine[case] != of_their_client[case]} <= {case for case in mine if is_empty(case)}
    assert {case for case, result in mine.items() if isinstance(result, str) and not is_empty(case)} == _REFUSED
