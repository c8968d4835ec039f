"""The corpus over WSGI: whatever the stream of a server is like, the answer is that of the bundled server."""

from __future__ import annotations

import io
import logging
from urllib.parse import unquote_to_bytes

import pytest

from streamcodec.http import RequestHead
from streamcodec.wsgi import App
from streamcodec.wsgi.reading import Environ
from tests.asgi.test_conformance import FILES, Answer, _answer, cases_of
from tests.corpus.reading import Case
from tests.corpus.running import reply_of, service_for
from tests.wsgi.requests import Pieces, begin


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # some models of the corpus fail


def environ_of_head(head: RequestHead, stream: object) -> Environ:
    """Return what a server would say of a head whose fields all have different names."""
    path, _, query = head.target.partition("?")
    environ: Environ = {
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": head.target,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": stream,
        "wsgi.input_terminated": True,
    }
    for name, value in head.fields.items:
        variable = name.decode("latin-1").upper().replace("-", "_")
        if variable not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            variable = f"HTTP_{variable}"
        environ[variable] = value.decode("latin-1")
    environ.setdefault("HTTP_HOST", "x")
    return environ


def _is_told(head: RequestHead) -> bool:
    names = [name for name, _ in head.fields.items]
    return len(set(names)) == len(names) and b"_" not in b"".join(names) and head.target.startswith("/")


def answer_of(app: App, head: RequestHead, stream: object) -> Answer:
    """Have a request answered."""
    begun = begin(app, environ_of_head(head, stream))
    answer = begun.finish()
    fields = {name.lower(): value for name, value in answer.fields.items()}
    return answer.status, fields, answer.body


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_answers_are_those_of_the_bundled_server(file: str) -> None:
    for case, message, head, body in cases_of(file):
        if _is_told(head):  # the rest is in the table of the servers
            _check(case, message, head, body)


def _check(case: Case, message: bytes, head: RequestHead, body: bytes) -> None:
    """Insist that a case is answered alike, whatever its stream is like."""
    reply = reply_of(service_for(case), message)
    assert reply is not None
    expected = _answer(reply, head)
    for app in (App(service_for(case)), App(service_for(case, is_inline=True))):
        for stream in (Pieces(body), Pieces(body, most=7), io.BytesIO(body)):
            status, fields, found = answer_of(app, head, stream)
            if "content-length" not in expected[1]:
                fields.pop("content-length", None)
            assert (status, fields, found) == expected, case
