"""KserveCall: one binary inference request on its way through KServe.

KServe's own endpoint handles the request, with its checks, hooks, metrics and errors. Two things are replaced. Where it
would read the body, it gets a stand-in. When it calls the model, the call receives the real body, tensor by tensor, in
bounded memory. So KServe finds an unknown model before a byte of the body has been read. When it encodes the response,
the call keeps our encoding of it. When it sends that answer, the call notes status and fields, and sends it itself
after KServe's application has returned.

The answer of KServe's endpoint is recognised by a field that only the data plane gives (`MARK`). All other answers,
such as errors, pass unchanged.

No object here may refer back to an object that refers to it: such a cycle would keep a request's memory until the
garbage collector runs.

KServe has its models, and our service needs none of them. So the service has one model that stands for all, and each
request is received as a request for that one. The model only keeps the request, for the call that has received it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import anyio
import numpy as np
from kserve import InferRequest, InferResponse

from streamcodec.asgi.app import AsgiPeer, Message, Receive, Scope, Send, head_of, length_of, send_at_once
from streamcodec.embedding.conversation import Conversation
from streamcodec.embedding.frontend import Frontend
from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.heads.messages import RequestHead
from streamcodec.kserve.messages import encode_answer, received_request
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Reply, Service
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.replies import lawful
from streamcodec.service.request.exchange import Exchange

_PATH: Final = "/v2/models/kserve/infer"

ROUTE: Final[dict[str, object]] = {"path": _PATH, "raw_path": _PATH.encode(), "root_path": "", "query_string": b""}
"""The members of an ASGI scope that ask for that model."""


class KserveIntake:
    """The shared part of all requests.

    Attributes:
        frontend: has the budget, the pool and the threads.
        options: how long requests may take.
    """

    def __init__(self, options: ServerOptions, limits: Limits, max_pool_bytes: int) -> None:
        """Prepare; for the arguments see `install`."""
        models = ModelRegistry.of([Model(name="kserve", predict=_keep, is_inline=True)])
        # KServe's models may do with a wish for classes whatever they like, so such a request is not refused.
        service = Service(models, limits=limits, max_pool_bytes=max_pool_bytes, allow_headerless=False, classifies=True)
        self.frontend: Frontend = Frontend(service, options)
        self.options = options


def kept() -> InferenceRequest | None:
    """Return the request that has just arrived in this task, once; None if it was refused."""
    request = _KEPT.get()
    _KEPT.set(None)
    return request


def _keep(request: InferenceRequest) -> dict[str, np.ndarray[Any, Any]]:
    """Keep a request. What it returns is not sent; it only has to be what was asked for."""
    _KEPT.set(request)
    return {output.name: _NOTHING for output in request.header.outputs or ()}


_KEPT: Final[ContextVar[InferenceRequest | None]] = ContextVar("_KEPT", default=None)
_NOTHING: Final = np.empty(0, np.uint8)


MARK: Final = "streamcodec-answer"
"""The field of an answer that the call sends in the place of KServe."""

CURRENT: Final[ContextVar[KserveCall | None]] = ContextVar("CURRENT", default=None)
"""The call of the current request; None for requests that are all KServe's."""

_STAND_IN: Final = b'""'
"""In the place of the body. KServe takes it as bytes under every media type: as JSON it is an empty text."""

_SMALL_BYTES: Final = 64 << 10
"""An answer up to this size is sent in one piece."""

_OURS: Final = frozenset({MARK, "content-type", "content-length", HEADER_LENGTH_FIELD.lower()})


class RefusedError(Exception):
    """The request is refused while it arrives; the call has the answer."""


class BrokenOffError(Exception):
    """The answer could not be sent to its end; the connection has to be closed."""


class KserveCall:
    """One request.

    Attributes:
        response: what the model has returned; None until then, and when it has been encoded.
    """

    _header: RequestHeader

    def __init__(self, intake: KserveIntake, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin before the body."""
        self._intake = intake
        self._scope = scope
        self._receive, self._send = receive, send
        self._peer = AsgiPeer(scope, receive, send)
        self._arrival: _Arrival | None = None
        self._is_taken = self._has_stand_in = False
        self._is_read = anyio.Event()
        self._message: EncodedMessage | None = None
        self._start: Message | None = None
        self.response: InferResponse | None = None

    @property
    def reservation(self) -> Reservation:
        """The memory of the request, in the budget of all."""
        if self._arrival is None:
            return Reservation(self._intake.frontend.budget)
        return self._arrival.exchange.reservation

    def take(self) -> bool:
        """Tell whether KServe decodes the body of this request now; only the first time."""
        is_first, self._is_taken = not self._is_taken, True
        return is_first

    async def arrive(self, model_name: str) -> InferRequest:
        """Receive the body.

        Raises:
            RefusedError: it is not a valid request, too large, or too slow.
        """
        await self._take_body({**self._scope, **ROUTE})
        self._is_read.set()
        request = kept()
        if request is None:
            raise RefusedError
        self._header = request.header
        return received_request(request, model_name)

    async def _take_body(self, scope: Scope) -> None:
        """Receive the body, and have the request kept if it is not refused."""
        frontend, opened = self._intake.frontend, None
        head: RequestHead | MessageError
        try:
            head = head_of(scope, frontend.service.limits)
        except MessageError as error:
            head = error
        else:
            opened, reply = await frontend.begin(head, self._peer, None)
            if reply is not None and reply.refusal is None:  # a refusal is made again, for the exchange that sends it
                return
        await self._conversation().run(head, opened)

    def _conversation(self) -> _Arrival:
        if self._arrival is None:
            self._arrival = _Arrival(self._intake, self._peer)
        return self._arrival

    def encode(self, response: InferResponse) -> None:
        """Encode what the model has returned.

        Raises:
            InvalidInput: see `encode_answer`.
            InferenceError: the same.
        """
        self.response = None
        self._message = encode_answer(response, self._header)

    async def receive(self) -> Message:
        """Return what KServe's application receives: the stand-in, and then that the client has left."""
        if not self._has_stand_in:
            self._has_stand_in = True
            return {"type": "http.request", "body": _STAND_IN, "more_body": False}
        await self._is_read.wait()
        return await self._receive()

    async def send(self, message: Message) -> None:
        """Take a part of the answer of KServe's application."""
        if message["type"] != "http.response.start":
            if self._start is None:
                await self._send(message)
            return
        if any(name.decode("latin-1") == MARK for name, _ in message["headers"]):
            self._start = message
            return
        if self._leaves_much():
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    async def answer(self) -> None:
        """Send the answer, if KServe's application has left it to the call.

        Raises:
            BrokenOffError: the client does not read it, or has left.
        """
        start, message = self._start, self._message
        self._start = self._message = None
        if start is None:
            return
        if message is not None:
            given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
            fields = [*(field for field in given if field[0] not in _OURS), *message.headers]
            reply = lawful(
                Reply(status=start["status"], headers=fields, buffers=message.parts, body_length=message.body_length)
            )
            if reply.body_length <= _SMALL_BYTES:
                await send_at_once(self._send, reply)
                return
            self._conversation().exchange.reply = reply
            del reply
        del message
        try:
            await self._conversation().send()
        except (OSError, MessageError) as error:
            raise BrokenOffError(str(error)) from None
        await self._peer.end()

    def end(self) -> None:
        """Give everything back."""
        if self._arrival is not None:
            self._arrival.end()
            self._arrival.exchange.end()
        self._message = self._start = self.response = None

    def _leaves_much(self) -> bool:
        """Whether KServe answers before the body, and more of that is to come than one drops to keep a connection."""
        if self._is_taken or not self._peer.can_close:
            return False
        return not 0 <= length_of(self._scope) <= self._intake.frontend.service.limits.max_drain_bytes


class _Arrival(Conversation):
    """The arrival of one request and the sending of its answer, with the patience and the memory of the service.

    Attributes:
        exchange: decides.
    """

    def __init__(self, intake: KserveIntake, peer: AsgiPeer) -> None:
        """Prepare."""
        frontend = intake.frontend
        self.exchange = Exchange(frontend.service, Reservation(frontend.budget))
        limits = frontend.service.limits
        super().__init__(self.exchange, peer, frontend.workers, intake.options, limits=limits, observation=None)

    async def _call(self, inference: Inference) -> Reply:
        """Have the request kept, which needs no thread."""
        return inference.run()
