"""Verdicts: what a server should do with a probe, what it did, and what that is called.

One table. A server is free in much: in its statuses, its words, its limits. So most probes ask for one thing only: that
what must be refused is refused by the server itself, with a status of the 400s and some text that tells the client why.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from streamcodec.blackbox.wire import Answer, Observation, Outcome
from streamcodec.core.decoder import response_decoder
from streamcodec.core.errors import RemoteProtocolError
from streamcodec.core.events import EndOfMessage, TensorReceived
from streamcodec.core.framing import HEADER_LENGTH_FIELD, parse_header_length

_SUCCESS: Final = range(200, 300)
_REFUSAL: Final = range(400, 500)
_FAILURE: Final = range(500, 600)
_MAX_TEXT: Final = 200

INJECTED: Final = "x-injected"
"""No answer may have a field of this name: probes that try response splitting use it."""


class Expectation(Enum):
    """What a careful server does with a request."""

    REFUSE = "refused"
    """It answers with a status of the 400s and a text."""
    REFUSE_OR_CLOSE = "refused or closed"
    """That, or it closes the connection: the bytes are no request, or not all of one."""
    ANSWER_ONCE = "refused or closed after"
    """It refuses, or answers and closes: what follows must not be taken for another request."""
    ACCEPT = "accepted"
    """It answers as it answers a good request."""
    EITHER = "answered"
    """The protocol leaves it free, but it answers; and if it accepts, rightly."""
    SURVIVE = "survived"
    """No answer can be asked for, only that the server still is there."""


class Kind(StrEnum):
    """What a server can do wrong."""

    ACCEPTED = "accepted"
    """Status 2xx for what must be refused."""
    REFUSED = "refused"
    """Status 4xx for what is right."""
    CHANGED = "changed"
    """Accepted, but the answer is not the one to this request."""
    SERVER_ERROR = "server error"
    """Status 5xx: the server blames itself, and clients try again."""
    UNEXPLAINED = "unexplained"
    """Refused without a word."""
    CLOSED = "closed"
    """The connection ended without an answer."""
    HUNG = "hung"
    """No answer in time."""
    GARBLED = "garbled"
    """The answer is no HTTP, broke off, or has a status or a field that no answer here can have."""
    BLOCKED = "blocked"
    """While the server is at it, nobody else gets an answer in time."""
    CRASHED = "crashed"
    """The server does not answer any more."""
    BROKEN = "broken"
    """The server lives, but does not answer a good request as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a server has done wrong."""

    kind: Kind
    detail: str


Outputs = Counter[bytes]
"""The bytes of all outputs, as they are on the wire; servers name and order them as they like."""


def judge(
    expectation: Expectation, observation: Observation, *, expected: Outputs | None, also: frozenset[int]
) -> Finding | None:
    """Compare what a server did with what it should have done.

    Args:
        expectation: what it should do.
        observation: what it did.
        expected: the outputs that a right answer has; None if they are not known.
        also: statuses of the 500s that are right for this probe.

    Returns:
        What it did wrong; None if nothing.
    """
    if expectation is Expectation.SURVIVE:
        return None
    if not observation.answers:
        return _judge_silence(expectation, observation)
    answer = observation.answers[0]
    if answer.values(INJECTED.encode()):
        return Finding(kind=Kind.GARBLED, detail="the answer has a field that came from the request")
    if answer.status in _SUCCESS:
        return _judge_success(expectation, observation, expected)
    if answer.status in _REFUSAL or answer.status in also:
        return _judge_refusal(expectation, answer)
    kind = Kind.SERVER_ERROR if answer.status in _FAILURE else Kind.GARBLED
    return Finding(kind=kind, detail=describe(answer))


def describe(answer: Answer) -> str:
    """Return a status and the server's words, on one line."""
    words = error_text(answer)
    return f"{answer.status}: {words}" if words and answer.status not in _SUCCESS else str(answer.status)


def error_text(answer: Answer) -> str:
    """Return the server's words: the member `error` of a JSON document, else the beginning of the body."""
    body = answer.body
    try:
        document = json.loads(body)
        text = str(document["error"])
    except (ValueError, TypeError, KeyError, RecursionError):
        text = body[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


def read_outputs(answer: Answer) -> Outputs | None:
    """Return the outputs of an answer; None if it is not a well formed inference response."""
    try:
        length = parse_header_length(answer.values(HEADER_LENGTH_FIELD.lower().encode()))
        decoder = response_decoder(header_length=length, body_length=len(answer.body))
        decoder.feed(answer.body)
        decoder.receive_eof()
        outputs = Outputs()
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            if isinstance(event, TensorReceived):
                outputs[_bytes(event)] += 1
    except RemoteProtocolError:
        return None
    return outputs


def _bytes(tensor: TensorReceived) -> bytes:
    return bytes(tensor.elements.data) if tensor.spec.datatype.is_bytes else tensor.array.tobytes()


def _judge_silence(expectation: Expectation, observation: Observation) -> Finding | None:
    closes = {Expectation.REFUSE_OR_CLOSE, Expectation.ANSWER_ONCE}
    if observation.outcome is Outcome.CLOSED and expectation in closes:
        return None
    kinds = {
        Outcome.CLOSED: Kind.CLOSED,
        Outcome.SILENT: Kind.HUNG,
        Outcome.GARBLED: Kind.GARBLED,
        Outcome.UNREACHABLE: Kind.CRASHED,
    }
    return Finding(kind=kinds[observation.outcome], detail=observation.detail)


def _judge_success(expectation: Expectation, observation: Observation, expected: Outputs | None) -> Finding | None:
    status = observation.answers[0].status
    if expectation in {Expectation.REFUSE, Expectation.REFUSE_OR_CLOSE}:
        return Finding(kind=Kind.ACCEPTED, detail=str(status))
    if expectation is Expectation.ANSWER_ONCE:
        is_single = len(observation.answers) == 1 and observation.outcome is Outcome.CLOSED
        return None if is_single else Finding(kind=Kind.ACCEPTED, detail=f"{status}, and the connection goes on")
    if observation.outcome is not Outcome.ANSWERED:
        return Finding(kind=Kind.CLOSED, detail=f"{status}, then of the next answer nothing: {observation.detail}")
    for answer in observation.answers if expected is not None else ():
        outputs = read_outputs(answer)
        if outputs != expected:
            words = "the outputs are others than those of this request" if outputs else "no well formed outputs"
            return Finding(kind=Kind.CHANGED, detail=f"{status}: {words}")
    return None


def _judge_refusal(expectation: Expectation, answer: Answer) -> Finding | None:
    if expectation is Expectation.ACCEPT:
        return Finding(kind=Kind.REFUSED, detail=describe(answer))
    if not error_text(answer):
        return Finding(kind=Kind.UNEXPLAINED, detail=str(answer.status))
    return None
