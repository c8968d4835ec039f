"""The corpus over ASGI: however a server hands over a body, the answer is that of the bundled server."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

import anyio
import pytest

from streamcodec import EndOfMessage, MessageError
from streamcodec.asgi import App
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.service import Reply, Service
from streamcodec.transports.sockets.vectors import batches
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


FILES: Final = sorted({case.file for case in read_corpus()})


def cases_of(file: str) -> Iterator[tuple[Case, bytes, RequestHead, bytes]]:
    """Yield the cases of a file that are left when a server has refused violations of HTTP, with their parts."""
    for case in read_corpus():
        if case.file == file and case.kind in {"http-request", "request"}:
            message = request_of(case)
            if parts := taken_apart(message, service_for(case)):
                yield case, message, *parts


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_answers_are_those_of_the_bundled_server(file: str) -> None:
    async def main() -> None:
        for case, message, head, body in cases_of(file):
            await _check(case, message, head, body)

    anyio.run(main)


def test_corpus_is_left_to_answer() -> None:
    assert len(list(cases_of("raw.md"))) > 20


async def _check(case: Case, message: bytes, head: RequestHead, body: bytes) -> None:
    """Insist that a case is answered alike, however its body comes."""
    reply = reply_of(service_for(case), message)
    assert reply is not None
    expected = _answer(reply, head)
    for app in (App(service_for(case)), App(service_for(case, is_inline=True))):
        for pieces, has_empty_end in ways(body):
            scope = scope_of(head.method, head.target, head.fields.items)
            exchanged = await ask(app, scope, pieces, has_empty_end=has_empty_end)
            fields = {**exchanged.fields}
            fields.pop("connection", None)
            if "content-length" not in expected[1]:
                fields.pop("content-length", None)
            assert (exchanged.status, fields, exchanged.body) == expected, case
            assert exchanged.is_whole, case
