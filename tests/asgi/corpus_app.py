"""The corpus as an application: the field `x-service` says which service a request is for."""

from __future__ import annotations

import logging
from typing import Final

from streamcodec.asgi import App
from streamcodec.asgi.scope import Receive, Scope, Send
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import service_for

logging.disable(logging.CRITICAL)  # some models of the corpus fail

CASES: Final[list[Case]] = [case for case in read_corpus() if case.kind == "http-request"]

_APPS: Final = [App(service_for(case)) for case in CASES]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Have the service of the case answer; the first one where none is named."""
    named = [value for name, value in scope.get("headers", ()) if name == b"x-service"]
    await _APPS[int(named[0]) if named else 0](scope, receive, send)
