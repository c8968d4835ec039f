"""Plain heads: reads the head of a usual request or response in one pass, without h11.

One strict expression matches a *plain* head, from its first byte to the blank line. Nearly all heads are plain. What is
not plain is left to `parsed`, and so is every refusal: this room never refuses anything. A plain head has `keep-alive`,
`close` or nothing in `Connection`; one number, `chunked` or nothing for the length of its body; neither `Expect` nor
`Upgrade`; and no field twice that means something here. That of a request has one valid `Host`, that of a response is a
final one.

So the result is what `parsed` would return, for each head for which there is a result. It depends on the bytes alone,
and nothing is remembered. To match a head of seven fields takes 1 to 2 µs, to make a `RequestHead` of it 5 µs. With h11
that is 40 µs (CPython 3.11).
"""

from __future__ import annotations

import re
from typing import Final

from streamcodec.engine.errors import LimitExceededError
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.http.heads.messages import Fields, RequestHead, ResponseHead
from streamcodec.http.heads.parsed import HOST, check_values
from streamcodec.http.heads.statuses import ends_with_head

METHOD: Final = 1
TARGET: Final = 2
STATUS: Final = 1
_REASON: Final = 2
HOST_FIELD: Final = 3
LENGTH: Final = 4
HEADER_LENGTH: Final = 5
MEDIA_TYPE: Final = 6
ACCEPTED: Final = 7
OPTION: Final = 8
CHUNKED: Final = 9
CODING: Final = 10
OTHER: Final = 11
"""Groups of a match: method and target of a request, or the status of a response; the values of `Host`,
`Content-Length`, `Inference-Header-Content-Length`, `Content-Type`, `Accept-Encoding`, `Connection`,
`Transfer-Encoding`, and `Content-Encoding` if it is `gzip`; and the name of another field with a meaning."""

_VALUE: Final = rb"[!-~\x80-\xff]++(?:[ \t]++[!-~\x80-\xff]++)*+"
_MEANT: Final = (
    rb"access-control-[a-z-]*+|answer-memory|content-encoding|tensor-memory|upload-[a-z-]*+"  # the other ones
)
_SINGLE: Final = (
    rb"accept-encoding|connection|content-length|content-type|expect|host|inference-header-content-length"
    rb"|transfer-encoding|upgrade"
)


def _once(group: int, name: bytes, value: bytes) -> bytes:
    """Return an expression for a field that may occur once, and whose value is this group."""
    return rb"(?(%d)(?!)|(?i:%b):[ \t]*+(%b)\r\n)" % (group, name, value)


_FIELDS: Final = (
    rb"\r\n(?:"
    + rb"|".join(
        [
            _once(HOST_FIELD, rb"host", HOST.pattern),
            _once(LENGTH, rb"content-length", rb"[0-9]{1,15}+"),
            _once(HEADER_LENGTH, rb"inference-header-content-length", rb"[0-9]{1,15}+"),
            _once(MEDIA_TYPE, rb"content-type", _VALUE),
            _once(ACCEPTED, rb"accept-encoding", _VALUE),
            _once(OPTION, rb"connection", rb"(?i:keep-alive|close)"),
            _once(CHUNKED, rb"transfer-encoding", rb"chunked"),
            _once(CODING, rb"content-encoding", rb"gzip"),
            rb"(?i:(%b)):[ \t]*+(?:%b)?+\r\n" % (_MEANT, _VALUE),
            rb"(?!(?i:%b|%b):)[!#$%%&'*+\-.^_`|~0-9A-Za-z]++:[ \t]*+(?:%b)?+\r\n" % (_MEANT, _SINGLE, _VALUE),
        ]
    )
    + rb")*\r\n"  # not possessive: with groups within, the module `re` of Python 3.11 loses count
)
_REQUEST: Final = re.compile(rb"(GET|POST|HEAD|PUT|PATCH|DELETE|OPTIONS) (/[!-~]*+) HTTP/1\.1" + _FIELDS)
_RESPONSE: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])((?: [\t -~\x80-\xff]*+)?)" + _FIELDS)
_OTHER_LINES: Final = 2
"""The first line, and the empty line at the end."""

_new_request: Final = constructor(RequestHead)
_new_response: Final = constructor(ResponseHead)


def match_plain_head(data: bytes, limits: Limits) -> re.Match[bytes] | None:
    """Match the head of a request with which some bytes begin; return None if it is not plain, or not complete.

    Args:
        data: from the first byte of the head on.
        limits: `max_head_bytes` and `max_head_fields` apply.
    """
    found = _REQUEST.match(data)
    return found if found is not None and found[HOST_FIELD] is not None and _is_plain(found, limits) else None


def read_plain_head(head: bytes, limits: Limits) -> RequestHead | None:
    """Read the head of a request; return None if it is not plain.

    Args:
        head: the whole head, up to and including the blank line.
        limits: `max_head_bytes`, `max_head_fields` and `max_field_bytes` apply.
    """
    found = match_plain_head(head, limits)
    fields = None if found is None else _fields(found, limits)
    if found is None or fields is None:
        return None
    method, target, length = found.group(METHOD, TARGET, LENGTH)
    return _new_request(
        method=method.decode(),
        target=target.decode(),
        fields=fields,
        content_length=None if found[CHUNKED] else int(length or 0),
    )


def match_plain_response(data: bytes, limits: Limits) -> re.Match[bytes] | None:
    """Match the head of a final response with which some bytes begin; return None if it is not plain, or not complete.

    Args:
        data: from the first byte of the head on.
        limits: `max_head_bytes` and `max_head_fields` apply, and `max_field_bytes` to the first line.
    """
    found = _RESPONSE.match(data)
    is_short = found is not None and found.end(_REASON) <= limits.max_field_bytes
    return found if found is not None and is_short and _is_plain(found, limits) else None


def read_plain_response(head: bytes, limits: Limits, *, is_for_head: bool) -> ResponseHead | None:
    """Read the head of a final response; return None if it is not plain.

    Args:
        head: the whole head, up to and including the blank line.
        limits: `max_head_bytes`, `max_head_fields` and `max_field_bytes` apply.
        is_for_head: whether the request was a `HEAD`.
    """
    found = match_plain_response(head, limits)
    fields = None if found is None else _fields(found, limits)
    if found is None or fields is None:
        return None
    status, length = int(found[STATUS]), found[LENGTH]
    if is_for_head or ends_with_head(status):
        length = b"0"
    return _new_response(status=status, fields=fields, content_length=None if length is None else int(length))


def _is_plain(found: re.Match[bytes], limits: Limits) -> bool:
    """Tell whether a head has one framing, and is within the limits."""
    end = found.end()
    lines = found.string.count(b"\n", 0, end)
    is_within = end <= limits.max_head_bytes and lines - _OTHER_LINES <= limits.max_head_fields
    return is_within and not (found[LENGTH] and found[CHUNKED])


def _fields(found: re.Match[bytes], limits: Limits) -> Fields | None:
    """Return the fields of a head; None if it is not plain after all."""
    head = found.string
    if found.end() != len(head):
        return None
    fields = Fields.of_accepted(head)
    if len(head) > limits.max_field_bytes:
        try:
            check_values(fields.items, limits)
        except LimitExceededError:
            return None
    return fields
