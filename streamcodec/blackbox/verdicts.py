"""Verdicts: the expected answer to a probe, the observed one, and the name of the difference.

A server is free to choose its statuses, its error texts and its limits. So most probes have one expectation only: the
server itself refuses an invalid request, with a status of the 400s and a text that tells the client why.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from streamcodec.blackbox.wire import WireAnswer, WireOutcome, WireResult
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import EndOfMessage, TensorReceived
from streamcodec.formats.v2.decoder import response_decoder
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD, parse_header_length
from streamcodec.formats.v2.model import RequestHeader, ResponseHeader

_SUCCESS: Final = range(200, 300)
_REFUSAL: Final = range(400, 500)
_FAILURE: Final = range(500, 600)
_MAX_TEXT: Final = 200

INJECTED: Final = "x-injected"
"""No answer may have a field of this name. Probes for response splitting use it."""


class Expectation(Enum):
    """The expected answer to a request."""

    REFUSE = "refused"
    """It answers with a status of the 400s and a text."""
    REFUSE_OR_CLOSE = "refused or closed"
    """As `REFUSE`, or it closes the connection: the bytes are not a request, or not a complete one."""
    ANSWER_ONCE = "refused or closed after"
    """It refuses, or answers and closes the connection: it must not read the next bytes as another request."""
    ACCEPT = "accepted"
    """It answers as it answers a good request."""
    EITHER = "answered"
    """Any answer is allowed; but if the server accepts the request, the outputs must be right."""
    SURVIVE = "survived"
    """No answer is expected; the server must stay alive."""


class Fault(StrEnum):
    """What a server can do wrong."""

    ACCEPTED = "accepted"
    """Status 2xx for an invalid request."""
    REFUSED = "refused"
    """Status 4xx for a valid request."""
    CHANGED = "changed"
    """Accepted, but the outputs are wrong for this request."""
    SERVER_ERROR = "server error"
    """Status 5xx: the server blames itself, and clients try again."""
    UNEXPLAINED = "unexplained"
    """Refused without an error text."""
    CLOSED = "closed"
    """The connection ended without an answer."""
    HUNG = "hung"
    """No answer in time."""
    GARBLED = "garbled"
    """The answer is not HTTP, is truncated, or has an impossible status or field."""
    BLOCKED = "blocked"
    """Other clients get no answer in time while the server works on the request."""
    CRASHED = "crashed"
    """The server does not answer any more."""
    BROKEN = "broken"
    """The server lives, but is not well, or does not answer a good request as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a server has done wrong."""

    kind: Fault
    detail: str


Outputs = Counter[bytes]
"""The bytes of all outputs, as they are on the wire; servers name and order them as they like."""


def judge(
    expectation: Expectation, observation: WireResult, *, expected: Outputs | None, also: frozenset[int]
) -> Finding | None:
    """Compare what a server did with what it should have done.

    Args:
        expectation: the expected answer.
        observation: the observed answer.
        expected: the right outputs; None if they are not known.
        also: statuses of the 500s that are right for this probe, too.

    Returns:
        The finding; None if the answer is right.
    """
    if expectation is Expectation.SURVIVE:
        return None
    if expectation is Expectation.ANSWER_ONCE and (finding := _judge_what_follows(observation)):
        return finding
    for answer in observation.answers:
        if finding := _judge_answer(expectation, answer, expected, also):
            return finding
    return _judge_end(expectation, observation)


def describe(answer: WireAnswer) -> str:
    """Return a status and the server's error text, on one line."""
    words = error_text(answer)
    return f"{answer.status}: {words}" if words and answer.status not in _SUCCESS else str(answer.status)


def error_text(answer: WireAnswer) -> str:
    """Return the server's error text: the member `error` of a JSON document, else the beginning of the body."""
    body = answer.body
    try:
        document = json.loads(body)
        text = str(document["error"])
    except (ValueError, TypeError, KeyError, RecursionError):
        text = body[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


def read_outputs(answer: WireAnswer) -> Outputs | None:
    """Return the outputs of an answer; None if it is not a well formed inference response."""
    try:
        length = parse_header_length(answer.values(HEADER_LENGTH_FIELD.lower().encode()))
        return Outputs(read_tensors(response_decoder(header_length=length, body_length=len(answer.body)), answer.body))
    except MessageError:
        return None


def read_tensors(decoder: Decoder[RequestHeader] | Decoder[ResponseHeader], body: bytes) -> tuple[bytes, ...]:
    """Decode a whole message.

    Returns:
        The bytes of its tensors, as they are on the wire.

    Raises:
        RemoteProtocolError: it is not well formed.
    """
    decoder.feed(body)
    decoder.receive_eof()
    tensors = []
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            is_bytes = event.spec.datatype.is_bytes
            tensors.append(bytes(event.elements.data) if is_bytes else event.array.tobytes())
    return tuple(tensors)


def _judge_what_follows(observation: WireResult) -> Finding | None:
    """Check whether the bytes after a request were read as another request, or could be."""
    statuses = [answer.status for answer in observation.answers]
    if any(status in _SUCCESS for status in statuses[1:]):
        return Finding(kind=Fault.ACCEPTED, detail=f"{statuses[0]}, and then the bytes after the request are answered")
    is_last = len(statuses) == 1 and observation.outcome is WireOutcome.CLOSED
    if not statuses or statuses[0] not in _SUCCESS or is_last:
        return None
    return Finding(kind=Fault.ACCEPTED, detail=f"{statuses[0]}, and the connection stays open")


def _judge_answer(
    expectation: Expectation, answer: WireAnswer, expected: Outputs | None, also: frozenset[int]
) -> Finding | None:
    if answer.values(INJECTED.encode()):
        return Finding(kind=Fault.GARBLED, detail="the answer has a field that came from the request")
    if answer.status in _SUCCESS:
        return _judge_success(expectation, answer, expected)
    if answer.status in _REFUSAL or answer.status in also:
        if expectation is Expectation.ACCEPT:
            return Finding(kind=Fault.REFUSED, detail=describe(answer))
        return None if error_text(answer) else Finding(kind=Fault.UNEXPLAINED, detail=str(answer.status))
    kind = Fault.SERVER_ERROR if answer.status in _FAILURE else Fault.GARBLED
    return Finding(kind=kind, detail=describe(answer))


def _judge_success(expectation: Expectation, answer: WireAnswer, expected: Outputs | None) -> Finding | None:
    if expectation in {Expectation.REFUSE, Expectation.REFUSE_OR_CLOSE}:
        return Finding(kind=Fault.ACCEPTED, detail=str(answer.status))
    if expected is None or (outputs := read_outputs(answer)) == expected:
        return None
    words = "no well formed outputs" if outputs is None else "the outputs do not match this request"
    return Finding(kind=Fault.CHANGED, detail=f"{answer.status}: {words}")


def _judge_end(expectation: Expectation, observation: WireResult) -> Finding | None:
    """Judge that answers are missing."""
    if observation.outcome is WireOutcome.ANSWERED or (expectation is Expectation.ANSWER_ONCE and observation.answers):
        return None
    if observation.outcome is WireOutcome.CLOSED and expectation in {
        Expectation.REFUSE_OR_CLOSE,
        Expectation.ANSWER_ONCE,
    }:
        return None
    kinds = {
        WireOutcome.CLOSED: Fault.CLOSED,
        WireOutcome.SILENT: Fault.HUNG,
        WireOutcome.GARBLED: Fault.GARBLED,
        WireOutcome.UNREACHABLE: Fault.CRASHED,
    }
    said = "".join(f"{answer.status}, then " for answer in observation.answers)
    return Finding(kind=kinds[observation.outcome], detail=said + observation.detail)
