"""Malformed requests to the service under real ASGI servers: what is found is of the server, and on a list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.asgi.programs import SERVERS, running

pytestmark = pytest.mark.slow

_WORDLESS: Final = "unexplained"
"""The server refuses, and does not say why."""

_OF_SERVERS: Final = {"http", "chunks", "cuts"}
"""Groups of probes that are about what a server reads before it asks an application."""

_CUT: Final = "garbled, at times: the server closes before the client has read its answer"
_HYPERCORN: Final = {
    "chunks/bare-lf": "hung: h11 waits for the line's end",
    "http/length-and-chunks": _CUT,
    "http/short-length-and-chunks": _CUT,
    "http/chunks-in-http-1.0": _CUT,
}

FINDINGS: Final[dict[str, dict[str, str]]] = {
    "uvicorn h11": {"chunks/bare-lf": "hung: h11 waits for the line's end"},
    "uvicorn httptools uvloop": {},
    "hypercorn asyncio": _HYPERCORN,
    "hypercorn trio": _HYPERCORN,
    "granian": {"http/no-host": "accepted: the server hands over an empty Host"},
}
"""By server: what may be found besides refusals without words, and why."""


@pytest.mark.parametrize("server", SERVERS)
def test_what_is_found_is_the_servers(server: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with running(server, "tests.asgi.demo_app:app") as (process, port):
        command = [sys.executable, "-m", "streamcodec", "fuzz", f"http://127.0.0.1:{port}", "--model", "identity"]
        command += ["--max-rate", "1000", "--json", str(report)]
        ended = subprocess.run(command, capture_output=True, check=False, timeout=300)
        assert ended.returncode in {0, 1}, ended.stderr
        assert process.poll() is None
    results = json.loads(report.read_text())["probes"]
    found = {result["name"]: result["finding"] for result in results if result.get("finding")}
    assert {name for name in found if name.partition("/")[0] not in _OF_SERVERS} == set()
    spoken = {name: finding for name, finding in found.items() if finding != _WORDLESS}
    assert spoken.keys() <= FINDINGS[server].keys(), spoken
    assert len(results) > 300
