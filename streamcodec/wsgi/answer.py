"""ResponseBody: a reply in the form of WSGI: an iterable of bytes that is closed in any case.

Servers keep the pieces that they get, so each piece is a copy. Small parts are joined in one piece, so that a short
answer is sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.memory.rows import Rows
from streamcodec.http.heads.statuses import line_of
from streamcodec.runtime.models.failures import raise_bare
from streamcodec.service.replies import Reply, complete_headers, failure_reply, lawful
from streamcodec.transports.sockets.vectors import PIECE_BYTES, batches, copied_pieces
from streamcodec.wsgi.environ import StartResponse


class ResponseBody:
    """The body of an answer. The server closes it, even if it does not take all of it.

    Attributes:
        sent: bytes that the server has asked for.
    """

    def __init__(self, pieces: Iterator[bytes], end: Callable[[int, BaseException | None], None]) -> None:
        """Begin.

        Args:
            pieces: of the body.
            end: called once: after the last piece, after an error, or by `close`; with the number of bytes that the
                server has asked for, and the error.
        """
        self._pieces = pieces
        self._end: Callable[[int, BaseException | None], None] | None = end
        self.sent: int = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._finish(None)
            raise
        except Exception as error:  # noqa: BLE001 - raised again
            self._finish(error)
            raise_bare(error)
        self.sent += len(piece)
        return piece

    def close(self) -> None:
        """Free everything; a second call has no effect."""
        self._finish(None)

    def __del__(self) -> None:  # some servers do not close an answer that they have not begun to send
        self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        end, self._end = self._end, None
        self._pieces, pieces = iter(()), self._pieces
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
        if end is not None:
            end(self.sent, error)


def send_response(start_response: StartResponse, reply: Reply) -> Iterable[bytes]:
    """Begin the answer to an inference request, and return its body, which is made while it is sent.

    Args:
        start_response: as WSGI gives it.
        reply: made by `ReceivedRequest.reply`; or by `error_reply`, from an exception of `receive_request`.

    Raises:
        LocalProtocolError: no answer can have the status of the reply.
    """
    reply = lawful(reply)
    start(start_response, reply)
    whole = whole_of(reply)
    return pieces(reply) if whole is None else [whole]


def start(start_response: StartResponse, reply: Reply) -> None:
    """Begin an answer."""
    start_response(line_of(reply.status), complete_headers(reply))


def pieces(reply: Reply) -> Iterator[bytes]:
    """Yield the body of a reply, in pieces of at most `PIECE_BYTES`.

    Raises:
        MessageError: the request that the answer is made from breaks a rule.
        RuntimeError: the model has raised something else.
    """
    coming = batches(reply.buffers)
    while (batch := _next(coming)) is not None:
        yield from copied_pieces(batch)


def failure_to_send(reply: Reply) -> Reply | None:
    """Return an error reply if only an event loop could send the reply; None if it can be sent here."""
    if not any(isinstance(part, Rows) and part.is_asynchronous for part in reply.buffers):
        return None
    error = LocalProtocolError("a model has returned asynchronous rows, and there is no event loop to wait for them")
    return failure_reply(str(error), status=500, cause=error)


def whole_of(reply: Reply) -> bytes | None:
    """Return the body of a reply that is short and complete; None for any other reply."""
    if reply.body_length > PIECE_BYTES or Rows in map(type, reply.buffers):
        return None
    return b"".join(cast("tuple[bytes, ...]", reply.buffers))


def _next(coming: Iterator[list[memoryview]]) -> list[memoryview] | None:
    try:
        return next(coming, None)
    except MessageError:
        raise
    except Exception as error:
        msg = f"a model failed with {type(error).__name__} in the middle of its answer"
        raise RuntimeError(msg) from error
