"""HTTP connections against h11: the same bytes are the same messages, or ours is the stricter one for a named reason.

Our connections give h11 the heads alone and find the ends of bodies themselves; that is where a smuggler would look for
a difference. So h11 reads every input too, by itself and whole, as the oracle for framing. Where both accept a message,
its start line, fields and body must be the same, and so must be where the next one begins, also after one that was
refused and dropped. A compressed body must be what zlib makes of the one that h11 has read. How long the JSON header is
must be what a naive reader makes of the fields. Where h11 alone accepts,
our reason must have a name in one of the tables `STRICTER_*` or in `USUAL_LIMITS`; where ours alone accepts, what h11
complains of must be one of `LAXER`. And cuts and faces must not show.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import Final

from streamcodec import ErrorCode, LimitExceededError, MessageError
from streamcodec.http.bodies import body as body_room
from targets.case import Face
from targets.compression import MAX_OUTPUT_BYTES, ask_zlib
from targets.connections import Case, Message, Outcome, ask_h11, run
from targets.lengths import check_header_length
from targets.patched import patched

STRICTER_CODES: Final = {
    ErrorCode.AMBIGUOUS_FRAMING: "Content-Length with Transfer-Encoding, or that in HTTP/1.0; h11 lets one of them win",
    ErrorCode.LIMIT_EXCEEDED: "h11 has been told of no limits; where they are small",
    ErrorCode.UNSUPPORTED_ENCODING: "h11 does not look at Content-Encoding",
    ErrorCode.INVALID_COMPRESSION: "nor at what is compressed; where zlib refuses it, too",
    ErrorCode.UNSUPPORTED_EXPECTATION: "h11 ignores an Expect that it does not know",
}
STRICTER_MESSAGES: Final = {
    "a line of the head does not end with": "h11 takes a bare line feed for a line end",
    "the head has a control character": "h11 takes most of them in values",
    "a field of the head is folded": "h11 unfolds it, which RFC 9112, section 5.2 leaves to servers",
    "the field Host is not a valid host": "h11 only counts it",
    "the status of the response is not": "h11 takes all of three digits",
    "only HTTP/1.x is supported": "h11 takes every version for 1.1",
    "the field Host is missing": "h11 asks 1.1 alone for it",
    "the line before a chunk is not a hexadecimal size": "h11 takes 20 digits, blanks, and any extension",
    "CONNECT is not supported": "h11 takes CONNECT, and what follows its head is then no request",
    "the line after the last chunk is not a header field": "h11 takes bare line feeds and folded lines in trailers",
}
"""Beginnings of the messages of `invalid-http` with which more is refused than by h11."""
USUAL_LIMITS: Final = {
    "max_head_fields": "a field takes 4 bytes; of all other limits, a few thousand bytes reach none as it usually is",
}
"""Where no small limits apply: those that inputs can exceed."""
LAXER: Final = {
    r"""illegal chunk header: bytearray\(b['"][0-9A-Fa-f]{1,16}(?: |\\t)+;""": (
        "white space in front of the first extension, which RFC 9112, section 7.1.1 has recipients read"
    ),
    r"(bad|conflicting) Content-Length|multiple Transfer-Encoding|Only Transfer-Encoding: chunked": (
        "fields for framing in trailers, where they frame nothing: here all of trailers is dropped, as RFC 9110, "
        "section 6.5.1 permits"
    ),
    r"no request line received": "one empty line in front of a request, which RFC 9112, section 2.2 has servers skip",
}
"""Complaints of h11 about what is accepted here, as regular expressions."""

_LONG_CHUNK_BYTES: Final = 16
_ENCODINGS: Final = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate"}


def test_one_input(data: bytes) -> None:
    """Read one connection by both and compare."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Read one connection by both and compare."""
    outcome = run(case, Face.PUSH, repeat(max(1, len(case.stream))))
    usual = body_room._LONG_CHUNK_BYTES  # noqa: SLF001 - no input is so large that it has a long one
    with patched(body_room, "_LONG_CHUNK_BYTES", _LONG_CHUNK_BYTES if case.has_short_chunks else usual):
        assert outcome.log == run(case, case.face, case.pieces).log, "a cut or a face shows"
    oracle, complaint = ask_h11(case)
    _compare(case, outcome, oracle, complaint)
    for message in outcome.messages:
        check_header_length(message.fields)
    if outcome.is_reusable:
        assert oracle.is_reusable, "a connection is used again that is not where the next message begins"


def explain(data: bytes) -> str:
    """Say what an input means, and what both make of it."""
    case = Case.read(data)
    outcome = run(case, case.face, case.pieces)
    oracle, complaint = ask_h11(case)
    return f"{case}\nours: {outcome}\nh11:  {oracle}\nh11 complains: {complaint}"


def _compare(case: Case, outcome: Outcome, oracle: Outcome, complaint: str) -> None:
    ours, theirs = outcome.messages, oracle.messages
    for index, message in enumerate(ours):
        other = theirs[index] if index < len(theirs) else None
        if message.error is not None and other is not None and other.body is not None:
            assert stricter_name(case, message.error, other), f"h11 accepts what is refused: {message.error}"
        if message.start and other is not None:
            assert (message.start, message.fields) == (other.start, other.fields), "heads differ"
        has_gone_on = message.body is not None or index + 1 < len(ours)
        if has_gone_on and (other is None or other.body is None):
            name = laxer_name(complaint)
            assert name, f"h11 refuses what is accepted: {complaint}"
            return
        if message.body is not None and other is not None:
            assert message.body[:MAX_OUTPUT_BYTES] == _plain_body(other), "bodies differ"
    is_refused = bool(ours) and ours[-1].body is None
    if len(ours) < len(theirs):
        assert is_refused, "h11 reads one more message"
        assert outcome.is_closed, "h11 reads one more message, and ours waits"
    elif is_refused and ours[-1].error is None and not case.refuses:
        assert theirs[-1].body is None, "h11 has read a message to its end, and ours waits"


def stricter_name(case: Case, error: MessageError, accepted: Message) -> str | None:
    """Return the name of the reason for refusing what h11 accepts; None if it has none."""
    if isinstance(error, LimitExceededError) and not case.is_limited:
        return error.limit if error.limit in USUAL_LIMITS else None
    if error.code is ErrorCode.INVALID_COMPRESSION and _is_compressed_well(accepted):
        return None
    if error.code in STRICTER_CODES:
        return error.code
    return next((words for words in STRICTER_MESSAGES if error.message.startswith(words)), None)


def laxer_name(complaint: str) -> str | None:
    """Return the name of the reason for accepting what h11 complains of; None if it has none."""
    return next((words for words in LAXER if re.match(words, complaint)), None)


def _is_compressed_well(message: Message) -> bool:
    """Tell whether zlib accepts a body; not of an empty one, which is none or one that is cut short, nor of a long one,
    whose end zlib has not seen.
    """
    plain = _plain_body(message)
    return bool(message.body) and plain is not None and len(plain) < MAX_OUTPUT_BYTES


def _plain_body(message: Message) -> bytes | None:
    """Return what zlib makes of a body, as far as that is compared; None if it refuses it."""
    encoding = b",".join(message.fields.values(b"content-encoding")).strip(b" \t").lower()
    if not message.body or encoding in {b"", b"identity"}:
        return message.body
    plain = ask_zlib(message.body, _ENCODINGS[encoding]) if encoding in _ENCODINGS else None
    return None if plain is None else plain[:MAX_OUTPUT_BYTES]
