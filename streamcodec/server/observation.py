"""Observation: makes the record of each request, if the server has observers.

A connection has one `Observation` at a time, from the first bytes of a request until its answer has been sent. It reads
the clock whenever the request enters its next phase; the differences are the times of the phases. A server without
observers has no observations, and a request costs only the check for observers.

An observation is the record itself, with a few values that only the server needs. Most requests are small and answered
in one step, so little is done for each of them: one object, which is made by hand; four readings of the clock; and five
calls. Text is made from it elsewhere.

A model that was given up reports its end from its thread, when its request has long been over. This changes no times.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode, MessageError
from streamcodec.http.messages import RequestHead
from streamcodec.service import Inference, InferenceRequest, Reply
from streamcodec.service.observing import COMPLETE, Ending, Observer, RequestRecord

logger: Final = logging.getLogger(__name__)

BODY: Final = 0
WAITING: Final = 1
MODEL: Final = 2
SENDING: Final = 3
"""Parts of a request's time, by number: two of them are entered with every small request."""


_EPOCH_SECONDS: Final = 1.0
"""Between two looks at the time of day: to read a clock takes as long as a call, and there are four in any case."""

Tell = Callable[[RequestRecord], None]

_DO_NOTHING: Final = frozenset(
    {Observer.request_begun, Observer.call_begun, Observer.call_ended, Observer.request_ended}
)
"""What an observer inherits that leaves out methods: it need not be called."""


class Observers:
    """Several observers as one. None of them ends a request, whatever it raises.

    Attributes:
        clock: for the times of requests, in seconds.
        epoch: the time of day when the clock was 0, in seconds since 1970.
        epoch_until: the clock's time from which on that is to be found out anew.
        enders: who is told that a request is over; by the observation itself, since that is done most.
        request_begun: tells all who want to know; None if nobody does. So do the next two.
    """

    def __init__(self, observers: Sequence[Observer], clock: Callable[[], float] = time.perf_counter) -> None:
        """Tell each of them, in this order; times are of the clock."""
        self.clock = clock
        self._has_failed = False
        self.epoch: float = 0.0
        self.epoch_until: float = -math.inf
        self.request_begun: Tell | None = self._tell([observer.request_begun for observer in observers])
        self.call_begun: Tell | None = self._tell([observer.call_begun for observer in observers])
        self.call_ended: Tell | None = self._tell([observer.call_ended for observer in observers])
        self.enders: tuple[Tell, ...] = _wanted([observer.request_ended for observer in observers])

    def of(self, client: str) -> Observe:
        """Return what begins an observation of each request of a client."""
        return Observation.of(self, client)

    def look_at_the_time(self, now: float) -> None:
        """Find out what time of day it was when the clock was 0: it may have been set."""
        self.epoch = time.time() - now
        self.epoch_until = now + _EPOCH_SECONDS

    def _tell(self, methods: list[Tell]) -> Tell | None:
        """Return a function that tells all who want to know; None if nobody does."""
        wanted = _wanted(methods)

        def tell(record: RequestRecord) -> None:
            for method in wanted:
                try:
                    method(record)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything, and shall not matter
                    self.complain(method, error)

        return tell if wanted else None

    def complain(self, method: Tell, error: BaseException) -> None:
        """Log what an observer has raised, if it is the first time."""
        if not self._has_failed:
            self._has_failed = True
            logger.error("an observer failed in %r; later failures are not logged", method, exc_info=error)


def _wanted(methods: list[Tell]) -> tuple[Tell, ...]:
    """Leave out methods that are inherited, and do nothing."""
    return tuple(method for method in methods if getattr(method, "__func__", None) not in _DO_NOTHING)


class Observation(RequestRecord):
    """One request: its record, and what the server needs to fill it.

    Attributes:
        offset: bytes that had come before it on its connection.
        has_begun: whether there has been a head.
    """

    __slots__ = ("_began", "_observers", "_part", "_since", "has_begun", "offset")

    _observers: Observers
    _part: int
    _began: float
    _since: float
    has_begun: bool
    offset: int

    # Of `RequestRecord`; what is assigned here, type checkers want to have declared here, too.
    model: str | None
    version: str | None
    request_id: str | None
    status: int | None
    code: ErrorCode | None
    cause: BaseException | None
    body_seconds: float
    waiting_seconds: float
    model_seconds: float
    send_seconds: float
    seconds: float

    @classmethod
    def of(cls, observers: Observers, client: str) -> Observe:
        """Return what begins an observation of each request of a client.

        An observation is made by hand, with what `RequestRecord` begins with: to call a class takes three times as
        long as a function, and this is done for each request.
        """
        clock, new = observers.clock, cls.__new__

        def observe(offset: int = 0) -> Observation:
            self = new(cls)
            self._observers = observers
            self._part = BODY
            self.has_begun = False
            self.offset = offset
            self.client = client
            self.head = self.model = self.version = self.request_id = self.status = self.code = self.cause = None
            self.raw_head = b""
            self.ending = COMPLETE
            self.bytes_in = self.bytes_out = 0
            self.body_seconds = self.waiting_seconds = self.model_seconds = self.send_seconds = self.seconds = 0.0
            self._began = self._since = now = clock()
            if now >= observers.epoch_until:
                observers.look_at_the_time(now)
            self.started = observers.epoch + now
            return self

        return observe

    def begin(self, head: RequestHead | None, raw_head: bytes = b"") -> None:
        """Tell that the head has been read; a second time changes nothing.

        Args:
            head: None if it was refused.
            raw_head: as it came, if the head is that of an earlier request.
        """
        if not self.has_begun:
            self.has_begun = True
            self.head = head
            self.raw_head = raw_head
            if (tell := self._observers.request_begun) is not None:
                tell(self)

    def enter(self, part: int) -> None:
        """Go on to another part of the request; the time since the last call was the part's before."""
        now = self._observers.clock()
        before = self._part
        if before == BODY:
            self.body_seconds += now - self._since
        elif before == MODEL:
            self.model_seconds += now - self._since
        elif before == SENDING:
            self.send_seconds += now - self._since
        else:
            self.waiting_seconds += now - self._since
        self._since = now
        self._part = part

    def asks(self, inference: Inference) -> None:
        """Tell which model the request is for."""
        inference.watch = self
        self.model = inference.resolved.model.name
        self.version = inference.resolved.version

    def goes_on(self, *, is_waiting: bool) -> None:
        """Tell whether the request waits for anything but its client, until its answer is there."""
        part = WAITING if is_waiting else BODY
        if self._part not in {part, SENDING}:
            self.enter(part)

    def call_begun(self, request: InferenceRequest) -> None:
        """Tell that the model is called next; by whichever thread."""
        self.model = request.model_name
        self.version = request.model_version
        self.request_id = request.header.id
        observers = self._observers
        if observers.call_begun is not None:
            observers.call_begun(self)
        if self._part != BODY:
            self.enter(MODEL)
            return
        now = observers.clock()
        self.body_seconds += now - self._since
        self._since = now
        self._part = MODEL

    def call_ended(self) -> None:
        """Tell that the model has returned, or raised."""
        observers = self._observers
        if self._part == MODEL:  # else it was given up
            now = observers.clock()
            self.model_seconds += now - self._since
            self._since = now
            self._part = SENDING
        if observers.call_ended is not None:
            observers.call_ended(self)

    def answered(self, reply: Reply) -> None:
        """Tell what is answered, which is sent next."""
        self.status = reply.status
        if (refusal := reply.refusal) is not None:
            self.code = refusal.code
        if reply.cause is not None:
            self.cause = reply.cause
        if self._part != SENDING:
            self.enter(SENDING)

    def end(self, ending: Ending = COMPLETE) -> None:
        """Tell that the request is over."""
        if not self.has_begun:
            self.begin(None)
        if self._part != SENDING:
            self.enter(SENDING)
        observers = self._observers
        now = observers.clock()
        self.send_seconds += now - self._since
        self.seconds = now - self._began
        self.ending = ending
        for method in observers.enders:
            try:
                method(self)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as of `Observers`
                observers.complain(method, error)

    def break_off(self, error: BaseException | None) -> None:
        """Tell that the request is over, and its answer was not sent to the end.

        Args:
            error: why; None where the server has given up.
        """
        if isinstance(error, RuntimeError):  # of the model that was making its answer
            self.cause = error.__cause__ or error
        if isinstance(error, MessageError):
            self.code = error.code
        if self.status is not None:
            self.end(Ending.CUT)
        else:
            self.end(Ending.CLIENT_LEFT if isinstance(error, OSError) else Ending.ABANDONED)


Observe = Callable[[int], Observation]
"""Begins an observation of a request, before which so many bytes have come."""


def client_of(sock: socket.socket) -> str:
    """Return the address at the other end of a connection; empty if it has gone already, or has none."""
    try:
        host, number, *_ = sock.getpeername()
    except (OSError, ValueError):
        return ""
    return format_address(host, number)


def format_address(host: str, port: object) -> str:
    """Return an address as records have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
