"""Comparison: however a request is cut, by the short cut or by the ordinary way, it gets the same answers.

A request that comes whole, in one read, may be answered by the short cut; one that is cut before its last byte comes
too late for that, and one that is cut in its head has been looked at before. So each case of the corpus that is an HTTP
request comes in all three ways, as it stands and with lengths of the JSON header that reach beyond the body, to a
session without sockets and to a server.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import pytest

from streamcodec import NEED_DATA
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import Service
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import http_parts, service_for
from tests.server.connection.test_express import OrdinaryWay, sent_by
from tests.server.programs import server_here
from tests.server.wire import TIMEOUT

pytestmark = pytest.mark.slow

CASES: Final = [case for case in read_corpus() if case.kind == "http-request"]

Answers = list[tuple[int, Any]]
"""Status and body of each answer, in order."""

_FIELD: Final = re.compile(rb"\r\ninference-header-content-length:[^\r]*", re.IGNORECASE)
_FIRST_FINAL: Final = 200

_MEMORY: Final = 8 << 30
"""Bytes for all requests: what is left of the machine's memory, the default, changes between a session and a server."""


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # some models of the corpus fail


def variants(case: Case) -> Iterator[tuple[bytes, bytes]]:
    """Yield head and body of a case as it stands, then with lengths of the JSON header that exceed its body."""
    head, body = http_parts(case)
    yield head, body
    for length in (len(body) + 1, 2**63 - 1):
        yield _FIELD.sub(b"\r\nInference-Header-Content-Length: %d" % length, head), body
        if not _FIELD.search(head):
            yield head.replace(b"\r\n", b"\r\nInference-Header-Content-Length: %d\r\n" % length, 1), body


def ways(head: bytes, body: bytes) -> dict[str, list[bytes]]:
    """Return the pieces of a message in each way of cutting it."""
    message, middle = head + body, len(head) // 2
    return {
        "whole": [message],
        "before the last byte": [message[:-1], message[-1:]],
        "in the head": [message[:middle], message[middle:]],
    }


def answers(sent: bytes) -> Answers:
    """Take apart what a server has sent; interim responses are none."""
    found: Answers = []
    while sent:
        head, _, rest = sent.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = int(length[1]) if length and status >= _FIRST_FINAL else 0
        if status >= _FIRST_FINAL:
            found.append((status, rest[:size]))
        sent = rest[size:]
    return found


def answers_of_session(service: Service, express: RequestCache, pieces: Iterable[bytes]) -> Answers:
    """Bring the pieces of a message to a session, one after the other, and the end after them."""
    session: Any = Session(service, express, Admission(ServerOptions(max_connections=1, max_memory_bytes=_MEMORY)))
    sent = b""
    rest: memoryview | None = None
    coming = iter([*pieces, b""])
    while (step := session.next_event()) is not Step.CLOSE:
        if step is Step.CALL:
            session.answer(session.inference.run())
        if step in (Step.SEND, Step.CALL):
            sent += sent_by(session)
            session.has_sent()
        elif step is not NEED_DATA:  # it has work left that needs no more bytes
            session.work()
        else:
            rest = rest or memoryview(next(coming))
            if not rest:
                session.receive_eof()
            rest = rest[session.connection.feed(rest) :] if rest else None
    return answers(sent)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_way_of_coming_gets_the_same_answers_of_a_session(case: Case) -> None:
    service = service_for(case, is_inline=True)
    express, ordinary = RequestCache(service), OrdinaryWay(service)
    for head, body in variants(case):
        wanted = answers_of_session(service, ordinary, [head + body])
        for way, pieces in ways(head, body).items():
            assert answers_of_session(service, express, pieces) == wanted, (way, head)


_PAUSE: Final = 0.03
"""Seconds between the pieces: enough for a server to have read one when the next comes."""

_AT_ONCE: Final = 60
"""Connections."""


def answers_of_server(address: tuple[str, int], messages: list[list[bytes]]) -> list[Answers]:
    """Send messages, each over a connection of its own and its pieces with pauses between, then the end after each."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(address, TIMEOUT)) for _ in messages]
        for number in range(max(map(len, messages))):
            time.sleep(_PAUSE * bool(number))
            for sock, pieces in zip(socks, messages, strict=True):
                send(sock, pieces[number] if number < len(pieces) else b"")
        for sock in socks:
            end(sock)
        return [answers(received(sock)) for sock in socks]


def send(sock: socket.socket, piece: bytes) -> None:
    """Send; who has been refused may find that nobody reads any more."""
    with suppress(ConnectionError):
        sock.sendall(piece)


def end(sock: socket.socket) -> None:
    """Say that no more will come."""
    with suppress(OSError):  # where the server has ended the connection
        sock.shutdown(socket.SHUT_WR)


def received(sock: socket.socket) -> bytes:
    """Read to the end."""
    data = b""
    while chunk := sock.recv(1 << 16):
        data += chunk
    return data


@pytest.mark.parametrize("way", ["whole", "before the last byte", "in the head"])
def test_every_way_of_coming_gets_the_same_answers_of_a_server(way: str) -> None:
    for group, cases in grouped().items():
        service = service_for(cases[0], is_inline=True)
        requests = [variant for case in cases for variant in variants(case)]
        wanted = [answers_of_session(service, OrdinaryWay(service), [head + body]) for head, body in requests]
        with server_here(service, ServerOptions(max_memory_bytes=_MEMORY)) as (_, address):
            for start in range(0, len(requests), _AT_ONCE):
                batch = requests[start : start + _AT_ONCE]
                found = answers_of_server(address, [ways(head, body)[way] for head, body in batch])
                for request, seen, expected in zip(batch, found, wanted[start:], strict=False):
                    assert seen == expected, (group, request)


def grouped() -> dict[tuple[tuple[str, str], ...], list[Case]]:
    """Return the cases by the service that they need, which is that of any of them."""
    groups: dict[tuple[tuple[str, str], ...], list[Case]] = {}
    for case in CASES:
        options = {name: value for name, value in case.options.items() if name not in _OF_BODY}
        groups.setdefault(tuple(sorted(options.items())), []).append(case)
    return groups


_OF_BODY: Final = {"chunked", "gzip", "gzip-members", "deflate", "raw-deflate"}
"""Options of a case that are the message's, and no service's."""
