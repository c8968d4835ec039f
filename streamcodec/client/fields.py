"""Fields: what the head of a request says besides what belongs to its message. The user's word comes first.

Whoever is asked later knows more: a call's `headers` win over the client's, those over `auth`, and `auth` over
credentials in the URL. What the message itself needs, its lengths and its form, is not the user's to say; two answers
to where a request ends are how requests are smuggled. Nothing here quotes a value, as it may be a secret.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from streamcodec import __version__
from streamcodec.client.address import Address
from streamcodec.engine.errors import LocalProtocolError, shown
from streamcodec.http.heads import is_host
from streamcodec.http.writing import check_field

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Fields of a request, as a mapping or in pairs."""

Auth = tuple[str, str] | str | Callable[[], str]
"""A user and a password; or a bearer token; or what returns the token that is valid now."""

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
"""Names of fields that the client says itself, or cannot keep the promise of, and who has a say in them."""


class RequestFields:
    """The fields of all requests to one server."""

    def __init__(self, address: Address, headers: Headers | None = None, auth: Auth | None = None) -> None:
        """Keep what every request says.

        Raises:
            LocalProtocolError: a field that cannot be sent, or credentials that are none.
        """
        self._headers = _checked(headers)
        self._auth = address.credentials if auth is None else auth
        self._basics = [("Host", address.authority), ("User-Agent", f"streamcodec/{__version__}")]
        if self._auth is not None and not callable(self._auth):
            self._basics.append(_authorization(self._auth))
        self._usual = None if callable(self._auth) else self._of_call(None)

    def of_call(self, headers: Headers | None) -> list[Field]:
        """Return the fields of one request.

        Raises:
            LocalProtocolError: a field that cannot be sent, or a token that is none.
            Exception: whatever `auth` raises when it is asked for a token.
        """
        return self._of_call(headers) if headers or self._usual is None else self._usual

    def _of_call(self, headers: Headers | None) -> list[Field]:
        fields = _override(self._headers, _checked(headers))
        if callable(self._auth) and not any(name.lower() == "authorization" for name, _ in fields):
            fields = [_authorization(self._auth()), *fields]
        fields = _override(self._basics, fields)
        return sorted(fields, key=_is_behind_host)


def _is_behind_host(field: Field) -> bool:
    return field[0].lower() != "host"  # which should be the first (RFC 9110, section 7.2)


def _override(fields: list[Field], winners: list[Field]) -> list[Field]:
    """Put fields behind others, and leave out those of the others that have their names."""
    names = {name.lower() for name, _ in winners}
    return [field for field in fields if field[0].lower() not in names] + winners


def _checked(headers: Headers | None) -> list[Field]:
    """Return fields in pairs.

    Raises:
        LocalProtocolError: they are none, or not for the user to say.
    """
    try:
        fields = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        raise LocalProtocolError("headers are a mapping of names to values, or pairs of them") from None
    for name, value in fields:
        if not (type(name) is type(value) is str):
            raise LocalProtocolError("names and values of headers are str")
        if (reason := _OURS.get(name.lower())) is not None:
            msg = f"the field {shown(name)} is for the client to say"
            raise LocalProtocolError(f"{msg}; {reason}" if reason else msg)
        check_field(name, value)
    hosts = [value for name, value in fields if name.lower() == "host"]
    if len(hosts) > 1 or not all(host and is_host(host) for host in hosts):
        raise LocalProtocolError("the field Host is one name or address of a host, in ASCII, perhaps with a port")
    return fields


def _authorization(auth: tuple[str, str] | str) -> Field:
    """Return the field that credentials make (RFC 7617, RFC 6750).

    Raises:
        LocalProtocolError: they are no text, or have characters that they may not have.
    """
    match auth:
        case str(token):
            field = ("Authorization", f"Bearer {token}")
        case (str(user), str(password)) if ":" not in user:
            field = ("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
        case _:
            raise LocalProtocolError(
                "auth is a pair of user (without a colon) and password, or a token, or what returns a token"
            )
    check_field(*field)
    return field
