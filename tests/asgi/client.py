"""Client: one request to an ASGI application, without a server: what a server would say, and what it would be told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

import anyio

from streamcodec.asgi import App
from streamcodec.asgi.app import Message, Scope


def scope_of(
    method: str,
    target: str,
    fields: Iterable[tuple[bytes, bytes]] = (),
    *,
    root_path: str = "",
    http_version: str = "1.1",
) -> Scope:
    """Return the scope of a request; the target includes `root_path`."""
    path, _, query = target.partition("?")
    headers = [(name.lower(), value) for name, value in fields]
    if not any(name == b"host" for name, _ in headers):
        headers.append((b"host", b"x"))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": http_version,
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": root_path,
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }


@dataclass
class Exchanged:
    """What has passed between a server and an application."""

    pieces: deque[bytes]
    """Of the body that have not been asked for yet."""
    has_empty_end: bool = False
    """Whether the last message of the body is empty, as hypercorn's and granian's."""
    is_cut: bool = False
    """Whether the client leaves in place of the end."""
    sent: list[Message] = field(default_factory=list)
    received: int = 0
    """Messages of the body that were asked for."""
    left: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client has left."""

    async def receive(self) -> Message:
        """Return the next message of the server."""
        await anyio.lowlevel.checkpoint()
        if self.received and not self.pieces:
            if not self.is_cut:
                await self.left.wait()
            return {"type": "http.disconnect"}
        self.received += 1
        body = self.pieces.popleft() if self.pieces else b""
        more = bool(self.pieces) or self.is_cut
        if self.has_empty_end and not more and body:
            self.pieces.append(b"")
            more = True
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        await anyio.lowlevel.checkpoint()
        self.sent.append(message)

    @property
    def status(self) -> int:
        """Of the answer."""
        assert self.sent[0]["type"] == "http.response.start"
        return int(self.sent[0]["status"])

    @property
    def fields(self) -> dict[str, str]:
        """Of the answer; names in lower case."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """Of the answer."""
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def is_whole(self) -> bool:
        """Whether the answer has come to its end, once."""
        more = [message.get("more_body", False) for message in self.sent[1:]]
        return bool(more) and more == [*[True] * (len(more) - 1), False]


async def ask(app: App, scope: Scope, pieces: Iterable[bytes] = (), *, has_empty_end: bool = False) -> Exchanged:
    """Have a request answered."""
    exchanged = Exchanged(deque(pieces), has_empty_end=has_empty_end)
    await app(scope, exchanged.receive, exchanged.send)
    return exchanged
