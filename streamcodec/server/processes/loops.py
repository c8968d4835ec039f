"""Loops: event loops of asyncio and uvloop that survive a lack of memory in the loop itself; and what signals mean.

asyncio catches exceptions of callbacks. But the loop itself may have no memory for the list of ready callbacks, or for
the report of a failed callback. Such an exception ends the loop, and with it the server. Little is lost with such a
turn: ready sockets are still ready in the next turn, and callbacks that were not called still wait. So the loop is run
again.
"""

from __future__ import annotations

import asyncio
import signal
import time
from importlib.util import find_spec
from typing import Final

from streamcodec.runtime.memory.available import memory_left

HAS_UVLOOP: Final = find_spec("uvloop") is not None
"""uvloop is used if it is installed, because it is faster."""

_LITTLE_SPACE_BYTES: Final = 128 << 20
"""With less address space left (`RLIMIT_AS`), the loop is asyncio's. It takes less, and uvloop ends the process by
SIGSEGV if a signal comes while there is no memory."""

_PAUSE_SECONDS: Final = 0.001
"""A pause in which threads may free memory."""


class _Enduring(asyncio.AbstractEventLoop):
    """A mixin for event loops."""

    _is_stopped = False

    def stop(self) -> None:
        """Let `run_forever` return."""
        self._is_stopped = True
        super().stop()

    def run_forever(self) -> None:
        """Run until `stop` is called, even if a turn fails for lack of memory."""
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
    """The event loop of asyncio."""


def new_loop(*, is_uvloop: bool | None = None) -> asyncio.AbstractEventLoop:
    """Return an event loop that survives a lack of memory; by default uvloop's, if it is there and has space."""
    if is_uvloop is None:
        left = memory_left()
        is_uvloop = HAS_UVLOOP and not (left.is_address_space and left.nbytes < _LITTLE_SPACE_BYTES)
    if not is_uvloop:
        return _SelectorLoop()
    import uvloop  # noqa: PLC0415 - an extra

    loop: asyncio.AbstractEventLoop = type("_UvLoop", (_Enduring, uvloop.Loop), {})()
    return loop


STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""They stop the server; another one of them ends it at once."""

RENEWS: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""It has models and certificates read anew; Windows has no such signal."""

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as of a shell."""
