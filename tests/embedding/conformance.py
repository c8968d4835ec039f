"""Conformance: the HTTP requests of the corpus, live through a server of others, held against the bundled one.

Where the answers differ, it has to be the server that causes it: what it reads, refuses or drops before an application
is asked, nobody behind it can change. `differences.md` lists these cases, server by server, each with its reason. What
is not in it fails; so does what is in it and differs no more.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from streamcodec.service import Service
from tests.corpus.reading import Case
from tests.corpus.running import http_parts, service_for
from tests.embedding.cases import groups
from tests.embedding.servers import Embedding
from tests.server.connection.test_express import OrdinaryWay
from tests.server.test_comparison import answers_of_session

TABLE: Final = Path(__file__).with_name("differences.md")

_AT_ONCE: Final = 8
_SECONDS: Final = 3.0
"""For an answer; who waits for the rest of a request gives none."""

_REFUSED: Final = 400
_FIRST_FINAL: Final = 200
_OURS: Final = b'{"error":'

Answer = tuple[int, bytes]
"""Status and body."""


def compare(embedding: Embedding, *, half_closes: bool, silent: Container[str] = ()) -> dict[str, str]:
    """Send all cases to a server; return those that are answered otherwise, each with the letter of its kind.

    A case without an answer may have waited for a thread of the server, behind cases whose rest never comes. So it is
    sent again, when the others are over.

    Args:
        embedding: serves `chosen_wsgi` or the like.
        half_closes: whether the client says that no more will come: some servers take that for a client that has left.
        silent: names of cases that are not sent again.
    """
    found: dict[str, str] = {}
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for number, cases in enumerate(groups()):
            ask(embedding.address, f"GET /~/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), half_closes=half_closes)
            service = service_for(cases[0], is_inline=True)
            messages = [b"".join(http_parts(case)) for case in cases]
            for _ in range(2):  # the second time, heads may be known
                send = partial(ask, embedding.address, half_closes=half_closes)
                for case, message, first in zip(cases, messages, [*threads.map(send, messages)], strict=True):
                    answer = send(message) if first is None and case.name not in silent else first
                    if (letter := kind(wanted(case, service), answer)) is not None:
                        assert found.setdefault(case.name, letter) == letter, case.name
    return found


def wanted(case: Case, service: Service) -> Answer:
    """Return what the bundled server answers to a case."""
    status, body = answers_of_session(service, OrdinaryWay(service), [b"".join(http_parts(case))])[0]
    return status, bytes(body)


def kind(ours: Answer, theirs: Answer | None) -> str | None:
    """Return the letter of a difference, as `differences.md` explains them; None if there is none."""
    if theirs is None:
        return "n"
    if _without_budget(theirs) == _without_budget(ours):
        return None
    if theirs[0] < _REFUSED:
        return "l" if ours[0] >= _REFUSED else "d"
    if ours[0] < _REFUSED:
        return "s"
    return "w" if theirs[1].startswith(_OURS) else "p"


def _without_budget(answer: Answer) -> Answer:
    """Leave out how much memory there is for all requests: it depends on what each process has taken."""
    return answer[0], _BUDGET.sub(b"", answer[1])


def ask(address: tuple[str, int], message: bytes, *, half_closes: bool) -> Answer | None:
    """Send a message over a connection of its own; return the first final answer, None if there is none."""
    with socket.create_connection(address, _SECONDS) as sock:
        data = b""
        with suppress(OSError):
            sock.sendall(message)
            if half_closes:
                sock.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while not _is_whole(data) and (piece := sock.recv(1 << 16)):
                data += piece
    return _first(data)


_BUDGET: Final = re.compile(rb"the server has \d+ for all requests")

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def _final(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return status, head and what follows of the first final answer."""
    while data.startswith(b"HTTP/"):
        head, end, rest = data.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if not end:
            return None
        if status >= _FIRST_FINAL:
            return status, head, rest
        data = rest
    return (_REFUSED, b"", data) if data else None  # as HTTP/0.9 is answered


def _is_whole(data: bytes) -> bool:
    found = _final(data)
    if found is None or not found[1]:
        return False
    length = _LENGTH.search(found[1])
    return length is not None and len(found[2]) >= int(length[1])


def _first(data: bytes) -> Answer | None:
    found = _final(data)
    if found is None:
        return None
    status, head, rest = found
    length = _LENGTH.search(head)
    return status, rest[: int(length[1])] if length else rest


def listed(server: str) -> dict[str, str]:
    """Return the cases that a server is known to answer otherwise, with their letters."""
    rows = list(_rows())
    column = rows[0].index(server)
    return {row[0]: row[column] for row in rows[2:] if row[column]}


def _rows() -> Iterator[list[str]]:
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip().replace("&#124;", "|") for cell in line.strip("|").split("|")]
