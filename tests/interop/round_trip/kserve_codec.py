"""KServe's codec, from the plain form of a message to its bytes and back, in a process of KServe's environment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest

from tests.interop.round_trip.frames import read_frame, write_frame
from tests.interop.round_trip.ours import Wire
from tests.interop.round_trip.plain import Members, PlainMessage

_ROOT = Path(__file__).parents[3]
INTERPRETER = "STREAMCODEC_KSERVE_PYTHON"
"""Names the interpreter of an environment that has KServe."""
HOW = (
    "KServe's codec is not here: run .ci/run, or python3 -m venv /tmp/kserve && /tmp/kserve/bin/pip install -q kserve "
    f"&& {INTERPRETER}=/tmp/kserve/bin/python .venv/bin/python -m pytest tests/interop/round_trip"
)
_STOP_SECONDS = 10


class KServeError(Exception):
    """KServe raised; the text is `Kind: text`."""


class KServeCodec:
    """A running `kserve_script.py`; a context manager that ends it."""

    def __init__(self, errors: Path, script: str = "kserve_script") -> None:
        """Start the process; what it writes to standard error goes to that file."""
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [os.environ[INTERPRETER], "-m", f"tests.interop.round_trip.{script}"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=_STOP_SECONDS)  # the end of its questions is the end of the script
        finally:
            self._process.kill()
            self._process.wait()

    def read_request(self, wire: Wire) -> PlainMessage:
        return PlainMessage.from_members(self.ask("read_request", members_of(wire)))

    def read_response(self, wire: Wire) -> PlainMessage:
        return PlainMessage.from_members(self.ask("read_response", members_of(wire)))

    def request_bytes(self, message: PlainMessage) -> Wire:
        return wire_of(self.ask("request_bytes", asdict(message)))

    def response_bytes(self, message: PlainMessage) -> Wire:
        return wire_of(self.ask("response_bytes", asdict(message)))

    def ask(self, act: str, given: Members) -> Members:
        """Have the script do one of its acts."""
        write_frame(_open(self._process.stdin), {"act": act, "given": given})
        answer: Members | None = read_frame(_open(self._process.stdout))
        if answer is None:
            pytest.fail(f"KServe's process has ended:\n{self._errors.read_text()}", pytrace=False)
        if "error" in answer:
            raise KServeError(answer["error"])
        return answer


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def members_of(wire: Wire) -> Members:
    return {"body": wire.body.hex(), "header_length": wire.header_length}


def wire_of(members: Members) -> Wire:
    return Wire(bytes.fromhex(members["body"]), members["header_length"])
