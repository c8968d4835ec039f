"""Loops: event loops of asyncio and uvloop that go on where they themselves had no memory.

asyncio catches what a callback raises. What the loop raises itself, where it has no memory for the list of those that
are ready, or for the report of a callback that has failed, ends it, and with it the server. Little is lost with such a
turn: sockets that are ready are ready in the next one, too, and callbacks that were not called still wait. So the loop
is run again.
"""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import Final

HAS_UVLOOP: Final = find_spec("uvloop") is not None
"""Where it is installed it is used, since it is quicker."""

_PAUSE_SECONDS: Final = 0.001
"""For threads, which may give memory back meanwhile."""


class _Enduring(asyncio.AbstractEventLoop):
    """What is added to an event loop."""

    _is_stopped = False

    def stop(self) -> None:
        """Let `run_forever` return."""
        self._is_stopped = True
        super().stop()

    def run_forever(self) -> None:
        """Run until `stop` is called, whatever turn there was no memory for."""
        self._is_stopped = False
        while True:
            try:
                super().run_forever()
            except MemoryError:
                if not self._is_stopped:
                    time.sleep(_PAUSE_SECONDS)
                    continue
            return


class _SelectorLoop(_Enduring, asyncio.SelectorEventLoop):
    """Of asyncio."""


def new_loop(*, is_uvloop: bool = HAS_UVLOOP) -> asyncio.AbstractEventLoop:
    """Return an event loop that goes on where there is no memory."""
    if not is_uvloop:
        return _SelectorLoop()
    import uvloop  # noqa: PLC0415 - an extra

    loop: asyncio.AbstractEventLoop = type("_UvLoop", (_Enduring, uvloop.Loop), {})()
    return loop
