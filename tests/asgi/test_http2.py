"""HTTP/2: the end of a body is a frame of its own, and comes when it likes. No answer begins before it."""

from __future__ import annotations

from typing import Any, Final

import anyio
import numpy as np
import pytest

from streamcodec.asgi.app import Message
from streamcodec.server import ServerOptions
from tests.asgi.client import scope_of
from tests.asgi.test_app import app_of, infer, on_both, run

SMALL: Final = np.arange(16, dtype=np.float32)
LARGE: Final = np.arange(1 << 18, dtype=np.float32)
OPTIONS: Final = ServerOptions(read_timeout=0.4)
PATIENT: Final = ServerOptions(read_timeout=20.0, idle_timeout=0.2)
"""Looks every 50 ms; the other limits are far away."""


class Late:
    """A client whose end comes late, or never; what the application sends."""

    def __init__(self, body: bytes, seconds: float, end: Message | None = None) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": body[:-1], "more_body": True},
            {"type": "http.request", "body": body[-1:], "more_body": True},
            {"type": "http.request", "body": b"", "more_body": True},
            end or {"type": "http.request", "body": b"", "more_body": False},
        ]
        if len(body) < 1000:
            self._messages[:2] = [{"type": "http.request", "body": body, "more_body": True}]
        self._seconds = seconds
        self._due = 0.0
        self.sent: list[Message] = []
        self.sent_before_end: int | None = None

    async def receive(self) -> Message:
        if len(self._messages) == 1:
            self._due = self._due or anyio.current_time() + self._seconds
            await anyio.sleep_until(self._due)
            if self.sent_before_end is None:
                self.sent_before_end = len(self.sent)
            return self._messages[0]
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def scope_and_body(x: np.ndarray[Any, Any]) -> tuple[Any, bytes]:
    scope, body = infer(x)
    return {**scope, "http_version": "2"}, body


def ask(
    backend: str, x: np.ndarray[Any, Any], seconds: float, end: Message | None = None, options: ServerOptions = PATIENT
) -> list[Late]:
    """Have several requests answered, of which the last ones have known heads."""
    scope, body = scope_and_body(x)
    app = app_of(is_inline=True, options=options)
    clients = [Late(body, seconds, end) for _ in range(3)]

    async def main() -> None:
        for client in clients:
            await app(scope, client.receive, client.send)

    run(main, backend=backend)
    assert app.frontend.budget.reserved == 0
    return clients


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("seconds", [0.0, 0.25], ids=["soon", "after several looks"])
def test_no_answer_begins_before_the_end(backend: str, x: np.ndarray[Any, Any], seconds: float) -> None:
    for client in ask(backend, x, seconds):
        assert client.sent[0]["status"] == 200
        assert client.sent_before_end == 0


@pytest.mark.slow
@on_both
def test_an_end_that_does_not_come_is_not_waited_for_longer_than_a_byte(backend: str) -> None:
    for client in ask(backend, SMALL, 60.0, options=OPTIONS):
        assert client.sent[0]["status"] == 408


def test_a_client_that_leaves_in_place_of_the_end_has_not_asked() -> None:
    for client in ask("asyncio", SMALL, 0.0, {"type": "http.disconnect"}):
        assert client.sent[0]["status"] == 400


def test_more_than_the_length_is_dropped() -> None:
    for client in ask("asyncio", SMALL, 0.0, {"type": "http.request", "body": b"more", "more_body": False}):
        assert client.sent[0]["status"] == 200


@pytest.mark.parametrize("length", [b"9" * 5000, b"x"])
def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    scope = scope_of("POST", "/v2/models/m/infer", [(b"content-length", length)], http_version="2")
    client = Late(b"", 0.0)
    run(app_of(), scope, client.receive, client.send)
    assert 400 <= client.sent[0]["status"] < 500
