"""Fields: which fields of a head are passed on, in both directions. Sans-IO.

Fields about one connection are not passed on (RFC 9110, section 7.6.1): those that `Connection` names, and the usual
ones. `Upgrade` is one of them, so nobody can switch the protocol through this proxy: the client gets the ordinary
answer, as RFC 9110, section 7.8, permits.

The fields that say where a body and its JSON header end are written anew, each once and in its plainest form. So the
server behind cannot read them in another way than the guard has. `Expect` ends here, because the guard answers it.

`Host` is that of the server behind. The client's is in `X-Forwarded-Host`. Its address is appended to
`X-Forwarded-For`, whose other entries are only as true as whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.http.messages import Fields, RequestHead, ResponseHead

RawFields = list[tuple[bytes, bytes]]

_HOPS: Final = frozenset(
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
MEANT: Final = _HOPS | _ANEW | {_HEADER_LENGTH.lower(), b"content-encoding", b"content-type"}
"""Names of all fields that mean something here, in lower case. The others are passed on as they are."""
_FORWARDED_FOR: Final = b"x-forwarded-for"


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
    header_length, media_type = head.fields.header_form
    if header_length is not None and media_type is None:
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


def _kept(fields: Fields) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields that are not about one connection."""
    named = {name.strip().lower() for value in fields.values(b"connection") for name in value.split(b",")}
    for name, value in fields.items:
        if name not in _HOPS and name not in named:
            yield name, value
