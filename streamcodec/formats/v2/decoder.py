"""The decoders of the V2 protocol: the engine, with the layout of requests and of responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import LocalProtocolError, kind_of
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits, check_element_bytes, check_tensor_bytes, checked_limits
from streamcodec.engine.machine import Machine
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.engine.reader import Reader, Reading
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import (
    long_request_header,
    long_response_header,
    parse_request_header,
    parse_response_header,
    raw_request_header,
)
from streamcodec.formats.v2.layout import Layout, StreamHeader
from streamcodec.formats.v2.model import MessageT, RequestHeader, ResponseHeader

Parse = Callable[[bytes | memoryview, Limits], MessageT]


def request_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    allow_headerless: bool = False,
    limits: Limits | None = None,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
    headers: HeaderCache[RequestHeader] | None = None,
    pause_after_header: bool = False,
    paced: bool = False,
    null_is_nan: bool = False,
) -> Decoder[RequestHeader]:
    """Make a decoder for one inference request.

    Args:
        header_length: the value of `Inference-Header-Content-Length`, see `parse_header_length`. None if there is no
            such field: then the whole body is JSON. For 0, a raw binary request, see `raw_request_decoder`.
        body_length: bytes of the body (`Content-Length`); None if that is not known. If it is given, a message of
            another length is refused before any tensor byte is taken.
        allow_headerless: whether binary tensors may follow a header whose length is not declared. Then the end of the
            JSON object is searched for, and exactly the tensors must follow it. Some clients send this form; this
            library never writes it.
        limits: caps on everything that is read. None for the limits of `headers`, or without `headers` for
            `DEFAULT_LIMITS`.
        check: called with the valid header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; returns the placement of its bytes.
        headers: cache of parsed headers, shared by decoders of the same kind and with the same limits; None to parse
            each header.
        pause_after_header: whether the decoder is paused after the header, before memory is taken for tensors. As after
            a window, it goes on when `next_event` is called again after the `HeaderReceived`.
        paced: whether work is done in small pieces, for which `next_event` returns `NEED_TURN`; see `Decoder.work`.
        null_is_nan: whether `null` in the JSON data of FP32 and FP64 is NaN, as KServe's client writes it. Otherwise it
            is refused: who writes it may have lost another value, too.

    Raises:
        LocalProtocolError: an argument is of another type; a length is negative; the limits are not those of `headers`;
            or there are both `headers` and `null_is_nan`: they may hold headers that were read in the other way.

    Example:
        >>> body = b'{"inputs":[{"name":"x","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}}]}'
        >>> decoder = request_decoder(header_length=len(body), body_length=len(body) + 4)
        >>> decoder.feed(body + bytes([1, 0, 2, 0]))
        96
        >>> [type(decoder.next_event()).__name__ for _ in range(3)]
        ['HeaderReceived', 'TensorReceived', 'EndOfMessage']
    """
    parse, limits = header_parser(parse_request_header, limits, headers)
    stream: StreamHeader[RequestHeader] = long_request_header
    if null_is_nan:
        if headers is not None:
            msg = "null_is_nan: not together with headers"
            raise LocalProtocolError(msg)
        parse = partial(parse_request_header, null_is_nan=True)
        stream = partial(long_request_header, null_is_nan=True)
    layout = Layout(parse, stream, header_length, allow_headerless)
    return _decoder(
        layout, body_length, limits, check=check, place=place, pause_after_header=pause_after_header, paced=paced
    )


def raw_request_decoder(
    spec: TensorSpec | Callable[[int], TensorSpec],
    *,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[RequestHeader], None] | None = None,
    place: Place = new_array,
    pause_after_header: bool = False,
    paced: bool = False,
) -> Decoder[RequestHeader]:
    """Make a decoder for a raw binary request, whose body is one tensor and nothing else.

    Specification, "Raw Binary Request": `Inference-Header-Content-Length` is 0. The content of the missing header is
    deduced from the model's metadata and the size of the body.

    Args:
        spec: the deduced tensor; `nbytes` is the length of the body and `offset` is 0. If the length of the body is
            not known beforehand: a function that deduces the tensor from it. Then the whole body is kept until its end
            has come, and is copied into its array; so for a moment it may take twice its memory.
        limits: `max_tensor_bytes` applies.
        check: as for `request_decoder`.
        place: as for `request_decoder`.
        pause_after_header: as for `request_decoder`. The header is known when the length of the body is.
        paced: as for `request_decoder`.

    Raises:
        LocalProtocolError: `nbytes` does not fit the datatype and the shape.
    """
    if isinstance(spec, TensorSpec):
        read, length = partial(_read_nothing, raw_request_header(spec)), spec.nbytes
    else:
        read, length = partial(_read_all, spec), None
    machine = Machine(
        read,
        length=length,
        limits=limits,
        check=check,
        place=place,
        pause_after_header=pause_after_header,
        paced=paced,
    )
    return Decoder(machine)


def _read_all(deduce: Callable[[int], TensorSpec], reader: Reader) -> Reading[RequestHeader]:
    """Read the body, and return the header that follows from its length."""
    limits = reader.limits
    is_short = limits.max_message_bytes < limits.max_tensor_bytes
    limit = "max_message_bytes" if is_short else "max_tensor_bytes"
    nbytes = yield from reader.gather(min(limits.max_message_bytes, limits.max_tensor_bytes), limit)
    return (yield from _read_nothing(raw_request_header(deduce(nbytes)), reader))


def _read_nothing(header: RequestHeader, reader: Reader) -> Reading[RequestHeader]:
    """Return a header that is known beforehand, if its tensors are within the limits."""
    for spec in header.tensors:
        check_tensor_bytes(spec.nbytes, reader.limits, None)
        if spec.is_single_element:
            check_element_bytes(spec.nbytes, reader.limits)
    yield from ()
    return header


def response_decoder(
    *,
    header_length: int | None,
    body_length: int | None,
    allow_headerless: bool = False,
    limits: Limits | None = None,
    check: Callable[[ResponseHeader], None] | None = None,
    place: Place = new_array,
    headers: HeaderCache[ResponseHeader] | None = None,
    paced: bool = False,
) -> Decoder[ResponseHeader]:
    """Make a decoder for one inference response; the arguments are those of `request_decoder`."""
    parse, limits = header_parser(parse_response_header, limits, headers)
    layout = Layout(parse, long_response_header, header_length, allow_headerless)
    return _decoder(layout, body_length, limits, check=check, place=place, paced=paced)


def _decoder(
    layout: Layout[MessageT],
    body_length: int | None,
    limits: Limits,
    *,
    check: Callable[[MessageT], None] | None,
    place: Place,
    pause_after_header: bool = False,
    paced: bool,
) -> Decoder[MessageT]:
    """Make a decoder that reads a message by its layout."""
    machine = Machine(  # by position: keywords would cost 0.2 µs
        layout.read,
        body_length,
        limits,
        check,
        place,
        layout.read_end if layout.is_headerless else None,
        pause_after_header,
        paced,
    )
    return Decoder(machine)


def header_parser(
    parse: Parse[MessageT], limits: Limits | None, headers: HeaderCache[MessageT] | None
) -> tuple[Parse[MessageT], Limits]:
    """Return the parser of the header, and the limits.

    Raises:
        LocalProtocolError: the limits are not those of `headers`.
    """
    if headers is None:
        return parse, DEFAULT_LIMITS if limits is None else checked_limits(limits)
    try:
        known = headers.limits
    except AttributeError:
        msg = f"headers are a HeaderCache, as HeaderCache(parse_request_header), not {kind_of(headers)}"
        raise LocalProtocolError(msg) from None
    if limits is not None and limits != known:
        msg = "the limits of a decoder must be the limits of its header cache"
        raise LocalProtocolError(msg)
    return headers.parse, known
