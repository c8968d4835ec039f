"""Failures: what the log says about a model that has raised.

The reader of the log has written the model, not this package. So the traceback begins with the model's own code. If
there is none, because the returned value cannot be sent, the message says everything, and there is no traceback.
"""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from threading import current_thread, main_thread
from types import TracebackType
from typing import Final, NoReturn

import anyio

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.service.replies import Reply, drop_tracebacks


def is_ending(error: BaseException) -> bool:
    """Whether an exception ends its task or the program. If not, the code of a model has raised it.

    The cancel scopes tell whether a task is cancelled. The exception does not: a model that awaits something that was
    cancelled elsewhere gets the same exception. If `GeneratorExit` closes a coroutine, no task is running. Ctrl-C is
    raised in the main thread. If this thread runs the event loop, Ctrl-C looks the same as an exception of the model.
    """
    if isinstance(error, GeneratorExit):
        try:
            anyio.get_current_task()
        except RuntimeError:
            return True
        return False
    if isinstance(error, KeyboardInterrupt):
        return current_thread() is main_thread()
    return isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == -math.inf


_OURS: Final = str(Path(__file__).parents[2]) + os.sep

logger: Final = logging.getLogger(__name__)


def log_failure(reply: Reply, *, is_observed: bool) -> None:
    """Log that a model failed, if the reply says so, and drop the traceback.

    Args:
        reply: is sent now.
        is_observed: whether there is an `Observation`. Its observers may need the traceback, so it drops it.
    """
    if (cause := reply.cause) is None:
        return
    traceback = users_part(cause.__traceback__)
    if traceback is None and not isinstance(cause, LocalProtocolError):  # perhaps a bug of this package
        traceback = cause.__traceback__
    logger.error("%s failed", reply.call, exc_info=(type(cause), cause, traceback))
    if not is_observed:
        drop_tracebacks(cause)


def raise_bare(error: Exception) -> NoReturn:
    """Raise an exception for a framework, without the frames that have raised it; it is logged here before.

    Frameworks log exceptions, and some refer to them from their own frames, which are in the traceback: so do aiohttp
    and werkzeug. Then only the garbage collector would free the memory of the request, which our frames refer to. The
    frame of the caller is left. It must not refer to such memory.

    Raises:
        Exception: always.
    """
    if not isinstance(error, OSError | MessageError):  # else the client has left, does not read, or broke a rule
        logger.error("an answer has failed", exc_info=error)
    drop_tracebacks(error)
    try:
        raise error
    finally:
        del error


def users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package that it begins with; None if it has no others."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
        traceback = traceback.tb_next
    return traceback
