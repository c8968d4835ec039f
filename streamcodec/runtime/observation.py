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
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service import BatchPlace, Inference, InferenceRequest, Reply
from streamcodec.service.observing import COMPLETE, READ_RAW, Ending, Observer, ReadFields, RequestRecord
from streamcodec.service.replies import drop_tracebacks

logger: Final = logging.getLogger(__name__)

BODY: Final = 0
WAITING: Final = 1
MODEL: Final = 2
SENDING: Final = 3
"""Phases of a request. They are plain numbers, because every small request enters two of them."""


_EPOCH_SECONDS: Final = 1.0
"""Interval for reading the time of day. Reading a clock takes as long as a call, and each request needs four readings
in any case."""

_PEER_CREDENTIALS: Final[int | None] = getattr(socket, "SO_PEERCRED", None)
"""Of Linux: process, user and group of the other end of a Unix socket."""

Tell = Callable[[RequestRecord], None]

_DO_NOTHING: Final = frozenset(
    {Observer.request_begun, Observer.call_begun, Observer.call_ended, Observer.request_ended}
)
"""Methods that an observer inherits if it does not define them. They need not be called."""


class Observers:
    """Several observers as one. No exception of an observer ends a request.

    Attributes:
        clock: for the times of requests, in seconds.
        epoch: the time of day when the clock was 0, in seconds since 1970.
        epoch_until: the clock's time at which `epoch` has to be computed again.
        enders: called when a request is over. The observation calls them itself, because these calls are most frequent.
        request_begun: calls all observers that define this method; None if there are none. The next two are the same.
    """

    def __init__(self, observers: Sequence[Observer], clock: Callable[[], float] = time.perf_counter) -> None:
        """Prepare to call the observers in this order; times are those of the clock."""
        for observer in observers:
            check_kind(observer, Observer, "an observer is an object of a class that inherits from Observer")
        self.clock = clock
        self._has_failed = False
        self.epoch: float = 0.0
        self.epoch_until: float = -math.inf
        self.request_begun: Tell | None = self._tell([observer.request_begun for observer in observers])
        self.call_begun: Tell | None = self._tell([observer.call_begun for observer in observers])
        self.call_ended: Tell | None = self._tell([observer.call_ended for observer in observers])
        self.enders: tuple[Tell, ...] = _wanted([observer.request_ended for observer in observers])

    def of(self, client: str) -> Observe:
        """Return a function that begins the observation of a request of a client."""
        return Observation.of(self, client)

    def look_at_the_time(self, now: float) -> None:
        """Compute the time of day at which the clock was 0. The time of day may have been set meanwhile.

        The clock is read last. So if the thread is interrupted in between, requests begin too early, never too late:
        a later event of a request never seems to come before its beginning.
        """
        self.epoch = time.time() - self.clock()
        self.epoch_until = now + _EPOCH_SECONDS

    def _tell(self, methods: list[Tell]) -> Tell | None:
        """Return a function that calls all methods that do something; None if there are none."""
        wanted = _wanted(methods)

        def tell(record: RequestRecord) -> None:
            for method in wanted:
                try:
                    method(record)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything; no request must fail
                    self.complain(method, error)

        return tell if wanted else None

    def complain(self, method: Tell, error: BaseException) -> None:
        """Log the exception of an observer, if it is the first one."""
        if not self._has_failed:
            self._has_failed = True
            logger.error("an observer failed in %r; later failures are not logged", method, exc_info=error)


def _wanted(methods: list[Tell]) -> tuple[Tell, ...]:
    """Leave out inherited methods, which do nothing."""
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

    @classmethod
    def of(cls, observers: Observers, client: str) -> Observe:
        """Return a function that begins the observation of a request of a client.

        The function does not call the class. It sets the initial values of `RequestRecord` itself: calling a class
        takes three times as long as calling a function, and this is done for each request.
        """
        clock, new = observers.clock, cls.__new__

        def observe(offset: int = 0) -> Observation:
            self = new(cls)
            self._observers = observers
            self._part = BODY
            self.has_begun = False
            self.offset = offset
            self.client = client
            self._head = self.model = self.version = self.request_id = self.status = self.code = self.cause = None
            self._read = self.batch = None
            self._raw_head = b""
            self.ending = COMPLETE
            self.bytes_in = self.bytes_out = 0
            self.body_seconds = self.waiting_seconds = self.model_seconds = self.send_seconds = self.seconds = 0.0
            self._began = self._since = now = clock()
            if now >= observers.epoch_until:
                observers.look_at_the_time(now)
            self.started = observers.epoch + now
            return self

        return observe

    def begin(self, head: RequestHead | None, raw_head: bytes = b"", read: ReadFields | None = None) -> None:
        """Report that the head has been read; a second call has no effect.

        Args:
            head: None if it was refused.
            raw_head: its bytes, if `head` has not all of its fields.
            read: returns its fields, if `head` has not all of them. They are read only if an observer asks for them.
        """
        if not self.has_begun:
            self.has_begun = True
            self._head = head
            self._raw_head = raw_head
            self._read = READ_RAW if raw_head else read
            if (tell := self._observers.request_begun) is not None:
                tell(self)

    def enter(self, part: int) -> None:
        """Enter another phase of the request; the time since the last call belongs to the phase before."""
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
        """Report the model of the request."""
        inference.watch = self
        self.model = inference.resolved.model.name
        self.version = inference.resolved.version

    def goes_on(self, *, is_waiting: bool) -> None:
        """Report whether the request waits for something other than its client; no effect once its answer exists."""
        part = WAITING if is_waiting else BODY
        if self._part not in {part, SENDING}:
            self.enter(part)

    def call_begun(self, request: InferenceRequest) -> None:
        """Report that the model is called next. Any thread may call this."""
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

    @property
    def tells_calls(self) -> bool:
        """Whether an observer is called before or after the call: both in the same thread, or in the same task."""
        return self._observers.call_begun is not None or self._observers.call_ended is not None

    def batched(self, place: BatchPlace | None) -> None:
        """Report the batch in which the model was called; the time before it was no time of the model."""
        self.batch = place
        if place is not None and self._part == MODEL:
            self.waiting_seconds += place.waited
            self.model_seconds -= place.waited

    def call_ended(self) -> None:
        """Report that the model has returned, or raised an exception."""
        observers = self._observers
        if self._part == MODEL:  # else the model was abandoned
            now = observers.clock()
            self.model_seconds += now - self._since
            self._since = now
            self._part = SENDING
        if observers.call_ended is not None:
            observers.call_ended(self)

    def answered(self, reply: Reply) -> None:
        """Report the reply, which is sent next."""
        self.status = reply.status
        if (refusal := reply.refusal) is not None:
            self.code = refusal.code
        if reply.cause is not None:
            self.cause = reply.cause
        if self._part != SENDING:
            self.enter(SENDING)

    def end(self, ending: Ending = COMPLETE, *, is_raised: bool = False) -> None:
        """Report that the request is over.

        Args:
            ending: whether the answer was sent.
            is_raised: whether the cause is raised further, so that others need its traceback.
        """
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
        if self.cause is not None and not is_raised:
            drop_tracebacks(self.cause)

    def break_off(self, error: BaseException | None) -> None:
        """Report that the request is over, and that its answer was not sent completely.

        Args:
            error: the reason; None if the server has given up.
        """
        # From the model, while its answer was made; the latter if its rows are not those that it has promised.
        if is_raised := isinstance(error, (RuntimeError, LocalProtocolError)):
            self.cause = error.__cause__ or error
        if isinstance(error, MessageError):
            self.code = error.code
        if self.status is not None:
            self.end(Ending.CUT, is_raised=is_raised)
        else:
            self.end(Ending.CLIENT_LEFT if isinstance(error, OSError) else Ending.ABANDONED, is_raised=is_raised)


Observe = Callable[[int], Observation]
"""Begins the observation of a request. The argument is the number of bytes before it on its connection."""


@contextmanager
def receiving(observation: Observation | None) -> Iterator[None]:
    """Count the time of a block as that of the body: a model that takes windows waits for one."""
    if observation is not None:
        observation.enter(BODY)
    try:
        yield
    finally:
        if observation is not None:
            observation.enter(MODEL)


def client_of(sock: socket.socket) -> str:
    """Return the address of the client of a connection, or its user for a Unix socket; empty if the client has left."""
    try:
        name = sock.getpeername()
        if isinstance(name, tuple):
            return format_address(*name[:2])
        if _PEER_CREDENTIALS is None:
            return "unix"
        # Who it was when it connected; names of clients of a Unix socket may be anything.
        process, user, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, _PEER_CREDENTIALS, 12))
    except OSError:
        return ""
    return f"unix:uid={user},pid={process}"


def format_address(host: str, port: object) -> str:
    """Return an address in the form that records use."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
