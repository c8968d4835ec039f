"""The quick parser ends the process if it gets no memory, so it is used only if there is enough."""

from __future__ import annotations

import mmap
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from streamcodec.engine.json import quick as quickjson
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import DEFAULT_LIMITS

TEXT = b'{"a":[' + b"1," * 40_000 + b"1]}"
"""Long enough for the quick parser."""


class Recorder:
    """A parser that only tells that it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: object) -> Any:  # noqa: ANN401 - as the parser
        self.calls += 1
        raise ValueError


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), MemoryError()], ids=["system", "interpreter"])
def test_it_is_not_called_where_there_is_no_reserve(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    asked: list[int] = []

    def refuse(_: int, nbytes: int, **__: object) -> None:
        asked.append(nbytes)
        raise error

    recorder = Recorder()
    monkeypatch.setattr(quickjson, "_decoder", lambda: recorder)
    assert parse_json(TEXT, DEFAULT_LIMITS)[0] == {"a": [1] * 40_001}
    assert recorder.calls == 1
    monkeypatch.setattr(mmap, "mmap", refuse)
    assert parse_json(TEXT, DEFAULT_LIMITS)[0] == {"a": [1] * 40_001}
    assert recorder.calls == 1
    assert asked[0] > 40 * len(TEXT)


PROGRAM = """
import resource, sys
from streamcodec.engine.json import quick as quickjson
if sys.argv[2] == "no":
    quickjson._has_memory = lambda _: True
unit = sys.argv[1].replace("LONG", "y" * 4_000_000).encode()
text = b"[" + unit * (4_200_000 // len(unit)) + b"1]"
assert quickjson.parse_quickly(b"[1]") == [[1]]
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
for mebibytes in (0, 1, 3, 10, 30, 100):
    resource.setrlimit(resource.RLIMIT_AS, (size + (mebibytes << 20), resource.RLIM_INFINITY))
    quickjson.parse_quickly(text)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def _ends(unit: str, *, reserves: bool) -> int:
    """Return the exit status of a process that parses such a text with ever more memory to be had."""
    command = [sys.executable, "-c", PROGRAM, unit, "yes" if reserves else "no"]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="an address space that is bounded, and known")
@pytest.mark.parametrize("unit", ["[[[1]]],", '"a",', '"LONG",'])
def test_no_limit_of_the_address_space_ends_the_process(unit: str) -> None:
    assert _ends(unit, reserves=True) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="as before")
def test_without_a_reserve_one_does_in_releases_before_023() -> None:
    release = tuple(int(number) for number in version("msgspec").split(".")[:2])
    expected = {-signal.SIGSEGV, 1} if release < (0, 23) else {0}  # 1: by a MemoryError before
    assert _ends('"LONG",', reserves=False) in expected
