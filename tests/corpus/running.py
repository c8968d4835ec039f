"""Running: a case of the corpus, brought to a decoder or a connection in every way there is.

The ways are those of the tests of the core and of HTTP: whole, byte by byte, every two pieces, both faces. They insist
that all come to the same; what that is, is held against the case by `expecting.py`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    Limits,
    MessageError,
    NonFiniteOutput,
    RequestHeader,
    ResponseHeader,
    Tensor,
    TensorReceived,
    TensorSpec,
    encode_request,
    request_decoder,
    response_decoder,
)
from streamcodec.client.exchange import ClientExchange
from streamcodec.engine.record import field_names
from streamcodec.http import ClientConnection, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.service import Inference, Listing, Reply, Service, error_reply
from streamcodec.testing import describe_array, describe_header, describe_spec, run_push
from streamcodec.transports.sockets.vectors import batches
from tests.corpus.notation import Bytes, read_bytes
from tests.corpus.reading import Case
from tests.corpus.serving import models
from tests.engine import triad as codec
from tests.http import driver as http


@dataclass(kw_only=True)
class Seen:
    """What a message came to."""

    header: RequestHeader | ResponseHeader | None = None
    tensors: list[tuple[TensorSpec, np.ndarray[Any, Any]]] = field(default_factory=list)
    error: MessageError | None = None
    reply: Reply | None = None
    """Of a server."""
    error_mark: int | None = None
    """Where the case says that the error must show."""

    def take(self, event: object) -> None:
        """Note an event."""
        match event:
            case HeaderReceived(header=header):
                self.header = header
            case TensorReceived(spec=spec, array=array):
                self.tensors.append((spec, array))
            case _:
                pass


def run(case: Case, *, is_cut: bool = True) -> Seen:
    """Bring the message of a case to its receiver; return what all ways have come to.

    Options that no receiver knows fail the case.

    Args:
        case: whose message is sent.
        is_cut: in every way there is; else whole, where something else than the cuts matters.
    """
    unknown = set(case.options) - _OPTIONS[case.kind]
    assert not unknown, f"{case.file}:{case.line}: what is {unknown}?"
    return _RUNNERS[case.kind](case, is_cut)


def declared_lengths(case: Case) -> tuple[int | None, int | None]:
    """Return the lengths of header and body that a case for a decoder alone declares."""
    message = read_bytes(case.message)
    header_length = _length(case.options.get("header"), message.header_end)
    return header_length, _length(case.options.get("body"), len(message.data))


def decoder_for(case: Case, header_length: int | None, body_length: int | None) -> Any:  # noqa: ANN401 - of either kind
    """Make the decoder of a case for a decoder alone, with these lengths."""
    make = request_decoder if case.kind == "request" else response_decoder
    return make(
        header_length=header_length,
        body_length=body_length,
        allow_headerless="headerless" in case.options,
        limits=_limits(case),
    )


def _run_codec(case: Case, is_cut: bool) -> Seen:
    message = read_bytes(case.message)
    decoder = partial(decoder_for, case, *declared_lengths(case))
    outcome = codec.decode(decoder, message.data) if is_cut else run_push(decoder, [message.data])
    assert (outcome.error is None) is (outcome.end is not None)
    tensors = [(event.spec, event.array) for event in outcome.tensors]
    return Seen(header=outcome.header, tensors=tensors, error=outcome.error, error_mark=message.error)


def _length(option: str | None, default: int | None) -> int | None:
    if option is None:
        return default
    return None if option == "none" else int(option)


def service_for(case: Case, *, is_inline: bool = False) -> Service:
    """Return a service with the options of a case; its models say of themselves that they are quick, or not."""
    return Service(
        models(is_inline=is_inline),
        limits=_limits(case),
        nonfinite=NonFiniteOutput(case.options.get("nonfinite", NonFiniteOutput.LITERAL)),
        allow_headerless="no-headerless" not in case.options,
        cors_origins=[case.options["cors"]] if "cors" in case.options else [],
        compresses="compresses" in case.options,
        classifies="classifies" in case.options,
    )


def request_of(case: Case) -> bytes:
    """Return the bytes of a request, a bare body with a head of its own."""
    if case.kind == "http-request":
        head, body = _parts(case)
        return head + _sent(case, body.data)
    message = read_bytes(case.message)
    length = _length(case.options.get("header"), message.header_end)
    field = "" if length is None else f"Inference-Header-Content-Length: {length}\r\n"
    start = f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\n{field}Content-Length: {len(message.data)}\r\n\r\n"
    return start.encode() + message.data


def http_parts(case: Case) -> tuple[bytes, bytes]:
    """Return head and body of an HTTP message, the body as it goes over the wire."""
    head, body = _parts(case)
    return head, _sent(case, body.data)


def deliver(case: Case, message: bytes) -> Seen:
    """Bring other bytes, whole, to the receiver of an HTTP case."""
    driver = _Server(service_for(case)) if case.kind == "http-request" else _Client(_limits(case))
    _deliver_whole(driver, message)
    return driver.seen


def reply_of(service: Service, message: bytes) -> Reply | None:
    """Return what a service answers to the first request of a connection; None if it answers nothing."""
    driver = _Server(service)
    _deliver_whole(driver, message)
    return driver.seen.reply


def _run_server(case: Case, is_cut: bool) -> Seen:
    service = service_for(case)
    return _run_http(case, lambda: _Server(service), is_cut)


def _run_client(case: Case, is_cut: bool) -> Seen:
    limits = _limits(case)
    return _run_http(case, lambda: _Client(limits), is_cut)


def _run_http(case: Case, start: Callable[[], _Connected], is_cut: bool) -> Seen:
    head, body = _parts(case)
    is_sent_alike = b"continue" not in head.lower()  # who has begun with the body is not told to go on
    message = head + _sent(case, body.data)
    driver = http.triad(start, message, is_sent_alike=is_sent_alike) if is_cut else _deliver_whole(start(), message)
    assert isinstance(driver, _Connected)
    assert driver.is_over
    driver.seen.error_mark = body.error
    return driver.seen


def _deliver_whole(driver: http.Driver, message: bytes) -> http.Driver:
    driver.push(message)
    driver.end()
    return driver


def _parts(case: Case) -> tuple[bytes, Bytes]:
    """Return head and body; lengths are put into the head."""
    text, _, rest = case.message.partition("\n\n")
    body = read_bytes(rest)
    text = text.replace("{body}", str(len(_sent(case, body.data)))).replace("{header}", str(body.header_end))
    return read_bytes(text.replace("\n", "\r\n") + "\r\n\r\n").data, body


def _sent(case: Case, body: bytes) -> bytes:
    """Return a body as it goes over the wire."""
    for name, compress in _ENCODINGS.items():
        if name in case.options:
            body = compress(body)
    if "chunked" not in case.options:
        return body
    size = int(case.options["chunked"])
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


_ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": _gzip,
    "gzip-members": lambda data: _gzip(data[:20]) + _gzip(data[20:]),
    "deflate": zlib.compress,
    "raw-deflate": _raw_deflate,
}


class _Connected(http.Driver):
    """A connection and whoever owns it."""

    def __init__(self, connection: ServerConnection | ClientConnection) -> None:
        super().__init__(connection)
        self.seen = Seen()

    def pump(self) -> None:
        """Take events until there are none."""
        while not self.is_over:
            try:
                event = self.connection.next_event()
                if event is NEED_DATA:
                    return
                self.seen.take(event)
                self._note_line(event)
                self._own(event)
            except MessageError as error:
                self.log.append(http.error_entry(error))
                self._fail(error)

    def _note_line(self, event: object) -> None:
        match event:
            case HeaderReceived(header=header):
                self.log.append(("header", describe_header(header)))
            case TensorReceived(spec=spec, array=array):
                self.log.append(("tensor", describe_spec(spec), describe_array(array)))
            case _:
                self.log.append((event,))

    def _own(self, event: object) -> None:
        raise NotImplementedError

    def _fail(self, error: MessageError) -> None:
        raise NotImplementedError


class _Server(_Connected):
    """A server, without sockets and threads."""

    def __init__(self, service: Service) -> None:
        self._connection = ServerConnection(service.limits)
        super().__init__(self._connection)
        self._service = service
        self._head: RequestHead | None = None
        self._request: Inference | Listing | None = None

    def _own(self, event: Any) -> None:  # noqa: ANN401 - any event
        match event:
            case RequestHead():
                self._head = event
                outcome = self._service.begin(event)
                if isinstance(outcome, Reply):
                    self._reply(outcome)
                    return
                self._request = outcome
                self.sent += self._connection.receive_body(outcome.decoder)
            case ConnectionClosed():
                self.is_over = True
            case _:
                assert self._request is not None
                self._request.receive(event)
                if isinstance(event, EndOfMessage):
                    self._reply(self._request.run())

    def _fail(self, error: MessageError) -> None:
        self._reply(error_reply(error))

    def _reply(self, reply: Reply) -> None:
        reply = self._service.finish(reply, self._head)
        parts = self._connection.send_response(reply.status, reply.headers, reply.buffers)
        self.sent += b"".join(chain.from_iterable(batches(parts)))
        self._connection.end_response()
        if self.seen.reply is None:  # what follows is about bytes behind the message
            self.seen.reply, self.seen.error = reply, reply.refusal


_QUESTION: Final = encode_request([Tensor(name="x", array=np.ones(1, np.int8))])


class _Client(_Connected):
    """A client that has sent an inference request."""

    def __init__(self, limits: Limits) -> None:
        self._connection = ClientConnection(limits)
        super().__init__(self._connection)
        self._exchange = ClientExchange("POST", "/v2/models/m/infer", [("Host", "x")], _QUESTION, limits)
        self._exchange.start(self._connection)

    def _own(self, event: Any) -> None:  # noqa: ANN401 - any event
        self._exchange.receive(self._connection, event)
        if self._exchange.has_ended:
            self.is_over = True
            self._exchange.check_status()
            self._exchange.infer_result()

    def _fail(self, error: MessageError) -> None:
        self.is_over = True
        self.seen.error = error


_LIMITS: Final = set(field_names(Limits))
_OF_CODEC: Final = _LIMITS | {"header", "body", "headerless"}
_OF_HTTP: Final = _LIMITS | set(_ENCODINGS) | {"chunked"}
_OF_SERVICE: Final = {"no-headerless", "nonfinite", "cors", "compresses", "classifies"}
_OPTIONS: Final = {
    "request": _OF_CODEC,
    "response": _OF_CODEC,
    "http-request": _OF_HTTP | _OF_SERVICE,
    "http-response": _OF_HTTP,
}
"""What may stand behind each kind of message."""


def _limits(case: Case) -> Limits:
    return Limits(**{name: int(value) for name, value in case.options.items() if name in _LIMITS})


_RUNNERS: Final[dict[str, Callable[[Case, bool], Seen]]] = {
    "request": _run_codec,
    "response": _run_codec,
    "http-request": _run_server,
    "http-response": _run_client,
}
