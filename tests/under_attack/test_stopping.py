"""The command stops in time while it is attacked: by its limit at the first signal, at once at the second."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.processes import announced
from tests.under_attack.attacker import attacker_process
from tests.under_attack.attacks import ATTACKS

pytestmark = pytest.mark.quiet

_SHUTDOWN_SECONDS = 2.0
_GRACE_SECONDS = 1.5
"""For what one turn of the loop may still take, and for the process to end, on a machine with other work to do."""

NAMES = [
    "JSON with NaN below long keys",
    "JSON with a float too large",
    "valid JSON of 16 MB",
    "an answer in JSON, of 32 MiB, not read",
    "zeros of 64 MiB, compressed",
    "404 pipelined",
    "1.1 KB/s into windows, from eight",
]


@contextmanager
def _serving() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0"]
    command += ["--shutdown-timeout", str(_SHUTDOWN_SECONDS), "tests.soak.models:models"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", announced(process.stdout))
            assert found is not None
            yield process, int(found[1])
        finally:
            process.kill()


def _seconds_to_end(name: str, signals: int) -> float:
    """Return how long a server under attack takes to end after so many signals."""
    assert name in ATTACKS
    with ExitStack() as stack:
        process, port = stack.enter_context(_serving())
        stack.enter_context(attacker_process(("127.0.0.1", port), name)).begin()
        time.sleep(0.5)
        for _ in range(signals):
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        try:
            process.wait(_SHUTDOWN_SECONDS + 10)
        except subprocess.TimeoutExpired:
            pytest.fail("it does not end at all")
        return time.monotonic() - began


@pytest.mark.parametrize("name", NAMES)
def test_one_signal_ends_it_by_its_limit(name: str) -> None:
    assert _seconds_to_end(name, 1) <= _SHUTDOWN_SECONDS + _GRACE_SECONDS


@pytest.mark.parametrize("name", NAMES)
def test_a_second_signal_ends_it_at_once(name: str) -> None:
    assert _seconds_to_end(name, 2) <= _GRACE_SECONDS
