"""What a thread should do is done, even if there is no thread for it."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import pytest

from streamcodec.transports.inthread import in_thread

NO_THREADS = """
import resource, threading
import anyio
from streamcodec.transports.inthread import in_thread

async def main():
    place = await in_thread(threading.get_ident, anyio.CapacityLimiter(1))
    print(place == threading.get_ident())
    for _ in range(2):
        try:
            await in_thread(lambda: 1 / 0, anyio.CapacityLimiter(1))
        except ZeroDivisionError:
            print("raised")

with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20),) * 2)
threading.stack_size(128 << 20)
anyio.run(main, backend={backend!r})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the address space cannot be limited")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_if_there_is_no_thread_it_is_done_here(backend: str) -> None:
    script = NO_THREADS.replace("{backend!r}", repr(backend))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == ["True", "raised", "raised"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_is_done_once_in_a_thread_even_if_it_fails(backend: str) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(threading.get_ident())
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with pytest.raises(RuntimeError):
            await in_thread(fail, anyio.CapacityLimiter(1))

    anyio.run(main, backend=backend)
    assert len(calls) == 1
    assert calls[0] != threading.get_ident()
