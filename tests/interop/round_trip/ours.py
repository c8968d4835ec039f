"""Our codec, from the plain form of a message to its bytes and back."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from streamcodec import (
    EncodedMessage,
    NonFiniteOutput,
    RequestedOutput,
    RequestHeader,
    Tensor,
    encode_request,
    encode_response,
)
from streamcodec.testing import Outcome, Run, run_pull, run_push
from tests.formats.v2.messages import Message
from tests.interop.round_trip.plain import PlainMessage, PlainTensor, plain_tensor


@dataclass(frozen=True, slots=True)
class Wire:
    """A message as it travels."""

    body: bytes
    header_length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How a message reaches the decoder."""

    sizes: list[int]
    """Of the first pieces; the rest comes in one."""
    run: Run
    is_length_known: bool


arrivals = st.builds(
    Arrival,
    sizes=st.lists(st.integers(1, 90), max_size=12),
    run=st.sampled_from([run_push, run_pull]),
    is_length_known=st.booleans(),
)
AT_ONCE = Arrival(sizes=[], run=run_push, is_length_known=True)


def request_bytes(message: PlainMessage) -> Wire:
    """Encode a request."""
    outputs = None
    if message.outputs is not None:
        outputs = [
            RequestedOutput(name=entry["name"], binary_data=None, parameters=entry["parameters"])
            for entry in message.outputs
        ]
    encoded = encode_request(
        map(_tensor, message.tensors), outputs=outputs, request_id=message.id, parameters=message.parameters
    )
    return _wire(encoded)


def response_bytes(message: PlainMessage, nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL) -> Wire:
    """Encode a response."""
    assert message.model_name is not None
    encoded = encode_response(
        map(_tensor, message.tensors),
        model_name=message.model_name,
        model_version=message.model_version,
        request_id=message.id,
        parameters=message.parameters,
        nonfinite=nonfinite,
    )
    return _wire(encoded)


def read_request(wire: Wire, arrival: Arrival = AT_ONCE) -> PlainMessage:
    """Decode a request; an error is raised."""
    return _read(wire, arrival, is_response=False)


def read_response(wire: Wire, arrival: Arrival = AT_ONCE) -> PlainMessage:
    """Decode a response; an error is raised."""
    return _read(wire, arrival, is_response=True)


def _tensor(tensor: PlainTensor) -> Tensor:
    return Tensor(name=tensor.name, array=tensor.array, is_binary=bool(tensor.is_binary), parameters=tensor.parameters)


def _wire(encoded: EncodedMessage) -> Wire:
    body = b"".join(encoded.buffers)
    assert len(body) == encoded.body_length
    return Wire(body, encoded.header_length)


def _read(wire: Wire, arrival: Arrival, *, is_response: bool) -> PlainMessage:
    body = wire.body
    message = Message(
        body=body,
        header_length=wire.header_length,
        body_length=len(body) if arrival.is_length_known else None,
        is_response=is_response,
    )
    pieces, start = [], 0
    for size in (*arrival.sizes, len(body)):
        pieces.append(body[start : start + size])
        start += size
    return _plain(arrival.run(message.decoder, pieces))


def _plain(outcome: Outcome) -> PlainMessage:
    if outcome.error is not None:
        raise outcome.error
    assert outcome.end is not None
    assert outcome.header is not None
    header = outcome.header
    tensors = [
        plain_tensor(
            event.array,
            name=event.spec.name,
            datatype=event.spec.datatype.name,
            is_binary=event.spec.is_binary,
            parameters=event.spec.parameters,
        )
        for event in outcome.tensors
    ]
    parameters = dict(header.parameters)
    if isinstance(header, RequestHeader):
        outputs = None
        if header.outputs is not None:
            outputs = [{"name": entry.name, "parameters": dict(entry.parameters)} for entry in header.outputs]
        return PlainMessage(tensors=tensors, id=header.id, parameters=parameters, outputs=outputs)
    return PlainMessage(
        tensors=tensors,
        id=header.id,
        parameters=parameters,
        model_name=header.model_name,
        model_version=header.model_version,
    )
