"""Routing: the one reading of a request's target. Sans-IO.

What the guard decides about a request, and what it writes to the server behind, both come from the `RequestTarget` that
is made here; the text of the client goes no further. There is one canonical way to write a path, and a router that
decodes before it matches (Starlette's) reads the same segments in it as one that does not (Triton's). What two readers
could take for two things is refused: what is decoded twice, cut at a separator that was encoded, resolved against the
segments before it, or merged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.http.heads.parsed import invalid_http
from streamcodec.service.routes import check_escapes

_ABSOLUTE: Final = re.compile(r"https?://(?P<authority>[^/?]+)(?P<rest>(?:[/?].*)?)", re.IGNORECASE | re.ASCII)
_UNPRINTABLE: Final = re.compile(r"[^!-~]|%(?:[01][0-9A-F]|7F)", re.IGNORECASE | re.ASCII)
"""Raw, also what is not ASCII; or encoded, which a decoder turns into a control character: `infer%0A`."""
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-F]{2})", re.IGNORECASE | re.ASCII)
_SEPARATOR: Final = re.compile(r"[\\;]|%(?:2F|5C|3B|3F|23|25)", re.IGNORECASE | re.ASCII)
r"""What some readers cut a path at: `\` and `;` in any form, and `/`, `?` and `#` if they are encoded. A percent sign,
encoded, would be the beginning of an escape to who decodes twice."""
_NO_PATH: Final = re.compile(r"""["<>\[\]^`{|}]""")
"""Characters that no path has, unless they are encoded (RFC 3986, section 3.3). To encode them here would take long."""
_SEGMENT: Final = re.compile(r"//|/\.\.?(?:/|\Z)|(?<=.)/\Z", re.DOTALL)
"""An empty segment or a dot segment, in a path that was decoded."""
_INVISIBLE: Final = re.compile("[\x80-\x9f\u2028\u2029]")
"""Control characters and line ends beyond ASCII."""
_LITERAL: Final = "/!$&'()*+,=:@"
"""Characters that stand for themselves in a path, besides letters, digits and `-._~` (RFC 3986, section 3.3)."""


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The target of a request, in the only form in which it is passed on."""

    path: str
    """In origin form: it begins with a slash, and each character is written in one way."""
    query: str
    """As it came, with its question mark; empty if there is none."""


def target_of(head: RequestHead) -> RequestTarget:
    """Read the target of a request.

    A target in absolute form is one of this server only if it names the same host as `Host` does (RFC 9112, section
    3.2.2). The guard is no proxy for other servers, and passes on no other scheme.

    Raises:
        RemoteProtocolError: `invalid-http`: it is in no form that has one meaning, or takes long to decode.
    """
    text = head.target
    if _UNPRINTABLE.search(text):
        raise _refused("a control character, or one that is not ASCII")
    if _BAD_ESCAPE.search(text):
        raise _refused("a percent sign without two hexadecimal digits")
    if "#" in text:
        raise _refused("a fragment, which belongs to the client alone")
    if not text.startswith("/"):
        text = _without_origin(text, head.fields.values(b"host"))
    raw, mark, query = text.partition("?")
    return RequestTarget(_canonical(raw), mark + query)


def _without_origin(text: str, hosts: list[bytes]) -> str:
    """Return path and query of a target in absolute form."""
    found = _ABSOLUTE.fullmatch(text)
    if found is None:
        raise _refused("no slash at its beginning, and is no http or https URL")
    if any(host.decode("latin-1").lower() != found["authority"].lower() for host in hosts):
        raise _refused("another host than the field Host")
    rest = found["rest"]
    return rest if rest.startswith("/") else f"/{rest}"


def _canonical(raw: str) -> str:
    """Return the canonical form of a path."""
    check_escapes(raw)
    if _SEPARATOR.search(raw):
        raise _refused("a separator that others may read differently: an encoded / or %, a backslash or a semicolon")
    if _NO_PATH.search(raw):
        raise _refused("a character that has to be encoded")
    try:
        path = unquote(raw, errors="strict")
    except ValueError:
        raise _refused("an escape that is not UTF-8") from None
    if _SEGMENT.search(path):
        raise _refused("an empty segment, or . or ..")
    if _INVISIBLE.search(path):
        raise _refused("a control character")
    return quote(path, safe=_LITERAL)


def _refused(what: str) -> RemoteProtocolError:
    return invalid_http(f"the request target has {what}")
