"""Errors: what a server has answered instead of what it was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError, printable

_REDIRECTION: Final = range(300, 400)
_MAX_LOCATION: Final = 200
_TITLE: Final = re.compile(r"\s*<.*?<title>\s*([^<]{1,200}?)\s*</title>", re.DOTALL | re.IGNORECASE)
"""What a proxy's page says in one line."""


class Headers(Mapping[str, str]):
    """The fields of an answer by their names, in any letter case. Several of one name are joined by commas."""

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

    What it prints as is fit for a log or a terminal, whatever the server has said, and of a page of HTML, as proxies
    answer, just the title; `text` is as it came.

    `code` is `error-response`: V2 servers have no codes of their own. `status_hint` is 502, for a proxy that passes it
    on: to the proxy's own client, the fault is behind it.

    Attributes:
        status: HTTP status code of the answer.
        text: the server's own words, as they came: they may hold control characters.
        headers: fields of the answer, as `headers["Retry-After"]`, in any letter case.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Keep the status, the server's own words, and the fields of the answer."""
        self.headers: Mapping[str, str] = Headers() if headers is None else headers
        page = _TITLE.match(text)
        words = page[1] if page else text
        if status in _REDIRECTION and (location := self.headers.get("location")) is not None:
            words = f"the server redirects to {location[:_MAX_LOCATION]}, and redirections are not followed"
        super().__init__(f"{status}: {printable(words)}", code=ErrorCode.ERROR_RESPONSE, status_hint=502)
        self.status = status
        self.text = text
