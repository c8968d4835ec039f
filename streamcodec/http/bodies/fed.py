"""FedBody: a body that a framework has already taken out of HTTP's framing, as pieces or as a stream. Sans-IO.

It is a source of events, as a connection is. Its owner feeds pieces, or reads straight into the receiver's memory if
the framework has a `readinto`. The events are those of the receiver. A connection uses the same `Body`. So both count,
decompress and refuse in the same way, however the pieces are cut.

This room cannot see the bytes on the wire. It relies on the framework for the length of the body and for its end, and
compares both with the head.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamcodec.engine.compression.inflate import Inflater
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, Buffer, NeedData, NeedTurn
from streamcodec.http.bodies.body import Body, Receiver
from streamcodec.http.heads.messages import Event, Fields, RequestHead, ResponseHead
from streamcodec.http.heads.parsed import check_fields, check_hosts, invalid_http, request_head

_SCRATCH_BYTES: Final = 64 << 10
_NOTHING: Final = memoryview(b"")

_MAX_DIGITS: Final = 20
"""Of a length, as for a connection. `int` would raise for thousands of digits."""


class FedBody:
    """One body on its way from a framework to a receiver.

    Attributes:
        received: bytes that have arrived.
        has_work: whether the last event was `NEED_TURN`, so that the body does not wait for the peer.
        has_ended: whether nothing is left to read.
    """

    def __init__(
        self,
        head: RequestHead | ResponseHead,
        receiver: Receiver,
        limits: Limits = DEFAULT_LIMITS,
        *,
        is_decoded: bool = False,
        paced: bool = False,
    ) -> None:
        """Begin with the first byte.

        Args:
            head: says how long the body is, and how it is compressed.
            receiver: a `Decoder`, or a `Collector`.
            limits: `max_compression_ratio` applies.
            is_decoded: whether the framework has decompressed the body. The length on the wire then says nothing.
            paced: whether long work is left to `work()`, which `next_event` requests with `NEED_TURN`.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        encoding = head.fields.encoding_of(head.content_length)
        has_length = encoding is None or not is_decoded
        self._body = Body(
            receiver,
            content_length=head.content_length if has_length else None,
            chunks=None,
            inflater=None if encoding is None or is_decoded else Inflater(encoding, limits),
            paced=paced,
        )
        self._rest = _NOTHING
        self._scratch: memoryview | None = None
        self._is_direct = False
        self.has_ended: bool = self._body.is_complete
        self.has_work: bool = False
        self.received: int = 0

    @property
    def unsettled(self) -> int:
        """0: each byte is reported to the receiver at once."""
        return 0

    @property
    def inflates(self) -> bool:
        """Whether many compressed bytes wait: a thread can decompress them while the event loop serves others."""
        return self._body.inflates

    @property
    def remaining(self) -> int | None:
        """Bytes that are still to come; None if that is unknown."""
        return self._body.remaining

    def feed(self, chunk: Buffer) -> None:
        """Take the next piece, after `NEED_DATA`. The piece must not change until the next `NEED_DATA`.

        Bytes after the end of a body of known length do not belong to it, and are dropped.

        Raises:
            LocalProtocolError: the piece before still waits for its events to be taken.
        """
        if self._rest and self._body.is_waiting:
            msg = (
                "a piece is still waiting; take events with next_event() until it returns NEED_DATA, then feed the next"
            )
            raise LocalProtocolError(msg)
        self._rest = memoryview(chunk).cast("B")
        self.received += len(self._rest)
        self._advance()

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes, after `NEED_DATA`: the receiver's own if possible."""
        buffer = self._body.get_buffer()
        self._is_direct = buffer is not None
        if buffer is not None:
            return buffer
        if self._scratch is None:
            self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        return self._scratch[: self._body.remaining]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return `get_buffer()` alone."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written to the start of the last `get_buffer()`.

        Raises:
            LocalProtocolError: there was none.
        """
        if self._is_direct:
            self.received += nbytes
            self._body.buffer_updated(nbytes)
            self.has_ended = self._body.is_complete
        elif self._scratch is None:
            msg = "buffer_updated() must follow get_buffer()"
            raise LocalProtocolError(msg)
        else:
            self.feed(self._scratch[:nbytes])

    def receive_eof(self) -> None:
        """Report that the body or the connection has ended."""
        self.has_ended = True
        self._advance()

    def break_off(self) -> None:
        """Report that the connection has ended within the body, for a body whose length is unknown."""
        self.has_ended = True
        self._rest = _NOTHING
        if not self._body.is_complete:
            self._body.truncate()

    def work(self) -> bool:
        """Do a bounded piece of the work for which `next_event` has asked a turn; see `Body.work`."""
        return self._body.is_waiting and self._body.work()

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the receiver's next event.

        Raises:
            RemoteProtocolError: the body breaks a rule.
        """
        body = self._body
        while (event := body.next_event()) is NEED_DATA and body.wants_data and (self._rest or self.has_ended):
            self._advance()
        self.has_work = event is NEED_TURN
        return event

    def _advance(self) -> None:
        body = self._body
        while self._rest and body.wants_data:
            self._rest = self._rest[body.receive(self._rest) :]
        if self.has_ended and not self._rest and body.wants_data:
            body.receive_eof()
        self.has_ended = self.has_ended or body.is_complete


def fed_head(
    method: str,
    target: str,
    fields: Iterable[tuple[bytes, bytes]],
    *,
    http_version: str = "1.1",
    limits: Limits = DEFAULT_LIMITS,
) -> RequestHead:
    """Return the head of a request that a framework has parsed. Refuse everything that a connection would refuse.

    Args:
        method: as sent.
        target: still percent-encoded, without the path at which the service is mounted.
        fields: names in lower case.
        http_version: `1.0`, `1.1`, `2` or `3`. From 2 on, a body needs no field for its length.
        limits: `max_head_fields` and `max_field_bytes` apply.

    Raises:
        RemoteProtocolError: `ambiguous-framing`, `invalid-http`, or `unsupported-expectation`.
        LimitExceededError: more than `max_head_fields`, or than `max_field_bytes` in a field that means something;
            status 431.
    """
    found = Fields.of(tuple([(name, value.strip(b" \t")) for name, value in fields]))
    check_fields(found, limits)
    lengths = found.values(b"content-length")
    if lengths and (len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > _MAX_DIGITS):
        msg = "Content-Length is not one number"
        raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
    check_hosts(found.values(b"host"), is_required=http_version == "1.1")
    for value in found.values(b"transfer-encoding"):
        if value.lower() != b"chunked":
            msg = "chunked is the only supported Transfer-Encoding"
            raise invalid_http(msg, status_hint=501)
    return request_head(method, target, found, http_version, default=0 if http_version < "2" else None)
