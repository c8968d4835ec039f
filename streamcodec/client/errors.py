"""Errors: the error answers of a server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError, printable

_REDIRECTION: Final = range(300, 400)
_MAX_LOCATION: Final = 200
_TITLE: Final = re.compile(r"\s*<.*?<title>\s*([^<]{1,200}?)\s*</title>", re.DOTALL | re.IGNORECASE)
"""The title of a proxy's HTML page."""


class Headers(Mapping[str, str]):
    """The fields of an answer by name, in any letter case. Several fields with one name are joined by commas."""

    def __init__(self, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Keep the fields of a head."""
        self._values: dict[str, str] = {}
        for name, value in fields:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self._values[key] = f"{self._values[key]}, {text}" if key in self._values else text

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


class ServerError(RemoteProtocolError):
    """The server answered with an error status, or with a redirection, which is not followed.

    The message is safe for a log or a terminal, whatever the server has sent. For an HTML page, as from a proxy, it
    contains only the title. `text` is unchanged.

    `code` is `error-response`: V2 servers have no codes of their own. `status_hint` is 502, for a proxy that passes the
    error on: its own client should see that the fault is behind the proxy.

    Attributes:
        status: HTTP status code of the answer.
        text: the server's text, unchanged: it may contain control characters.
        headers: fields of the answer, as `headers["Retry-After"]`, in any letter case.
        is_v2: whether the text is the `error` member of the answer, as V2 servers write it.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Keep the status, the server's text, and the fields of the answer."""
        self.headers: Mapping[str, str] = Headers() if headers is None else headers
        page = _TITLE.match(text)
        words = page[1] if page else text
        if status in _REDIRECTION and (location := self.headers.get("location")) is not None:
            words = f"the server redirects to {location[:_MAX_LOCATION]}, and redirections are not followed"
        super().__init__(f"{status}: {printable(words)}", code=ErrorCode.ERROR_RESPONSE, status_hint=502)
        self.status = status
        self.text = text
        self.is_v2 = False
