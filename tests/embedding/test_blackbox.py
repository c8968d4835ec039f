"""Malformed requests to the service within other people's servers: what is found is of the server, and on a list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.embedding.servers import SERVERS, embedded

pytestmark = pytest.mark.slow

_WORDLESS: Final = "unexplained"
"""The server refuses, and does not say why."""

_OF_SERVERS: Final = {"http", "chunks", "cuts"}
"""Groups of probes that are about what a server reads before it asks an application."""

_BARE_LF: Final = {"chunks/bare-lf": "hung: it waits for the line's end"}
_SIZES: Final = {**_BARE_LF, "chunks/size-wrapped": "hung: it takes any size"}
_CUT: Final = "garbled, at times: the server closes before the client has read its answer"
_LENIENT: Final = "accepted: the server reads heads less strictly"
_CHUNKS: Final = "accepted: the server reads chunks less strictly"

FINDINGS: Final[dict[str, dict[str, str]]] = {
    "uvicorn h11": _BARE_LF,
    "uvicorn httptools": {},
    "hypercorn": _BARE_LF,
    "hypercorn trio": {
        **_BARE_LF,
        "http/length-and-chunks": _CUT,
        "http/short-length-and-chunks": _CUT,
        "http/chunks-in-http-1.0": _CUT,
    },
    "granian ASGI": {"http/no-host": "accepted: the server hands over an empty Host"},
    "gunicorn sync": {**_SIZES, "boundaries/pipelined": "closed: its worker closes after each answer"},
    "gunicorn gthread": _SIZES,
    "waitress": {
        **_SIZES,
        "http/bare-lf": "hung: it waits for the line's end",
        "http/length-and-chunks": _LENIENT,
        "http/short-length-and-chunks": _LENIENT,
        "http/chunked-twice": _LENIENT,
        "chunks/trailer-no-field": _CHUNKS,
    },
    "werkzeug": {
        **_SIZES,
        "boundaries/pipelined": "closed: it closes after each answer",
        "boundaries/chunks-extended": "refused: it knows no extensions",
        **dict.fromkeys(
            [
                "http/two-lengths-reversed",
                "http/blank-in-name",
                "http/control-in-name",
                "http/no-colon",
                "http/nameless",
            ],
            _LENIENT,
        ),
        **dict.fromkeys(
            ["http/version-3.0", "http/version-text", "http/not-http", "http/tls", "cuts/in-first-line"],
            "garbled: answered as HTTP/0.9",
        ),
        **dict.fromkeys(["chunks/size-0x", "chunks/size-plus", "chunks/size-blank-before"], _CHUNKS),
        "cuts/in-chunk": "server error: it raises where the service reads",
    },
    "granian": {
        "http/no-host": "accepted: the server hands over an empty Host",
        "chunks/no-line-end": _CHUNKS,
        "chunks/trailer-no-field": _CHUNKS,
        "cuts/last-chunk": _CHUNKS,
    },
    "aiohttp": {"compression/no-trailer": "accepted: it decompresses by itself, and looks at no checksum"},
    "aiohttp plain": {},
}
"""By server: what may be found besides refusals without words, and why."""


@pytest.mark.parametrize("server", SERVERS)
def test_what_is_found_is_the_servers(server: str, tmp_path: Path) -> None:
    found = examine(server, tmp_path)
    known = FINDINGS[server]
    assert {name for name in found if name.partition("/")[0] not in _OF_SERVERS} <= known.keys()
    spoken = {name: finding for name, finding in found.items() if finding != _WORDLESS}
    assert spoken.keys() <= known.keys(), spoken


def examine(server: str, folder: Path) -> dict[str, str]:
    """Return what is found in a server, by probe."""
    report = folder / "report.json"
    command, kind = SERVERS[server]
    with embedded(command, f"tests.embedding.measured:ours_{kind}", folder / "log") as embedding:
        host, port = embedding.address
        line = [sys.executable, "-m", "streamcodec", "fuzz", f"http://{host}:{port}", "--model", "identity"]
        line += ["--max-rate", "1000", "--timeout", "3", "--json", str(report)]
        ended = subprocess.run(line, capture_output=True, check=False, timeout=400)
        assert ended.returncode in {0, 1}, ended.stderr
        assert embedding.process.poll() is None
    results = json.loads(report.read_text())["probes"]
    assert len(results) > 300
    return {result["name"]: result["finding"] for result in results if result.get("finding")}
