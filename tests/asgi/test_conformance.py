"""The corpus over ASGI: however a server hands over a body, the answer is that of the bundled server."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import anyio
import pytest

from streamcodec import EndOfMessage, MessageError
from streamcodec.asgi import App
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.service import Reply, Service
from streamcodec.transports.vectors import batches
from tests.asgi.client import ask, scope_of
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import reply_of, request_of, service_for

_ENCODING: Final = re.compile(rb"\r\ncontent-encoding:", re.IGNORECASE)

Answer = tuple[int, dict[str, str], bytes]
"""Status, fields and body."""


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # some models of the corpus fail


def taken_apart(message: bytes, service: Service) -> tuple[RequestHead, bytes] | None:
    """Return head and body of the first request, the body's framing undone; None if that breaks a rule of HTTP."""
    first = ServerConnection(service.limits)
    second = ServerConnection(service.limits)  # to which nothing is compressed
    collector = Collector(1 << 20)
    try:
        first.feed(message)
        head = first.next_event()
        message = _ENCODING.sub(b"\r\nx-encoding:", message)
        rest = message[second.feed(message) :]
        if not isinstance(head, RequestHead) or not isinstance(second.next_event(), RequestHead):
            return None
        second.receive_body(collector)
        second.feed(rest)
        second.receive_eof()
        return (head, bytes(collector.data)) if isinstance(second.next_event(), EndOfMessage) else None
    except MessageError:
        return None


def _answer(reply: Reply, head: RequestHead) -> Answer:
    body = b"".join(chain.from_iterable(batches(reply.buffers)))
    fields = {name.lower(): value for name, value in reply.headers}
    return reply.status, fields, b"" if head.method == "HEAD" else body


def ways(body: bytes) -> Iterator[tuple[list[bytes], bool]]:
    """Yield the pieces of a body as servers hand them over, and whether the last one is empty."""
    middle = len(body) // 2
    for pieces in (
        [body],
        [body[:-1], body[-1:]],
        [body[:middle], b"", body[middle:]],
        [body[index : index + 7] for index in range(0, len(body), 7)],
    ):
        yield pieces, False
        yield pieces, True


def _cases() -> Iterator[Any]:
    """Yield the cases that are left when a server has refused what breaks a rule of HTTP, with their parts."""
    for case in read_corpus():
        if case.kind in {"http-request", "request"}:
            message = request_of(case)
            if parts := taken_apart(message, service_for(case)):
                yield pytest.param(case, message, *parts, id=str(case))


@pytest.mark.parametrize(("case", "message", "head", "body"), list(_cases()))
def test_the_answer_is_that_of_the_bundled_server(case: Case, message: bytes, head: RequestHead, body: bytes) -> None:
    service = service_for(case)
    reply = reply_of(service_for(case), message)
    assert reply is not None
    expected = _answer(reply, head)
    is_known = service_for(case, is_inline=True)

    async def main() -> None:
        for app in (App(service), App(is_known)):
            for pieces, has_empty_end in ways(body):
                scope = scope_of(head.method, head.target, head.fields.items)
                exchanged = await ask(app, scope, pieces, has_empty_end=has_empty_end)
                fields = {**exchanged.fields}
                fields.pop("connection", None)
                if "content-length" not in expected[1]:
                    fields.pop("content-length", None)
                assert (exchanged.status, fields, exchanged.body) == expected
                assert exchanged.is_whole

    anyio.run(main)
