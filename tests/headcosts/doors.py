"""Who reads a head: each door returns what reads it once, as far as the answer of a request, or the body of an answer.

Everything that looks at fields is switched on, and nothing is known from before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np

from streamcodec import NEED_DATA, Limits, MessageError, Tensor, encode_request
from streamcodec.client.exchange import ClientExchange as Call
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.relaying.requests import PlainAnswers, PlainRequests
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.guard.rules.fields import response_fields
from streamcodec.guard.rules.gate import Gate
from streamcodec.http import ClientConnection, RequestHead, ResponseHead, ServerConnection, fed_head
from streamcodec.runtime.observation import Observers
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import Service
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.models.demo import demo_models
from streamcodec.service.observing import Observer, RequestRecord
from streamcodec.service.request.exchange import Exchange

Read = Callable[[], object]
Door = Callable[[bytes], Read]

_MESSAGE: Final = encode_request([Tensor(name="x", array=np.zeros(1, np.float32))])
_MOST_STEPS: Final = 16


def _service() -> Service:
    return Service(
        demo_models(), compresses=True, classifies=True, cors_origins=["http://a"], allowed_hosts=["x", "[::1]"]
    )


_SERVICE: Final = _service()


class _Tracer(Observer):
    """Asks for fields, as tracing does."""

    def request_ended(self, request: RequestRecord) -> None:
        """Ask for them."""
        for name in (b"traceparent", b"tracestate"):
            request.field(name)


_OBSERVERS: Final = Observers([_Tracer()])


def server(head: bytes) -> Read:
    """The bundled server, with its short cuts."""
    admission = Admission(ServerOptions())
    session = Session(_SERVICE, RequestCache(_SERVICE), admission, None, _OBSERVERS.of("client"))

    def read() -> None:
        rest = memoryview(head)
        for _ in range(_MOST_STEPS):
            if (step := session.next_event()) is Step.SEND:
                session.outgoing = []
                session.has_sent()
                return
            if step is Step.CLOSE or not rest:
                return
            rest = rest[session.connection.feed(rest) :]

    return read


def endpoint(head: bytes) -> Read:
    """A server of a framework, which has parsed the head."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.decode("latin-1").split(" ", 2)
    fields = [(name.lower(), value.strip(b" ")) for name, _, value in (line.partition(b":") for line in lines)]

    def read() -> None:
        with suppress(MessageError):
            found = fed_head(method, target, fields)
            exchange = Exchange(_SERVICE, Reservation(Admission(ServerOptions()).budget))
            try:
                exchange.begin(found)
            except MessageError as error:
                exchange.fail(error)

    return read


def guard(head: bytes) -> Read:
    """The guard, which passes a request on."""
    gate = Gate("/prefix", allowed=["all"], hosts=["x"])
    requests = PlainRequests(GUARD_LIMITS, "h:1", gate)

    def read() -> None:
        connection = ServerConnection(GUARD_LIMITS, paced=True)
        connection.feed(head)
        with suppress(MessageError):
            requests.find(head, "192.0.2.1")
            found = connection.next_event()
            if isinstance(found, RequestHead):
                crossing = Crossing(found, gate.judge(found), GUARD_LIMITS)
                crossing.open(connection)
                fields = [
                    field
                    for field in crossing.fields("h:1", "192.0.2.1")
                    if field[0].lower() not in {b"content-length", b"transfer-encoding"}
                ]
                ClientConnection().send_request(found.method, crossing.permit.target, fields, [])

    return read


def client(head: bytes) -> Read:
    """A client that gets the answer to an inference, and looks at fields of uploads."""

    def read() -> None:
        connection, call = ClientConnection(), Call("POST", "/v2", [("Host", "x")], _MESSAGE, Limits())
        call.start(connection)
        connection.feed(head)
        with suppress(MessageError):
            event = connection.next_event()
            if isinstance(event, ResponseHead):
                call.receive(connection, event)
                for name in (b"location", b"upload-offset", b"upload-complete", b"retry-after"):
                    call.field(name)

    return read


def guard_answer(head: bytes) -> Read:
    """The guard, which passes an answer back."""

    def read() -> None:
        behind, before = ClientConnection(GUARD_LIMITS), ServerConnection()
        behind.send_request("POST", "/", [("Host", "x"), ("Content-Length", "0")])
        before.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        before.next_event()
        behind.feed(head)
        with suppress(MessageError):
            PlainAnswers(GUARD_LIMITS).find(head)
            found = behind.next_event()
            if found is not NEED_DATA and isinstance(found, ResponseHead):
                before.begin_response(found.status, response_fields(found, is_last=False))

    return read


REQUEST_DOORS: Final[dict[str, Door]] = {"server": server, "endpoint": endpoint, "guard": guard}
ANSWER_DOORS: Final[dict[str, Door]] = {"client": client, "guard, answers": guard_answer}
