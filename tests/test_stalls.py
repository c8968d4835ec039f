"""The stall meter itself: it sees who held up a loop, and for how long, and not what others did meanwhile."""

from __future__ import annotations

import time
from contextlib import ExitStack

import anyio
import pytest

from tests.stalls import Meter, on_asyncio, trio_instruments

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])


def _burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def _hold_up() -> None:
    _burn(0.05)


def _metered(loop: str) -> Meter:
    """Run a loop that is held up once, excused once, and waits for a thread once."""
    meter = Meter()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meter.beat)
            await anyio.sleep(0.01)
            meter.report()
            _burn(0.1)
            meter.excuse()
            await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(_burn, 0.1)
            tasks.start_soon(_hold_up)
            await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    options = {"instruments": trio_instruments(meter)} if loop == "trio" else {"use_uvloop": loop == "uvloop"}
    with ExitStack() as stack:
        stack.enter_context(meter.watched())
        if loop == "asyncio":
            stack.enter_context(on_asyncio(meter))
        anyio.run(main, backend="trio" if loop == "trio" else "asyncio", backend_options=options)
    return meter


@pytest.mark.slow
@LOOPS
def test_what_holds_up_the_loop_is_seen_and_what_others_do_is_not(loop: str) -> None:
    if loop != "asyncio":
        pytest.importorskip(loop)
    meter = _metered(loop)
    assert meter.stalls == 1
    if loop == "uvloop":
        assert 0.05 <= meter.turn.cpu < 0.1
    else:
        assert 0.05 <= meter.longest.cpu < 0.1
        assert meter.longest.wall >= 0.05
        assert "_hold_up" in meter.longest.name
