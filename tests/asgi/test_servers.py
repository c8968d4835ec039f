"""The corpus over real ASGI servers: the answers are those of the bundled server, but for what the server does itself.

A server reads HTTP by itself. So what breaks a rule of HTTP is refused by it, in its own words, or let pass; and where
a body does not come whole, the application is only told that the client has left. All else has to be alike. The few
differences that are left are listed here with their reasons. One that has gone fails the test, too.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Final

import pytest

from streamcodec import ErrorCode
from streamcodec.service import Reply
from streamcodec.transports.vectors import batches
from tests.asgi.corpus_app import CASES
from tests.asgi.programs import SERVERS, running
from tests.corpus.reading import Case
from tests.corpus.running import http_parts, reply_of, service_for

pytestmark = pytest.mark.slow

_OF_HTTP: Final = {ErrorCode.INVALID_HTTP, ErrorCode.AMBIGUOUS_FRAMING, ErrorCode.TRUNCATED}
"""What a server finds out by itself."""

_OF_HEADS: Final = {414, 431}
"""Limits that servers have of their own."""

_SOON: Final = 0.2
_LATE: Final = 5.0
"""Seconds within which a server answers, or it waits for more."""

_H11: Final = {
    "http.md: an empty line before the request": "h11 takes it for the request",
    "smuggling.md: conflicting lengths in trailers": "h11 looks at trailers as if they were fields of the head",
    "smuggling.md: another coding in a trailer": "h11 looks at trailers as if they were fields of the head",
    "smuggling.md: an extension with blanks around its signs": "h11 knows no blanks there",
}
_64_BITS: Final = {
    "framing.md: Content-Length of more than the message limit": "the server knows no lengths of more than 64 bits",
    "smuggling.md: Content-Length of 20 nines": "the server knows no lengths of more than 64 bits",
    "smuggling.md: Content-Length of 2 to the power of 64 and the body": "the server knows no such lengths",
}
_HYPER: Final = {
    **_64_BITS,
    "framing.md: Content-Length as a list of the same": "hyper knows no lists of lengths",
    "smuggling.md: Content-Length three times in a list": "hyper knows no lists of lengths",
    "heads.md: an absolute target of another scheme": "the application is told the path alone",
    "heads.md: a target with a fragment": "hyper leaves the fragment out",
    "heads.md: a target without a slash": "hyper refuses it",
    "heads.md: a target with backslashes": "hyper refuses it",
    "http.md: HTTP/1.2": "hyper knows 1.0 and 1.1",
}
_LLHTTP: Final = {
    **_64_BITS,
    "framing.md: Content-Length twice, the same": "llhttp knows no lists of lengths",
    "framing.md: Content-Length as a list of the same": "llhttp knows no lists of lengths",
    "smuggling.md: Content-Length three times in a list": "llhttp knows no lists of lengths",
    "smuggling.md: Content-Length twice, in two letter cases": "llhttp knows no lists of lengths",
    "smuggling.md: Transfer-Encoding: two tabs around chunked": "llhttp knows no tabs there",
    "smuggling.md: Content-Length in a trailer": "llhttp looks at trailers as if they were fields of the head",
    "smuggling.md: conflicting lengths in trailers": "llhttp looks at trailers as if they were fields of the head",
    "smuggling.md: Transfer-Encoding in a trailer": "llhttp looks at trailers as if they were fields of the head",
    "smuggling.md: another coding in a trailer": "llhttp looks at trailers as if they were fields of the head",
    "smuggling.md: an extension with blanks around its signs": "llhttp knows no blanks there",
    "http.md: trailers": "the server hands over trailers as if they were the body",
    "http.md: HTTP/1.2": "llhttp knows 1.0 and 1.1",
    "http.md: an offer to speak HTTP/2": "the server takes the body for the other protocol",
    "heads.md: an absolute target without a path": "llhttp refuses it",
    "heads.md: an absolute target of another scheme": "the application is told the path alone",
    "heads.md: a target that is a host and a port": "llhttp refuses it",
    "heads.md: CONNECT": "llhttp refuses it",
    "heads.md: a target without a slash": "llhttp refuses it",
    "heads.md: a target with backslashes": "llhttp refuses it",
    "heads.md: a target with a fragment": "the server leaves the fragment out",
    "seeds.md: KServe's documentation: Content-Length 75 of a longer body, as printed": "the rest is no request",
    "service.md: post in lower case": "llhttp refuses it",
}

DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "uvicorn h11": _H11,
    "uvicorn httptools uvloop": _LLHTTP,
    "hypercorn asyncio": {**_H11, "service.md: post in lower case": "the server makes the method upper case"},
    "hypercorn trio": {**_H11, "service.md: post in lower case": "the server makes the method upper case"},
    "granian": _HYPER,
}
"""By server and case: why the answer is another one."""

_ADDS_A_FIELD: Final = "heads.md: a head of as many fields as it may have"
"""Is one field over the limit here, for the one that names the service."""


def is_the_servers(reply: Reply | None) -> bool:
    """Whether the bundled server refuses a request for what another server sees to by itself."""
    if reply is None:
        return True
    refusal = reply.refusal
    if refusal is None:
        return False
    is_in_framing = "chunk" in str(refusal)  # limits of its lines
    return refusal.code in _OF_HTTP or reply.status in _OF_HEADS or is_in_framing


def asked(port: int, number: int, case: Case, seconds: float = _LATE) -> tuple[int, bytes] | None:
    """Send the message of a case; return status and body of the answer, None if there is none."""
    head, body = http_parts(case)
    message = head[:-4] + b"\r\nX-Service: %d\r\n\r\n" % number + body
    with socket.create_connection(("127.0.0.1", port)) as sock:
        with suppress(ConnectionError):
            sock.sendall(message)
        for limit in (seconds, _LATE):
            sock.settimeout(limit)
            try:
                return _answer(sock, is_for_head=head.startswith(b"HEAD "))
            except TimeoutError:  # it waits for more
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
            except (ConnectionError, EOFError):
                return None
    return None


def _answer(sock: socket.socket, *, is_for_head: bool) -> tuple[int, bytes]:
    data = b""
    while True:
        data = _until(sock, data, lambda found: b"\r\n\r\n" in found)
        head, _, rest = data.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status >= 200:
            break
        data = rest
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    size = 0 if is_for_head or length is None else int(length[1])
    return status, _until(sock, rest, lambda found: len(found) >= size)[:size]


def _until(sock: socket.socket, data: bytes, is_enough: Callable[[bytes], bool]) -> bytes:
    while not is_enough(data):
        if not (more := sock.recv(1 << 16)):
            raise EOFError
        data += more
    return data


@pytest.mark.parametrize("server", SERVERS)
def test_the_answers_are_those_of_the_bundled_server(server: str) -> None:
    different: dict[str, object] = {}
    with running(server, "tests.asgi.corpus_app:app") as (process, port):
        for number, case in enumerate(CASES):
            head, body = http_parts(case)
            reply = reply_of(service_for(case), head + body)
            if reply is None or is_the_servers(reply) or str(case) == _ADDS_A_FIELD:
                asked(port, number, case, _SOON)  # may be answered by anything
                continue
            text = b"".join(chain.from_iterable(batches(reply.buffers)))
            expected = reply.status, b"" if head.startswith(b"HEAD ") else text
            found = asked(port, number, case)
            is_limit = reply.status == 413 and found is not None  # by the budget, which is asked first
            if found != expected and not (is_limit and found[0] == 413):  # type: ignore[index] # not None then
                different[str(case)] = expected, found
        assert process.poll() is None
    assert different.keys() == DIFFERENCES[server].keys(), {
        case: different.get(case) for case in different.keys() ^ DIFFERENCES[server].keys()
    }
