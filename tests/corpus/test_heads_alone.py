"""Every HTTP request of the corpus that is refused, made a `HEAD`: the answer is a head, and nothing else."""

from __future__ import annotations

import re

import pytest

from streamcodec import RemoteProtocolError
from streamcodec.http import ConnectionClosed, RequestHead, ServerConnection
from streamcodec.service import error_reply
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import http_parts
from tests.http.messages import GET

_METHOD = re.compile(rb"^[A-Z]+ ")

CASES = [case for case in read_corpus() if case.kind == "http-request" and case.is_refused]


def as_head(case: Case) -> bytes:
    """Return the request with another method; what has none that could be replaced gets one."""
    message = b"".join(http_parts(case))
    return _METHOD.sub(b"HEAD ", message, count=1) if _METHOD.match(message) else b"HEAD " + message


def test_there_are_such_cases() -> None:
    assert len(CASES) > 200


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_refused_head_has_no_body(case: Case) -> None:
    """Behind an answered request, whose answer is still there."""
    connection = ServerConnection()
    message = memoryview(GET + as_head(case))
    message = message[connection.feed(message) :]
    assert isinstance(connection.next_event(), RequestHead)
    assert b"".join(connection.send_response(200, (), [b"{}"])) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    connection.feed(message)
    connection.receive_eof()
    try:
        head = connection.next_event()
        assert isinstance(head, RequestHead)
        assert head.method == "HEAD"
        assert b"".join(connection.send_response(404, (), [b"{}"])).endswith(b"\r\n\r\n")
    except RemoteProtocolError as error:
        reply = error_reply(error)
        answer = b"".join(connection.send_response(reply.status, reply.headers, [b"{}"]))
        assert answer.endswith(b"\r\nConnection: close\r\n\r\n")
        assert connection.next_event() == ConnectionClosed()
