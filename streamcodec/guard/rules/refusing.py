"""Refusing: the answers of the guard's own. Sans-IO."""

from __future__ import annotations

from streamcodec.client.connections.reaching import TRUST_ARGUMENT
from streamcodec.engine.errors import MessageError
from streamcodec.guard.rules.allowing import MethodError
from streamcodec.service.replies import Reply, error_reply, failure_reply, unavailable_reply


def refusal(error: MessageError) -> Reply:
    """Answer a request that breaks a rule, and forget where the rule was checked: those frames keep the request."""
    methods = error.methods if isinstance(error, MethodError) else ()
    return error_reply(error.with_traceback(None), headers=[("Allow", ", ".join(methods))] if methods else ())


def no_place(*, is_stopping: bool) -> Reply:
    """Answer a request that may come again: there is no seat for it, or the guard is stopping."""
    text = "the guard is stopping" if is_stopping else "the guard has the maximum number of connections"
    return unavailable_reply(text, retry_after=1)


def no_answer(error: Exception) -> Reply:
    """Answer a request for which there is no answer of the server behind."""
    if isinstance(error, TimeoutError):
        return failure_reply("the server behind this guard does not answer in time", status=504)
    return failure_reply("the server behind this guard cannot be reached, or has broken off", status=502)


def told(error: Exception) -> str:
    """Return the text of an error for the log, with the option of the guard in place of the argument of clients."""
    return str(error).replace(TRUST_ARGUMENT, "--upstream-ca FILE")
