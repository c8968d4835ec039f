"""Fields: which fields of a head are passed on, in both directions. Sans-IO.

Fields about one connection are not passed on (RFC 9110, section 7.6.1): those that `Connection` names, and the usual
ones. `Upgrade` is one of them, so nobody can switch the protocol through this proxy: the client gets the ordinary
answer, as RFC 9110, section 7.8, permits.

Fields that say what the body is are for all who read it, so `Connection` must not name them (RFC 9110, section 7.6.1).
They are passed on although it does: without them, the body would be read in another way than the guard has read it.

The fields that say where a body and its JSON header end are written anew, each once and in its plainest form. So the
server behind cannot read them in another way than the guard has. `Expect` ends here, because the guard answers it.

A server that makes variables of fields, as CGI and WSGI do, reads `content_length` as `Content-Length`, and the guard
does not. So a field that would mean something here with dashes is refused with underscores.

`Host` is that of the server behind. The client's is in `X-Forwarded-Host`. Its address is appended to
`X-Forwarded-For`, whose other entries are only as true as whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from streamcodec.engine.errors import shown
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD, header_length_of
from streamcodec.http.heads.messages import Fields, RequestHead, ResponseHead
from streamcodec.http.heads.parsed import invalid_http
from streamcodec.http.heads.statuses import ends_with_head

RawFields = list[tuple[bytes, bytes]]

HOPS: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_HEADER_LENGTH: Final = HEADER_LENGTH_FIELD.encode()
_ANEW: Final = frozenset({b"host", b"expect", b"content-length", b"x-forwarded-for", b"x-forwarded-host"})
MEANT: Final = HOPS | _ANEW | {_HEADER_LENGTH.lower(), b"content-encoding", b"content-type"}
"""Names of all fields that mean something here, in lower case. The others are passed on as they are."""
_BODY: Final = frozenset({b"content-encoding", b"content-length", b"content-type", _HEADER_LENGTH.lower()})
_FORWARDED_FOR: Final = b"x-forwarded-for"


def check_names(fields: Fields) -> None:
    """Refuse a field whose name others read as one that means something here: `content_length`, `Transfer_Encoding`.

    Raises:
        RemoteProtocolError: `invalid-http`.
    """
    for name, _ in fields.items:
        if b"_" in name and name.replace(b"_", b"-") in MEANT:
            msg = f"the field {shown(name.decode('latin-1'))} has underscores where a field with a meaning has dashes"
            raise invalid_http(msg)


def request_fields(
    head: RequestHead, *, host: str, client: str, length: int | None, is_decoded: bool = False
) -> RawFields:
    """Return the fields of a request that is passed on.

    Args:
        head: as it came.
        host: of the server behind.
        client: address of the client; empty if it is not known.
        length: bytes of the body that is passed on; None if there is none.
        is_decoded: whether that body has no longer the compression that it came with.
    """
    dropped = _ANEW | {_HEADER_LENGTH.lower()} | ({b"content-encoding"} if is_decoded else set())
    fields = [(b"Host", host.encode("ascii"))]
    fields += [(name, value) for name, value in _kept(head.fields) if name not in dropped]
    fields += [(b"X-Forwarded-Host", value) for value in head.fields.values(b"host")]
    if chain := [value for value in (*head.fields.values(_FORWARDED_FOR), client.encode("ascii")) if value]:
        fields.append((b"X-Forwarded-For", b", ".join(chain)))
    if (header_length := header_length_of(head.fields)) is not None:  # a server behind need not know the media type
        fields.append((_HEADER_LENGTH, b"%d" % header_length))
    if length is not None:
        fields.append((b"Content-Length", b"%d" % length))
    return fields


def response_fields(head: ResponseHead, *, is_last: bool) -> RawFields:
    """Return the fields of an answer that is passed on.

    Args:
        head: as it came.
        is_last: whether the connection to the client is to be closed after it.
    """
    fields = [*_kept(head.fields)]
    return [*fields, (b"Connection", b"close")] if is_last else fields


def has_wrong_length(head: ResponseHead) -> bool:
    """Whether an answer that can have no body announces one, which may follow.

    A 304 may have the length of the answer that it stands for (RFC 9110, section 8.6).
    """
    lengths = head.fields.values(b"content-length") if head.status == HTTPStatus.NO_CONTENT else []
    return ends_with_head(head.status) and (head.fields.is_chunked or any(map(int, lengths)))


def _kept(fields: Fields) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields that are not about one connection."""
    named = {name.strip().lower() for value in fields.values(b"connection") for name in value.split(b",")}
    for name, value in fields.items:
        if name not in HOPS and (name not in named or name in _BODY):
            yield name, value
