"""Observing: what a program learns about each request, for its logs, metrics and traces. Sans-IO, and without a clock.

An `Observer` is called at least twice for each request: when it has begun, and when it is over. It is also called
before and after the call of the model. Each time it gets the same `RequestRecord`. The record is filled step by step,
and is complete at the end. So an observer can also use the record to identify a request.

The server measures the times. They follow each other without a gap: receiving (the head, the body, and parsing them),
waiting, the model, and sending (including encoding). Their sum is the time of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from streamcodec.engine.errors import ErrorCode
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.service.models.batching import BatchPlace
from streamcodec.service.models.model import InferenceRequest


class Ending(Enum):
    """How a request has ended."""

    COMPLETE = "complete"
    """The whole answer was given to the operating system; whether it has arrived is unknown."""
    CUT = "cut"
    """The answer has begun but was not completed: the client has left, or the model failed in the middle."""
    CLIENT_LEFT = "client-left"
    """The connection broke before there was an answer."""
    ABANDONED = "abandoned"
    """The server has closed the connection before there was an answer: it was stopped, or needed the place."""


COMPLETE: Final = Ending.COMPLETE
"""A module constant, because looking a member up in its class takes as long as three calls."""


ReadFields = Callable[[bytes], Fields]
"""Reads the fields of a head that was recognized, when somebody asks for them; it gets the `raw_head`."""

READ_RAW: Final[ReadFields] = Fields.of_accepted


_BRINGING: Final = frozenset({"POST", "PATCH"})
"""Methods of requests with tensors."""

_KEPT: Final = frozenset({201, 204})
"""Statuses of messages after which an upload waits for more. An answer of a model has none of them."""


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class RequestRecord:
    """One request. A server fills the record, others read it. Two records are equal only if they are the same object.

    Attributes:
        client: address and port, as `127.0.0.1:40312` or `[::1]:40312`; empty if unknown. For a Unix socket of the
            bundled server, user and process, as `unix:uid=1000,pid=4711`.
        started: when the first bytes of the request were seen, in seconds since 1970.
        raw_head: the head as received, if the server has recognized it by what means something to it, and has not read
            the rest; else empty. `head` and `field` read it when they are asked.
        model: the model of the inference, or of a request about a model (`GET /v2/models/M/ready`); None for other
            requests, and for inference requests that are refused by their head.
        version: of the model; None also if a request about a model names none.
        request_id: from the JSON header; None if it has none, or was not read.
        status: of the answer; None if there was none.
        code: why the request was refused; None if it was not refused, or was not to blame (status 503 and 504).
        cause: the exception of the model. Its traceback holds the arrays of the request, so the server drops it after
            `Observer.request_ended`.
        ending: whether the answer was sent.
        bytes_in: bytes of the request, head included, that had been read at the end.
        bytes_out: bytes of the answer, head included, that were given to the operating system.
        body_seconds: receiving and parsing the head and the body.
        waiting_seconds: for memory, and for a thread.
        model_seconds: in the model, without its waiting for windows of its inputs.
        send_seconds: encoding and sending, including rows that the model makes meanwhile.
        seconds: the whole request.
        batch: the batch that the request was a part of; None without one.
    """

    client: str
    started: float
    _head: RequestHead | None = field(default=None, init=False)
    _read: ReadFields | None = field(default=None, init=False)
    _raw_head: bytes = field(default=b"", init=False)
    model: str | None = field(default=None, init=False)
    version: str | None = field(default=None, init=False)
    request_id: str | None = field(default=None, init=False)
    status: int | None = field(default=None, init=False)
    code: ErrorCode | None = field(default=None, init=False)
    cause: BaseException | None = field(default=None, init=False)
    ending: Ending = field(default=COMPLETE, init=False)
    bytes_in: int = field(default=0, init=False)
    bytes_out: int = field(default=0, init=False)
    body_seconds: float = field(default=0.0, init=False)
    waiting_seconds: float = field(default=0.0, init=False)
    model_seconds: float = field(default=0.0, init=False)
    send_seconds: float = field(default=0.0, init=False)
    seconds: float = field(default=0.0, init=False)
    batch: BatchPlace | None = field(default=None, init=False)

    @property
    def head(self) -> RequestHead | None:
        """The head of the request; None if it could not be read."""
        read, self._read = self._read, None
        if read is not None and (head := self._head) is not None:
            fields, length = read(self._raw_head), head.content_length
            self._head = RequestHead(method=head.method, target=head.target, fields=fields, content_length=length)
        return self._head

    @head.setter
    def head(self, head: RequestHead | None) -> None:
        self._head = head
        self._read = None

    @property
    def raw_head(self) -> bytes:
        """The head as received, if it was recognized; else empty."""
        return self._raw_head

    @raw_head.setter
    def raw_head(self, raw_head: bytes) -> None:
        self._raw_head = raw_head
        self._read = READ_RAW if raw_head else None

    @property
    def is_inference(self) -> bool:
        """Whether it asks a model for an inference: by itself, or with the last message of an upload."""
        if self.model is None or self.version is None or self.status in _KEPT:
            return False
        return self.method in _BRINGING

    @property
    def method(self) -> str | None:
        """The method in the head. It takes less than to ask `head` for it."""
        return None if self._head is None else self._head.method

    @property
    def target(self) -> str | None:
        """The request target in the head: path and query, as received. It takes less than to ask `head` for it."""
        return None if self._head is None else self._head.target

    def field(self, name: bytes) -> list[bytes]:
        """Return all values of a field of the head; `name` is in lower case."""
        if self._read is not None and self._raw_head:  # to look for one takes less than reading all
            lines = (line.partition(b":") for line in self._raw_head.split(b"\r\n")[1:])
            return [value.strip(b" \t") for key, _, value in lines if key.lower() == name]
        return [] if (head := self.head) is None else head.fields.values(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """What a server has to do and what it holds at one moment, for gauges."""

    reserved_bytes: int
    """Memory granted to requests."""
    max_memory_bytes: int
    """The most that may be granted, see `ServerOptions.max_memory_bytes`."""
    waiting_for_memory: int
    """Requests that wait for memory."""
    idle_pool_bytes: int
    """Blocks of the pool that no array uses; 0 without a pool."""
    reused_pool_bytes: int
    """Blocks of the pool that are in use again; 0 without a pool."""
    busy_threads: int
    """Worker threads in which models run, also given up ones."""
    waiting_for_thread: int
    """Requests that wait for such a thread."""
    abandoned_calls: int
    """Calls of models that were given up since the start."""
    unfinished_calls: int
    """How many of those still run."""
    connections: int | None = None
    """Open connections; None if a framework has them."""
    requests_in_progress: int | None = None
    """Connections with a request in progress; None if a framework has them."""


class Observer:
    """Receives the events of requests. Inherit from it, and override only the methods that you need.

    All methods except those around a call run on the event loop, which waits for them: they should take microseconds.
    If an observer raises, the first exception is logged, and there is no other effect.
    """

    def server_begun(self, load: Callable[[], ServerLoad]) -> None:
        """A server will call this observer; `load` tells its load at any time, and any thread may call it."""

    def request_begun(self, request: RequestRecord) -> None:
        """The head has been read: client, start and head are known. For a refused head, this is called at the end."""

    def call_begun(self, request: RequestRecord) -> None:
        """The model is called next, in this thread or in this task of the event loop; model and id are known."""

    def call_ended(self, request: RequestRecord) -> None:
        """The model has returned or raised, in the same thread or task.

        If the call was given up, this comes when the call returns, perhaps after the end of the request.
        """

    def request_ended(self, request: RequestRecord) -> None:
        """The request is over, and the record is complete."""


class CallWatch(Protocol):
    """Receives the events around the call of one request's model. The server implements it."""

    request_id: str | None

    def call_begun(self, request: InferenceRequest) -> None:
        """The model is called next."""

    def call_ended(self) -> None:
        """The model has returned or raised."""
