"""Reading: the thread of a WSGI request brings its body, and waits for it: for bytes, and for memory.

It does what a `FrameworkRequest` says, as a task does under an event loop (`server.reading`). Only the waits differ:
the thread itself reads and works, and no code here can interrupt a read: only the server's own time limits can. After
each read, this module looks whether the client is fast enough for the memory that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar, cast

from streamcodec.embedding.request import FrameworkRequest, Step, next_event
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody
from streamcodec.runtime.memory.waiting import block_for_memory
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import ReadTimeout
from streamcodec.wsgi.intake import Begun, BodyStream, Readable

_T = TypeVar("_T")


class ThreadReader:
    """Reads one request."""

    def __init__(self, request: FrameworkRequest, stream: Readable, options: ServerOptions) -> None:
        """Begin after the head; for the arguments see `TaskReader`."""
        self._request = request
        self._intake = BodyStream(stream)
        self._budget_timeout = options.budget_timeout
        self._patience = ReadTimeout(options, request)
        if isinstance(stream, Begun) and stream.waited is not None:
            self._patience.has_waited(*stream.waited)

    def next_step(self) -> Step:
        """Return `CALL` or `END`; see `TaskReader`."""
        request = self._request
        while (step := self._until(request.next_step)) is Step.WAIT:
            request.granted(has_come=block_for_memory(request.reservation, self._budget_timeout))
        return step

    def next_event(self) -> Event:
        """Return the next event of the body, for a model that takes windows."""
        body = self._body
        return cast("Event", self._until(lambda: next_event(body)))

    @property
    def _body(self) -> FedBody:
        return cast("FedBody", self._request.body)

    def _until(self, go_on: Callable[[], _T]) -> _T:
        """Read and work until there is something else to do, and return that."""
        while (found := go_on()) is Step.READ or found is Step.WORK:
            if found is Step.READ:
                self._read()
            else:
                self._body.work()
        return found

    def _read(self) -> None:
        """Read once, and look how long that took.

        Raises:
            RemoteProtocolError: the connection is broken, or `too-slow`.
        """
        body, patience, reservation = self._body, self._patience, self._request.reservation
        reservation.begin_to_wait()
        patience.resume()
        try:
            patience.look(monotonic())
            self._intake.read(body)
            if not body.has_ended:
                patience.look(monotonic())
        except TimeoutError:
            raise self._request.too_slow() from None
        finally:
            patience.pause(monotonic())
            reservation.end_to_wait()
