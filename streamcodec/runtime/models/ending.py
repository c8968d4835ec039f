"""Ending: which exceptions end a task or the program, and which belong to the code of a model that has raised them."""

from __future__ import annotations

import math
from threading import current_thread, main_thread

import anyio


def is_ending(error: BaseException) -> bool:
    """Whether an exception ends its task or the program. If not, the code of a model has raised it.

    The cancel scopes tell whether a task is cancelled. The exception does not: a model that awaits something that was
    cancelled elsewhere gets the same exception. If `GeneratorExit` closes a coroutine, no task is running. Ctrl-C is
    raised in the main thread. If this thread runs the event loop, Ctrl-C looks the same as an exception of the model.
    """
    if isinstance(error, GeneratorExit):
        return not _is_in_task()
    if isinstance(error, KeyboardInterrupt):
        return current_thread() is main_thread()
    return isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == -math.inf


def _is_in_task() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True
