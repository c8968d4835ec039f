"""The decoder: the engine that turns the bytes of one message into events and filled arrays.

Theory. At any moment the decoder has exactly one *target*: a writable view of the memory that the next bytes of the
message belong to. While the JSON header is read, that is scratch memory of exactly the declared length; after that it
is the memory of the tensor being filled. The target never reaches past the message, so reading too far is impossible.

There are two faces. The *pull face* hands the target out: `get_buffer()`, read into it, `buffer_updated(nbytes)`. The
*push face*, `feed(chunk)`, is written on the pull face: it copies the chunk into the same targets. One path, hence one
behaviour: how the bytes were cut cannot change the events, the arrays, or the error and its offset.

What a message is stands in `machine.py`, as a generator that yields targets; this room turns the generator inside out,
so that the caller keeps control.

This room knows no transport, no clock and no HTTP; the two lengths that HTTP declares are arguments.

States::

              target filled
             +-----------+
             v           |
    start -> needs bytes + -> complete
                  |
                  +-> failed (a rule was broken, or a callback raised): stays failed
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Generic

from streamcodec.core.errors import LocalProtocolError, RemoteProtocolError
from streamcodec.core.events import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    HeaderT,
    NeedData,
    TensorReceived,
)
from streamcodec.core.header import parse_request_header, parse_response_header, raw_request_header
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.machine import Machine
from streamcodec.core.model import RequestHeader, ResponseHeader, TensorSpec
from streamcodec.core.placement import Place, new_array

Buffer = bytes | bytearray | memoryview
"""What the push face takes."""


class Decoder(Generic[HeaderT]):
    """Decodes one message. Made by `request_decoder` and `response_decoder`."""

    def __init__(self, machine: Machine[HeaderT]) -> None:
        """Run the machine up to its first target."""
        self._machine = machine
        self._steps = machine.run()
        self._target: memoryview | None = None
        self._filled = 0
        self._failure: Exception | None = None
        self._is_complete = False
        self._resume(None)

    # The pull face

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the memory that the next bytes of the message belong to.

        Args:
            sizehint: ignored; present so that the method is `asyncio.BufferedProtocol`'s.

        Returns:
            A writable byte view, never empty, that ends where the memory or the message ends. It stays valid until
            `buffer_updated` is called.

        Raises:
            LocalProtocolError: the message is complete, or the call comes from one of the decoder's own callbacks.
            RemoteProtocolError: the message is refused; the same error as from `next_event`.
        """
        target = self._current_target()
        return target[self._filled :] if self._filled else target

    def buffer_updated(self, nbytes: int) -> None:
        """Tell that bytes were written to the start of the last `get_buffer()`.

        Args:
            nbytes: how many; at least 1.

        Raises:
            LocalProtocolError: fewer than 1, more than the buffer holds, or no buffer was to be had.
            RemoteProtocolError: the message has been refused before.
        """
        target = self._current_target()
        filled = self._filled + nbytes
        if nbytes < 1 or filled > len(target):
            msg = f"{nbytes} bytes cannot have been written to a buffer of {len(target) - self._filled}"
            raise LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))
        self._filled = filled
        if filled == len(target):
            self._resume(filled)

    def next_event(self) -> HeaderReceived[HeaderT] | TensorReceived | EndOfMessage | NeedData:
        """Return the next event, or `NEED_DATA` if it needs more bytes.

        Raises:
            RemoteProtocolError: the message breaks a rule. Raised after the events before it, again at every call.
            LocalProtocolError: the last event has been returned already, or a callback or placement misbehaved.
        """
        if self._machine.events:
            return self._machine.events.popleft()
        if self._target is not None:
            return NEED_DATA
        raise self._no_target()

    # The push face

    def feed(self, chunk: Buffer) -> int:
        """Copy the chunk's bytes to where they belong; no reference to the chunk is kept.

        Args:
            chunk: the next bytes; any length.

        Returns:
            How many bytes belonged to this message. Fewer than the chunk has when the message ends within it, or when
            it is refused, which `next_event` then reports.

        Raises:
            LocalProtocolError: the call comes from one of the decoder's own callbacks.
            RemoteProtocolError: the message has been refused before.
        """
        if self._is_complete:
            return 0
        self._current_target()
        taken = 0
        # Released here, since the frame itself may live on in the traceback of an error.
        with memoryview(chunk) as view, view.cast("B") as source:
            while taken < len(source) and self._target is not None:
                target = self.get_buffer()
                count = min(len(target), len(source) - taken)
                target[:count] = source[taken : taken + count]
                self.buffer_updated(count)
                taken += count
        return taken

    # Both faces

    def receive_eof(self) -> None:
        """Tell that no more bytes will come; without effect on a message that is complete or refused."""
        if self._target is not None:
            self._resume(self._filled)

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill: the message is neither complete nor refused."""
        return self._target is not None

    @property
    def is_complete(self) -> bool:
        """Whether the whole message has been received and accepted."""
        return self._is_complete

    @property
    def offset(self) -> int:
        """Bytes of the message taken so far."""
        return self._machine.offset + self._filled

    def pending_work(self, nbytes: int) -> int:
        """Return how many bytes will be looked at one by one when so many more have come.

        Numbers pass untouched, but when its last byte is there a JSON header is parsed, BYTES are cut into elements,
        and BOOL is checked. An event loop may prefer to have that done by a thread if it is much.
        """
        is_full = self._target is not None and self._filled + nbytes >= len(self._target)
        return self._machine.work if is_full else 0

    def _current_target(self) -> memoryview:
        if self._target is None:
            raise self._no_target()
        return self._target

    def _no_target(self) -> Exception:
        if isinstance(self._failure, RemoteProtocolError):
            return copy(self._failure)  # raising the one we keep would tie the caller's frames to it
        if self._failure is not None:
            return self._failure
        if self._is_complete:
            return LocalProtocolError("the message is complete; make a new decoder for the next one")
        return LocalProtocolError("a decoder cannot be used from its own callbacks, or after one was interrupted")

    def _resume(self, filled: int | None) -> None:
        """Run the machine until it wants the next target filled; None starts it."""
        self._target = None
        self._filled = 0
        try:
            self._target = next(self._steps) if filled is None else self._steps.send(filled)
        except StopIteration:
            self._is_complete = True
        except RemoteProtocolError as failure:
            self._failure = copy(failure)  # without its traceback, whose frames hold the message's memory
        except Exception as failure:  # noqa: BLE001 - a user's callback may raise anything: kept, and reported in order
            self._failure = failure


def request_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    allow_headerless: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[RequestHeader]:
    """Make a decoder for one inference request.

    Args:
        header_length: the value of `Inference-Header-Content-Length`, see `parse_header_length`; None if there is
            none, so that the whole body is JSON. For 0, a raw binary request, see `raw_request_decoder`.
        body_length: bytes of the body where they are known beforehand (`Content-Length`), else None. When given, a
            message that does not fill it exactly is refused before any tensor byte is taken.
        allow_headerless: whether binary tensors may follow a header whose length is not declared. The end of its JSON
            object is then looked for, and what follows must be exactly the tensors. Some clients send this form; it
            is never written.
        limits: caps on everything that is read.
        check: called with the valid header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; says whose memory its bytes go to.

    Example:
        >>> body = b'{"inputs":[{"name":"x","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}}]}'
        >>> decoder = request_decoder(header_length=len(body), body_length=len(body) + 4)
        >>> decoder.feed(body + bytes([1, 0, 2, 0]))
        96
        >>> [type(decoder.next_event()).__name__ for _ in range(3)]
        ['HeaderReceived', 'TensorReceived', 'EndOfMessage']
    """
    machine = Machine(
        parse_request_header,
        header_length=header_length,
        body_length=body_length,
        allow_headerless=allow_headerless,
        limits=limits,
        check=check,
        place=place,
    )
    return Decoder(machine)


def raw_request_decoder(
    spec: TensorSpec,
    *,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[RequestHeader]:
    """Make a decoder for a raw binary request, whose body is one tensor and nothing else.

    Specification, "Raw Binary Request": `Inference-Header-Content-Length` is 0, and what the header would say is
    deduced from the model's metadata and the size of the body.

    Args:
        spec: the tensor, deduced; `nbytes` is the length of the body and `offset` is 0.
        limits: `max_tensor_bytes` applies.
        check: as for `request_decoder`.
        place: as for `request_decoder`.

    Raises:
        LocalProtocolError: `nbytes` is not what datatype and shape need.
    """
    machine = Machine(
        parse_request_header,
        header_length=0,
        body_length=spec.nbytes,
        limits=limits,
        check=check,
        place=place,
        given=raw_request_header(spec),
    )
    return Decoder(machine)


def response_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    allow_headerless: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[ResponseHeader], None] | None = None,
    place: Place = new_array,
) -> Decoder[ResponseHeader]:
    """Make a decoder for one inference response; the arguments are those of `request_decoder`."""
    machine = Machine(
        parse_response_header,
        header_length=header_length,
        body_length=body_length,
        allow_headerless=allow_headerless,
        limits=limits,
        check=check,
        place=place,
    )
    return Decoder(machine)
