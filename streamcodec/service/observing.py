"""Observing: what a program is told of each request, for its logs, metrics and traces. Sans-IO, and without a clock.

An `Observer` is told of each request twice at least: when it has begun, and when it is over. Around the model's call it
is told, too. Each time it gets the same `RequestRecord`, which is filled meanwhile and whole at the end; so the record
is also what an observer knows a request again by.

Times are the server's. They follow each other without a gap: receiving (the head, the body, and reading them), waiting,
the model, and sending (with the encoding before it). Their sum is the time of the request.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Protocol

from streamcodec.engine.errors import ErrorCode
from streamcodec.http.messages import RequestHead
from streamcodec.service.models import InferenceRequest


class Ending(Enum):
    """How a request has ended."""

    COMPLETE = "complete"
    """Its whole answer was given to the system to be sent; whether it has arrived nobody knows."""
    CUT = "cut"
    """Its answer has begun and was not sent to its end: the client has left, or the model failed amid it."""
    CLIENT_LEFT = "client-left"
    """The connection broke before there was an answer."""
    ABANDONED = "abandoned"
    """The server has closed the connection before there was an answer: it was stopped, or needed the place."""


COMPLETE: Final = Ending.COMPLETE
"""To look a member up in its class takes as long as three calls."""


class RequestRecord:
    """One request. A server fills it, others read it; records are equal if they are the same.

    Attributes:
        client: address and port, as `127.0.0.1:40312` or `[::1]:40312`; empty where they are unknown.
        started: when the first bytes of the request were seen, in seconds since 1970.
        head: of the request; None where none could be read. Where `raw_head` is set, use `field` instead of its fields.
        raw_head: the head as it came, of a request whose head was known again: `head` is then that of an earlier
            request, whose fields differ where they mean nothing here, as `traceparent`. Else empty.
        model: name of the model that is asked to infer, or asked about (`GET /v2/models/M/ready`); None of other
            requests, and of requests for inference that are refused by their head.
        version: of the model; None also where a request about a model names none.
        request_id: as the JSON header gives it; None where it has none, or was not read.
        status: of the answer; None if there was none.
        code: why the request was refused; None if it was not, or for no fault of its own (status 503 and 504).
        cause: what the model has raised.
        ending: whether the answer was sent.
        bytes_in: bytes of the request, head included, that were read by the time of the end.
        bytes_out: bytes of the answer, head included, that were given to the system.
        body_seconds: receiving the head and the body, and reading them.
        waiting_seconds: for memory, and for a thread.
        model_seconds: in the model, without what it waits for windows of its inputs.
        send_seconds: encoding and sending, with rows that the model makes meanwhile.
        seconds: all of it.
    """

    __slots__ = (
        "__weakref__",
        "body_seconds",
        "bytes_in",
        "bytes_out",
        "cause",
        "client",
        "code",
        "ending",
        "head",
        "model",
        "model_seconds",
        "raw_head",
        "request_id",
        "seconds",
        "send_seconds",
        "started",
        "status",
        "version",
        "waiting_seconds",
    )

    def __init__(self, client: str, started: float) -> None:
        """Begin with a request of which nothing else is known."""
        self.client: str = client
        self.started: float = started
        self.head: RequestHead | None = None
        self.raw_head: bytes = b""
        self.model: str | None = None
        self.version: str | None = None
        self.request_id: str | None = None
        self.status: int | None = None
        self.code: ErrorCode | None = None
        self.cause: BaseException | None = None
        self.ending: Ending = COMPLETE
        self.bytes_in: int = 0
        self.bytes_out: int = 0
        self.body_seconds: float = 0.0
        self.waiting_seconds: float = 0.0
        self.model_seconds: float = 0.0
        self.send_seconds: float = 0.0
        self.seconds: float = 0.0

    @property
    def method(self) -> str | None:
        """Of the head."""
        return None if self.head is None else self.head.method

    @property
    def target(self) -> str | None:
        """Of the head: path and query, as they came."""
        return None if self.head is None else self.head.target

    def field(self, name: bytes) -> list[bytes]:
        """Return the values of a field of the head, of any name; names are compared in lower case."""
        if self.raw_head:
            pattern = rb"(?i)\n%b:[ \t]*([^\r\n]*?)[ \t]*(?=\r?\n)" % re.escape(name)
            return re.findall(pattern, self.raw_head)
        return [] if self.head is None else list(self.head.fields.values(name))


class Observer:
    """Is told what happens to requests: inherit from it, and leave out what is not wanted.

    All methods but those around a call are called on the event loop, where everybody waits for them: they should take
    microseconds. Of an observer that raises, the first exception is logged, and that is all that comes of it.
    """

    def request_begun(self, request: RequestRecord) -> None:
        """The head has been read: client, start and head are known. Of refused heads, this comes at their end."""

    def call_begun(self, request: RequestRecord) -> None:
        """The model is called next, in this thread, or in this task of the event loop; model and id are known."""

    def call_ended(self, request: RequestRecord) -> None:
        """The model has returned or raised; in the same thread or task.

        A call that was given up is told of when it returns, so perhaps after the end of its request.
        """

    def request_ended(self, request: RequestRecord) -> None:
        """The request is over, and the record is whole."""


class CallWatch(Protocol):
    """Is told of the call of one request's model: the server's part, which the calls are made with."""

    def call_begun(self, request: InferenceRequest) -> None:
        """The model is called next."""

    def call_ended(self) -> None:
        """It has returned, or raised."""
