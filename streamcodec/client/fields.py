"""Fields: the fields of a request that do not belong to its message. The user's values have precedence.

A later value wins: a call's `headers` over the client's `headers`, these over `auth`, and `auth` over credentials in
the URL. The user cannot set the fields that the message needs, such as its lengths and its form. Two different lengths
of one request would allow request smuggling. Nothing here quotes a value, because it may be a secret.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from streamcodec import __version__
from streamcodec.client.connections.address import Address
from streamcodec.engine.errors import LocalProtocolError, shown
from streamcodec.http.heads.parsed import is_host
from streamcodec.http.writing import check_field

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Fields of a request, as a mapping or in pairs."""

Auth = tuple[str, str] | str | Callable[[], str]
"""User and password; or a bearer token; or a function that returns the current token."""

Field = tuple[str, str]

_OURS: Final = {
    "accept-encoding": "response_compression says it",
    "connection": "",
    "content-encoding": "request_compression says it",
    "content-length": "",
    "content-type": "media_type says it",
    "expect": "",
    "inference-header-content-length": "",
    "keep-alive": "",
    "proxy-connection": "",
    "te": "",
    "trailer": "",
    "transfer-encoding": "",
    "upgrade": "",
}
"""Fields that only the client may set, or whose promise it cannot keep; and the argument that controls each."""


class RequestFields:
    """The fields of all requests to one server.

    Attributes:
        usual: those of a call without its own; None if each call asks for a token.
    """

    def __init__(self, address: Address, headers: Headers | None = None, auth: Auth | None = None) -> None:
        """Keep the fields of every request.

        Raises:
            LocalProtocolError: a field cannot be sent, or the credentials are invalid.
        """
        self._headers = checked_headers(headers)
        self._auth = address.credentials if auth is None else auth
        self._basics = [("Host", address.authority), ("User-Agent", f"streamcodec/{__version__}")]
        if self._auth is not None and not callable(self._auth):
            self._basics.append(_authorization(self._auth))
        self.usual: list[Field] | None = None if callable(self._auth) else self._of_call(None)

    def of_call(self, headers: Headers | None) -> list[Field]:
        """Return the fields of one request.

        Raises:
            LocalProtocolError: a field cannot be sent, or a token is invalid.
            Exception: any exception that `auth` raises.
        """
        return self._of_call(headers) if headers or self.usual is None else self.usual

    def with_own(self, fields: list[Field]) -> list[Field]:
        """Return the fields of a request whose message is the caller's own, with all fields that describe it.

        Raises:
            LocalProtocolError: a token is invalid.
            Exception: any exception that `auth` raises.
        """
        return sorted(_override(self.of_call(None), fields), key=_is_behind_host)

    def _of_call(self, headers: Headers | None) -> list[Field]:
        fields = _override(self._headers, checked_headers(headers))
        if callable(self._auth) and not any(name.lower() == "authorization" for name, _ in fields):
            fields = [_authorization(self._auth()), *fields]
        fields = _override(self._basics, fields)
        return sorted(fields, key=_is_behind_host)


def _is_behind_host(field: Field) -> bool:
    return field[0].lower() != "host"  # it should be the first (RFC 9110, section 7.2)


def _override(fields: list[Field], winners: list[Field]) -> list[Field]:
    """Append fields to others, and drop the others with the same names."""
    names = {name.lower() for name, _ in winners}
    return [field for field in fields if field[0].lower() not in names] + winners


def checked_headers(headers: Headers | None) -> list[Field]:
    """Return fields as pairs.

    Raises:
        LocalProtocolError: they are invalid, or only the client may set them.
    """
    try:
        fields = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        raise LocalProtocolError("headers must be a mapping of names to values, or pairs of them") from None
    for name, value in fields:
        if not (type(name) is type(value) is str):
            raise LocalProtocolError("names and values of headers must be str")
        if (reason := _OURS.get(name.lower())) is not None:
            msg = f"only the client may set the field {shown(name)}"
            raise LocalProtocolError(f"{msg}; {reason}" if reason else msg)
        check_field(name, value)
    hosts = [value for name, value in fields if name.lower() == "host"]
    if len(hosts) > 1 or not all(host and is_host(host) for host in hosts):
        raise LocalProtocolError("the field Host must be one name or address of a host in ASCII, with an optional port")
    return fields


def _authorization(auth: tuple[str, str] | str) -> Field:
    """Return the field for credentials (RFC 7617, RFC 6750).

    Raises:
        LocalProtocolError: they are not text, or have characters that are not allowed.
    """
    match auth:
        case str(token):
            field = ("Authorization", f"Bearer {token}")
        case (str(user), str(password)) if ":" not in user:
            field = ("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
        case _:
            raise LocalProtocolError(
                "auth must be a pair of user (without a colon) and password, or a token, or a function that returns one"
            )
    check_field(*field)
    return field
