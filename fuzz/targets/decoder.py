"""The decoder under any bytes: it must accept what is right, refuse the rest properly, and never take too much.

One input is one `Case`: a message and how it is delivered. That it does not crash is the least that is asked; a decoder
that accepts everything would not crash either. So each case is decoded twice, on different faces and cut differently,
which must look the same from outside; and whatever was accepted is compared with the bytes it came from, with another
JSON parser's opinion of the header, and with itself after a way through the encoder and back.

`assert` is how a target reports; any exception that is not named here is a finding too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from streamcodec import (
    DEFAULT_LIMITS,
    NEED_DATA,
    EncodedMessage,
    EndOfMessage,
    HeaderReceived,
    MessageError,
    RequestHeader,
    ResponseHeader,
    Tensor,
    TensorReceived,
    encode_request,
    encode_response,
    request_decoder,
    response_decoder,
)
from targets.case import AnyDecoder, Case, Face, Kind

Header: TypeAlias = RequestHeader | ResponseHeader


@dataclass(slots=True)
class Outcome:
    """What a decoding looked like from outside."""

    header: Header | None = None
    tensors: list[TensorReceived] = field(default_factory=list)
    end: EndOfMessage | None = None
    error: MessageError | None = None
    taken: int = 0


def test_one_input(data: bytes) -> None:
    """Decode one case and check everything that can be said of the result."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Decode one case twice and check everything that can be said of the result."""
    stream = case.stream
    outcome = decode(case, Face.PUSH, repeat(len(stream)))
    _check_same(outcome, decode(case, case.face, case.pieces))
    assert outcome.taken <= len(stream)
    if case.body_length is not None:
        assert outcome.taken <= case.body_length
    if outcome.end is None:
        # Nothing but an error or missing bytes may end a message early.
        assert (outcome.error is not None) or (not case.has_eof and outcome.taken == len(stream))
        return
    assert outcome.error is None
    assert outcome.header is not None
    assert outcome.end.nbytes == outcome.taken
    if case.kind is not Kind.RAW:
        assert case.body_length in {None, outcome.taken}
        _check_header(case, outcome.header, outcome.tensors, outcome.taken)
    _check_round_trip(case, outcome.header, outcome.tensors)


def explain(data: bytes) -> str:
    """Say what an input means, and what comes of it."""
    case = Case.read(data)
    outcome = decode(case, case.face, case.pieces)
    return f"{case}\nheader_length={case.header_length} body_length={case.body_length}\n{outcome}"


def decode(case: Case, face: Face, pieces: Iterator[int]) -> Outcome:
    """Deliver the bytes of a case through one face of a new decoder."""
    decoder = case.decoder()
    outcome = Outcome()
    deliver = _push if face is Face.PUSH else _pull if face is Face.PULL else _scatter
    try:
        deliver(decoder, case, pieces, outcome)
        if case.has_eof:
            decoder.receive_eof()
        _take_events(decoder, outcome)
    except MessageError as error:  # the message breaks a rule or a limit: the one answer to bad bytes
        outcome.error = error
    outcome.taken = decoder.offset
    assert decoder.is_complete == (outcome.end is not None)
    assert not (outcome.error and decoder.needs_data)
    return outcome


def _push(decoder: AnyDecoder, case: Case, pieces: Iterator[int], outcome: Outcome) -> None:
    stream = case.stream
    position = 0
    _take_events(decoder, outcome)
    while decoder.needs_data and position < len(stream):
        chunk = bytearray(stream[position : position + next(pieces)])
        taken = decoder.feed(chunk)
        position += taken
        assert decoder.offset == position
        assert taken == len(chunk) or not decoder.needs_data
        chunk[:] = bytes(len(chunk))  # a decoder that kept a reference would show it
        _take_events(decoder, outcome)


def _pull(decoder: AnyDecoder, case: Case, pieces: Iterator[int], outcome: Outcome) -> None:
    stream = case.stream
    end = case.body_length if case.kind is not Kind.RAW else None
    position = 0
    _take_events(decoder, outcome)
    while decoder.needs_data and position < len(stream):
        view = decoder.get_buffer()
        assert view.nbytes
        assert not view.readonly
        assert end is None or position + view.nbytes <= end
        count = min(next(pieces), len(view), len(stream) - position)
        view[:count] = stream[position : position + count]
        decoder.buffer_updated(count)
        position += count
        assert decoder.offset == position
        _take_events(decoder, outcome)


def _scatter(decoder: AnyDecoder, case: Case, pieces: Iterator[int], outcome: Outcome) -> None:
    stream = case.stream
    end = case.body_length if case.kind is not Kind.RAW else None
    position = 0
    _take_events(decoder, outcome)
    while decoder.needs_data and position < len(stream):
        room, start = next(pieces), position
        for view in decoder.get_buffers():
            assert view.nbytes
            assert not view.readonly
            count = min(room, len(view), len(stream) - position)
            view[:count] = stream[position : position + count]
            position, room = position + count, room - count
        assert end is None or position <= end
        decoder.buffer_updated(position - start)
        # What was written behind the place of an error is not the message's.
        assert decoder.offset == position or (start < decoder.offset < position and not decoder.needs_data)
        _take_events(decoder, outcome)


def _take_events(decoder: AnyDecoder, outcome: Outcome) -> None:
    while outcome.end is None:
        event = decoder.next_event()
        match event:
            case HeaderReceived(header=header):
                assert outcome.header is None
                outcome.header = header
            case TensorReceived():
                assert outcome.header is not None
                assert event.spec is outcome.header.tensors[len(outcome.tensors)]
                outcome.tensors.append(event)
            case EndOfMessage():
                assert outcome.header is not None
                assert len(outcome.tensors) == len(outcome.header.tensors)
                outcome.end = event
            case _:
                assert event is NEED_DATA
                return


def _check_same(one: Outcome, other: Outcome) -> None:
    """Faces and cuts must not show."""
    assert one.taken == other.taken
    assert one.end == other.end
    assert _error_parts(one.error) == _error_parts(other.error)
    if one.header is None or other.header is None:
        assert one.header is other.header
        return
    assert _header_parts(one.header) == _header_parts(other.header)
    assert [spec.offset for spec in one.header.tensors] == [spec.offset for spec in other.header.tensors]
    for left, right in zip(one.tensors, other.tensors, strict=True):
        _check_same_array(left.array, right.array)


def _error_parts(error: MessageError | None) -> tuple[Any, ...] | None:
    if error is None:
        return None
    return (type(error), error.code, error.offset, error.path, error.status_hint, error.message, str(error))


def _header_parts(header: Header) -> tuple[Any, ...]:
    """Make a header comparable: all of it but the arrays, and the layout, which depends on the header's length."""
    specs = [(s.name, s.datatype, s.shape, s.nbytes, s.is_binary, _without_size(s.parameters)) for s in header.tensors]
    if isinstance(header, RequestHeader):
        return (specs, header.id, header.parameters, header.outputs)
    # A response is never written without a model's name.
    return (specs, header.id, header.parameters, header.model_name or "", header.model_version)


def _without_size(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what an empty tensor of a response need not have, and the encoder writes."""
    return {key: value for key, value in parameters.items() if key != "binary_data_size"}


def _check_same_array(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    # Bits, not values: a NaN's payload survives too. Flat: of a shape like [2147483648, 0], numpy lists all the rows.
    left, right = one.reshape(-1), other.reshape(-1)
    assert left.tolist() == right.tolist() if one.dtype.hasobject else left.tobytes() == right.tobytes()


def _check_header(case: Case, header: Header, tensors: Sequence[TensorReceived], taken: int) -> None:
    """Ask a parser that is not ours what the header says."""
    length = taken - sum(spec.nbytes for spec in header.tensors)
    assert case.header_length in {None, length}
    root = json.loads(str(case.stream[:length], "utf-8"), object_pairs_hook=_unique_members, parse_int=_integer)
    assert root.get("id") == header.id
    entries = root["inputs" if case.kind is Kind.REQUEST else "outputs"]
    assert len({entry["name"] for entry in entries}) == len(entries)
    if isinstance(header, RequestHeader) and header.outputs is not None:
        assert len({output.name for output in header.outputs}) == len(root["outputs"])
    for entry, tensor in zip(entries, tensors, strict=True):
        spec = tensor.spec
        assert (entry["name"], entry["datatype"], entry["shape"]) == (spec.name, spec.datatype.name, list(spec.shape))
        assert all(type(size) in {int, _NegativeZero} and size >= 0 for size in entry["shape"])
        assert (entry.get("data") is None) == spec.is_binary
        if not spec.is_binary:
            _check_values(entry["data"], tensor.array, null_is_nan=case.kind is Kind.RESPONSE)
        elif not spec.datatype.is_bytes:
            assert tensor.array.nbytes == spec.nbytes


class _NegativeZero(int):
    """The integer -0, which is 0, but -0.0 where it is the value of a float."""

    def __float__(self) -> float:
        return -0.0

    def __repr__(self) -> str:
        return "0"


def _integer(text: str) -> int:
    return _NegativeZero() if text == "-0" else int(text)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _check_values(data: object, array: np.ndarray[Any, Any], *, null_is_nan: bool) -> None:
    """Values of a JSON tensor: the very ones of the text, whose `repr` tells 1 from 1.0 and from true."""
    is_nested = isinstance(data, list) and bool(data) and isinstance(data[0], list)
    values = list(_leaves(data, array.shape if is_nested or not isinstance(data, list) else (array.size,)))
    match array.dtype.kind:
        case "f":
            values = [math.nan if value is None and null_is_nan else value for value in values]
            assert all(type(value) in {int, float, _NegativeZero} for value in values)
            wanted = np.array([float(value) for value in values], np.float64)
            assert np.array_equal(np.isfinite(wanted), np.isfinite(array).reshape(-1))
            assert wanted.astype(array.dtype).tobytes() == array.tobytes()
        case "O":
            assert [value.encode() for value in values] == array.reshape(-1).tolist()
        case _:
            assert repr(values) == repr(array.reshape(-1).tolist())


def _leaves(data: Any, shape: tuple[int, ...]) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    if not shape:
        assert not isinstance(data, list)
        yield data
        return
    assert len(data) == shape[0]
    for item in data:
        yield from _leaves(item, shape[1:])


def _check_round_trip(case: Case, header: Header, tensors: Sequence[TensorReceived]) -> None:
    """What was accepted can be written; its bytes are those that came, and it reads back as the same."""
    for tensor in tensors:
        _check_array(tensor)
    encoded = _encode(header, tensors)
    if case.kind is not Kind.RAW:
        binary = [spec for spec in header.tensors if spec.nbytes]
        for spec, buffer in zip(binary, [*encoded.buffers][1:], strict=True):
            assert spec.offset is not None
            assert buffer == case.stream[spec.offset : spec.offset + spec.nbytes]
    again = _decode_encoded(encoded, type(header))
    assert again.end is not None, again.error
    assert again.header is not None
    for one, other in zip(tensors, again.tensors, strict=True):
        _check_same_array(one.array, other.array)
    if case.kind is not Kind.RAW:
        assert _header_parts(header) == _header_parts(again.header)


def _check_array(tensor: TensorReceived) -> None:
    array, spec = tensor.array, tensor.spec
    assert array.shape == spec.shape
    assert array.dtype == spec.datatype.dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    if spec.datatype.is_bytes:
        assert all(type(element) is bytes for element in array.reshape(-1).tolist())
    else:
        assert spec.datatype.kind != "b" or array.view(np.uint8).max(initial=0) <= 1
        assert not array.nbytes or array.ctypes.data % 64 == 0


def _encode(header: Header, received: Sequence[TensorReceived]) -> EncodedMessage:
    tensors = [
        Tensor(name=t.spec.name, array=t.array, is_binary=t.spec.is_binary, parameters=t.spec.parameters)
        for t in received
    ]
    if isinstance(header, RequestHeader):
        return encode_request(tensors, outputs=header.outputs, request_id=header.id, parameters=header.parameters)
    return encode_response(
        tensors,
        model_name=header.model_name or "",
        model_version=header.model_version,
        request_id=header.id,
        parameters=header.parameters,
    )


def _decode_encoded(encoded: EncodedMessage, kind: type[Header]) -> Outcome:
    make = request_decoder if kind is RequestHeader else response_decoder
    decoder = make(header_length=encoded.header_length, body_length=encoded.body_length, limits=DEFAULT_LIMITS)
    outcome = Outcome()
    for buffer in encoded.buffers:
        assert decoder.feed(buffer) == len(buffer)
    _take_events(decoder, outcome)
    return outcome
