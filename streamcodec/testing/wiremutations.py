"""Wire mutations: errors in the text of a header, in the declared lengths, and in the bytes of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode
from streamcodec.testing.samples import Draft
from streamcodec.testing.targets import (
    NUMBERS,
    Catalogue,
    Choose,
    Codes,
    entered,
    everything,
    of,
    with_payload,
)

WIRE_MUTATIONS: Final[Catalogue] = {}
_wire = entered(WIRE_MUTATIONS)


# Text

_INSERTIONS: Final[list[tuple[str, Codes]]] = [
    ('"x":1,"x":1,', [ErrorCode.DUPLICATE_KEY]),
    ('"x":{"y":1,"y":2},', [ErrorCode.DUPLICATE_KEY]),
    ('"inputs":[],"inputs":[],', [ErrorCode.DUPLICATE_KEY]),
    ('"x":NaN,', [ErrorCode.NON_FINITE_NUMBER]),
    ('"x":[-Infinity],', [ErrorCode.NON_FINITE_NUMBER]),
    ('"x":"\\ud800",', [ErrorCode.INVALID_UTF8]),
    ('"\\udfff":1,', [ErrorCode.INVALID_UTF8]),
    (f'"x":{"[" * 200}{"]" * 200},', [ErrorCode.LIMIT_EXCEEDED]),
    (f'"x":{"9" * 5000},', [ErrorCode.INVALID_JSON]),
    *(
        (text, [ErrorCode.INVALID_JSON])
        for text in (",", '"x",', '"x":,', '"x":01,', '"x":+1,', '"x":.5,', '"x":"\\x41",', '"x":"\t",', "'x':1,")
    ),
    *((text, [ErrorCode.INVALID_JSON]) for text in ('"x":nul,', "x:1,", "/**/", "\f", "\ufeff", '"x":nan,')),
    *(
        (text, [])
        for text in ('"x":null,', '"x":1e400,', '"x":[{},[]],', '"\\u0078\\\\ud800":"\\ud83d\\ude00",', "\n\t\r ")
    ),
]


@_wire("insertion into the text", everything)
def _insertion(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.insertion, codes = choose(_INSERTIONS)
    return codes


@_wire("text cut short", everything)
def _cut_text(draft: Draft, _: Draft, choose: Choose) -> Codes:
    text = draft.text
    draft.raw_text = text[: choose(range(1, text.rindex(b"}") + 1))]
    return [ErrorCode.INVALID_JSON, ErrorCode.INVALID_UTF8]


@_wire("byte that is not UTF-8", everything)
def _no_utf8(draft: Draft, _: Draft, choose: Choose) -> Codes:
    text = draft.text
    place = choose(range(len(text)))
    draft.raw_text = text[:place] + choose([b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]) + text[place:]
    return [ErrorCode.INVALID_UTF8]


@_wire("byte order mark", everything)
def _byte_order_mark(draft: Draft, _: Draft, choose: Choose) -> Codes:
    mark = choose(["utf-8-sig", "utf-16", "utf-32"])
    draft.raw_text = draft.text.decode().encode(mark)
    return [ErrorCode.INVALID_UTF8]


@_wire("text that is no object", everything)
def _array(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.raw_text = choose([b"[%b]" % draft.text, b"5", b'"x"', b"null", b"[]", b"true"])
    return [ErrorCode.INVALID_HEADER]


@_wire("text behind the text", everything)
def _behind(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.raw_text = draft.text + choose([b"{}", b"]", b"}", b"x", b",", b"\0", b"\x0b"])
    return [ErrorCode.INVALID_JSON]


@_wire("white space around the text", everything)
def _white_space(draft: Draft, _: Draft, choose: Choose) -> Codes:
    space = choose([b" ", b"\n\n", b"\r\n\t "])
    draft.raw_text = space + draft.text + space
    return []


# Lengths


def _framed(draft: Draft) -> Sequence[Draft]:
    return [draft] if draft.has_header_length and draft.has_body_length else []


@_wire("header length too large", _framed)
def _long_header(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.header_length = len(draft.text) + choose([1, 2, 100, 1 << 40])
    text = [ErrorCode.INVALID_JSON, ErrorCode.INVALID_UTF8, ErrorCode.BODY_LENGTH_MISMATCH]
    return [ErrorCode.HEADER_EXCEEDS_BODY, *text]


@_wire("header length too small", _framed)
def _short_header(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.header_length = choose(range(1, len(draft.text)))
    return [ErrorCode.INVALID_JSON, ErrorCode.INVALID_UTF8, ErrorCode.BODY_LENGTH_MISMATCH]


@_wire("header length missing", with_payload)
def _no_header_length(draft: Draft, _: int, __: Choose) -> Codes:
    draft.has_header_length = False
    return [ErrorCode.INVALID_JSON, ErrorCode.INVALID_UTF8, ErrorCode.BODY_LENGTH_MISMATCH]


@_wire("no body", everything)
def _no_body(draft: Draft, _: Draft, __: Choose) -> Codes:
    draft.raw_text = b""
    draft.payloads.clear()
    return [ErrorCode.EMPTY_BODY]


@_wire("payload cut short", with_payload)
def _cut_payload(draft: Draft, _: int, choose: Choose) -> Codes:
    draft.payloads = [draft.payload[: choose(range(len(draft.payload)))]]
    return [ErrorCode.BODY_LENGTH_MISMATCH if draft.has_body_length else ErrorCode.TRUNCATED]


@_wire("bytes behind the payload", _framed)
def _long_payload(draft: Draft, _: Draft, choose: Choose) -> Codes:
    draft.payloads.append(choose([b"\0", b" ", b"}", bytes(100)]))
    return [ErrorCode.BODY_LENGTH_MISMATCH]


# Bytes of tensors


@_wire("BOOL that is neither", of(with_payload, {"BOOL"}))
def _bool(draft: Draft, index: int, choose: Choose) -> Codes:
    payload = bytearray(draft.payloads[index])
    payload[choose(range(len(payload)))] = choose([2, 0x80, 0xFF])
    draft.payloads[index] = bytes(payload)
    return [ErrorCode.INVALID_BOOL]


def _prefix_places(payload: bytes | bytearray) -> list[int]:
    places, place = [], 0
    while place < len(payload):
        places.append(place)
        place += 4 + int.from_bytes(payload[place : place + 4], "little")
    return places


@_wire("length of the last element", of(with_payload, {"BYTES"}))
def _last_element(draft: Draft, index: int, choose: Choose) -> Codes:
    payload = bytearray(draft.payloads[index])
    place = _prefix_places(payload)[-1]
    length = int.from_bytes(payload[place : place + 4], "little") + choose([1, 4, 1 << 20])
    payload[place : place + 4] = length.to_bytes(4, "little")
    draft.payloads[index] = bytes(payload)
    return [ErrorCode.INVALID_ELEMENTS]


@_wire("length that overruns", of(with_payload, {"BYTES"}))
def _huge_element(draft: Draft, index: int, choose: Choose) -> Codes:
    payload = bytearray(draft.payloads[index])
    place = choose(_prefix_places(payload))
    payload[place : place + 4] = choose([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
    draft.payloads[index] = bytes(payload)
    return [ErrorCode.INVALID_ELEMENTS]


@_wire("another number", of(with_payload, NUMBERS))
def _number(draft: Draft, index: int, choose: Choose) -> Codes:
    payload = bytearray(draft.payloads[index])
    payload[choose(range(len(payload)))] ^= choose([1, 0x80, 0xFF])
    draft.payloads[index] = bytes(payload)
    draft.tensors = None
    return []
