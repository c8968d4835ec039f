"""Observation: the one place where the record of a request is made, if the server has observers.

A connection has one `Observation` at a time, from the first bytes of a request until its answer has been sent. It reads
the clock whenever the request goes on to another part; the times of the parts are what lies between. Where a server has
no observer there are no observations, and a request costs no more than the question whether there is one.

A model that was given up tells the observation of its end from its thread, when its request has long been over. That
changes no times any more.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.http.messages import RequestHead
from streamcodec.service import Inference, InferenceRequest, Reply
from streamcodec.service.observing import Ending, Observer, RequestRecord

logger = logging.getLogger(__name__)

BODY: Final = 0
WAITING: Final = 1
MODEL: Final = 2
SENDING: Final = 3
"""Parts of a request's time, by number: two of them are entered with every small request."""


_DO_NOTHING: Final = frozenset(
    {Observer.request_begun, Observer.call_begun, Observer.call_ended, Observer.request_ended}
)
"""What an observer inherits that leaves out methods: it need not be called."""


class Observers:
    """Several observers as one. None of them ends a request, whatever it raises."""

    def __init__(self, observers: Sequence[Observer], clock: Callable[[], float] = time.perf_counter) -> None:
        """Tell each of them, in this order; times are of the clock."""
        self.clock = clock
        self._has_failed = False
        self.request_begun = self._tell([observer.request_begun for observer in observers])
        self.call_begun = self._tell([observer.call_begun for observer in observers])
        self.call_ended = self._tell([observer.call_ended for observer in observers])
        self.request_ended = self._tell([observer.request_ended for observer in observers])

    def _tell(self, methods: list[Callable[[RequestRecord], None]]) -> Callable[[RequestRecord], None] | None:
        """Return a function that tells all who want to know; None if nobody does."""
        methods = [method for method in methods if getattr(method, "__func__", None) not in _DO_NOTHING]
        return partial(self._call, methods) if methods else None

    def _call(self, methods: list[Callable[[RequestRecord], None]], record: RequestRecord) -> None:
        for method in methods:
            try:
                method(record)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything, and shall not matter
                self._complain(method, error)

    def _complain(self, method: Callable[[RequestRecord], None], error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.error("an observer failed in %r; later failures are not logged", method, exc_info=error)


class Observation:
    """What is found out about one request.

    Attributes:
        record: the request, as observers see it.
        offset: bytes that had come before it on its connection.
        has_begun: whether there has been a head.
    """

    __slots__ = ("_began", "_observers", "_part", "_since", "has_begun", "offset", "record")

    def __init__(self, observers: Observers, client: str, offset: int = 0) -> None:
        """Begin with the first bytes of a request."""
        self._observers = observers
        self.offset = offset
        self.record = RequestRecord(client, time.time())
        self._part = BODY
        self.has_begun = False
        self._began = self._since = observers.clock()

    def begin(self, head: RequestHead | None, raw_head: bytes = b"") -> None:
        """Tell that the head has been read; a second time changes nothing."""
        if not self.has_begun:
            self.has_begun = True
            self.record.head = head
            self.record.raw_head = raw_head
            if (tell := self._observers.request_begun) is not None:
                tell(self.record)

    def enter(self, part: int) -> None:
        """Go on to another part of the request; the time since the last call was the part's before."""
        now = self._observers.clock()
        seconds, record, before = now - self._since, self.record, self._part
        if before == BODY:
            record.body_seconds += seconds
        elif before == MODEL:
            record.model_seconds += seconds
        elif before == SENDING:
            record.send_seconds += seconds
        else:
            record.waiting_seconds += seconds
        self._since = now
        self._part = part

    def asks(self, inference: Inference) -> None:
        """Tell which model the request is for."""
        inference.watch = self
        self.record.model = inference.opening.model.name
        self.record.version = inference.opening.version

    def goes_on(self, *, is_waiting: bool) -> None:
        """Tell whether the request waits for anything but its client, until its answer is there."""
        part = WAITING if is_waiting else BODY
        if self._part not in {part, SENDING}:
            self.enter(part)

    def call_begun(self, request: InferenceRequest) -> None:
        """Tell that the model is called next; by whichever thread."""
        record = self.record
        record.model = request.model_name
        record.version = request.model_version
        record.request_id = request.header.id
        if (tell := self._observers.call_begun) is not None:
            tell(record)
        self.enter(MODEL)

    def call_ended(self) -> None:
        """Tell that the model has returned, or raised."""
        if self._part == MODEL:  # else it was given up
            self.enter(SENDING)
        if (tell := self._observers.call_ended) is not None:
            tell(self.record)

    def answered(self, reply: Reply) -> None:
        """Tell what is answered, which is sent next."""
        record = self.record
        record.status = reply.status
        if (refusal := reply.refusal) is not None:
            record.code = refusal.code
        if reply.cause is not None:
            record.cause = reply.cause
        if self._part != SENDING:
            self.enter(SENDING)

    def end(self, ending: Ending = Ending.COMPLETE) -> None:
        """Tell that the request is over."""
        if not self.has_begun:
            self.begin(None)
        self.enter(SENDING)
        record = self.record
        if ending is not Ending.COMPLETE:
            record.ending = ending
        record.seconds = self._since - self._began
        if (tell := self._observers.request_ended) is not None:
            tell(record)

    def break_off(self, error: BaseException | None) -> None:
        """Tell that the request is over, and its answer was not sent to the end.

        Args:
            error: why; None where the server has given up.
        """
        record = self.record
        if isinstance(error, RuntimeError):  # of the model that was making its answer
            record.cause = error.__cause__ or error
        if isinstance(error, RemoteProtocolError):
            record.code = error.code
        if record.status is not None:
            self.end(Ending.CUT)
        else:
            self.end(Ending.CLIENT_LEFT if isinstance(error, OSError) else Ending.ABANDONED)


def client_of(sock: socket.socket) -> str:
    """Return the address at the other end of a connection; empty if it has gone already, or has none."""
    try:
        host, number, *_ = sock.getpeername()
    except (OSError, ValueError):
        return ""
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
