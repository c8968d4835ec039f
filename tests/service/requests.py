"""Requests: one request against a service, without sockets: head in, body fed, reply out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EncodedMessage,
    EndOfMessage,
    RemoteProtocolError,
    Tensor,
    TensorReceived,
    encode_request,
    response_decoder,
)
from streamcodec.http import RequestHead
from streamcodec.http.heads.messages import Fields
from streamcodec.service import (
    Inference,
    Listing,
    Model,
    ModelRegistry,
    Predict,
    Reply,
    Service,
    TensorMetadata,
    error_reply,
)
from streamcodec.transports.sockets.vectors import batches

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply, taken apart."""

    status: int
    fields: Mapping[str, str]
    body: bytes
    cause: BaseException | None
    call: str = ""

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.body[: int(self.fields.get("Inference-Header-Content-Length", len(self.body)))])

    @property
    def error(self) -> str:
        """The error's text; an error has one member and is JSON."""
        assert self.fields["Content-Type"] == "application/json"
        assert list(self.document) == ["error"]
        return str(self.document["error"])

    @property
    def outputs(self) -> dict[str, Array]:
        length = self.fields.get("Inference-Header-Content-Length")
        decoder = response_decoder(header_length=length and int(length), body_length=len(self.body))  # type: ignore[arg-type] # None stays None
        assert decoder.feed(self.body) == len(self.body)
        outputs = {}
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            if isinstance(event, TensorReceived):
                outputs[event.spec.name] = event.array
        return outputs

    @property
    def binary(self) -> set[str]:
        """Names of the outputs that were answered in binary."""
        return {output["name"] for output in self.document["outputs"] if "data" not in output}


def head(
    target: str, method: str = "GET", fields: Iterable[tuple[str, str]] = (), length: int | None = 0
) -> RequestHead:
    """Make a head as a connection would report it."""
    items = tuple((name.lower().encode(), value.encode()) for name, value in fields)
    return RequestHead(method=method, target=target, fields=Fields(items), content_length=length)


def get(service: Service, target: str, method: str = "GET", fields: Iterable[tuple[str, str]] = ()) -> Answer:
    """Ask for something that needs no body."""
    request = head(target, method, fields)
    reply = service.begin(request)
    assert isinstance(reply, Reply)
    return answer(service.finish(reply, request))


def infer(service: Service, target: str, message: EncodedMessage, fields: Iterable[tuple[str, str]] = ()) -> Answer:
    """Send an inference request in full."""
    return post(service, target, b"".join(cast("tuple[bytes, ...]", message.buffers)), [*message.headers, *fields])


def post(service: Service, target: str, body: bytes, fields: Iterable[tuple[str, str]] = ()) -> Answer:
    """Send a body in full, as a server would; a refusal on the way is the answer."""
    request = head(target, "POST", fields, len(body))
    outcome = service.begin(request)
    try:
        reply = outcome if isinstance(outcome, Reply) else run(outcome, body)
    except RemoteProtocolError as error:
        reply = error_reply(error)
    return answer(service.finish(reply, request))


def run(request: Inference | Listing, body: bytes) -> Reply:
    """Let the body in, in pieces, and have it answered."""
    decoder = request.decoder
    view = memoryview(body)
    while True:
        event = decoder.next_event()
        if event is NEED_DATA and not view:
            decoder.receive_eof()
            continue
        if event is NEED_DATA:
            taken = decoder.feed(view[:100])
            view = view[taken:]
            continue
        assert event is not NEED_TURN
        request.receive(event)
        if isinstance(event, EndOfMessage):
            return request.run()


def raw(service: Service, target: str, body: bytes) -> Answer:
    """Send a raw binary request."""
    fields = [("Inference-Header-Content-Length", "0"), ("Content-Length", str(len(body)))]
    return post(service, target, body, fields)


def answer(reply: Reply) -> Answer:
    """Take a reply apart."""
    return Answer(
        status=reply.status,
        fields=dict(reply.headers),
        body=b"".join(chain.from_iterable(batches(reply.buffers))),
        cause=reply.cause,
        call=reply.call,
    )


def service_of(
    predict: Predict,
    *,
    inputs: tuple[TensorMetadata, ...] | None = None,
    outputs: tuple[TensorMetadata, ...] | None = None,
    is_batching: bool = False,
    labels: Mapping[str, Sequence[str]] | None = None,
    **options: Any,  # noqa: ANN401 - those of Service
) -> Service:
    """Serve one model `m`."""
    model = Model(name="m", predict=predict, inputs=inputs, outputs=outputs, is_batching=is_batching, labels=labels)
    return Service(ModelRegistry.of([model]), **options)


def ask(
    service: Service,
    x: Array | None = None,
    fields: Iterable[tuple[str, str]] = (),
    **options: Any,  # noqa: ANN401 - those of encode_request
) -> Answer:
    """Send `x` to the model `m`."""
    array = np.ones(2, np.float32) if x is None else x
    return infer(service, "/v2/models/m/infer", encode_request([Tensor(name="x", array=array)], **options), fields)
