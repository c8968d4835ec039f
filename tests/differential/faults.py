"""Faults: what was once wrong with short cuts, put back, to show that histories find it.

In each of these, what another client had sent before decided about an answer, or a short cut left out a rule of the
ordinary way. What is kept belongs to one server, as it did then: a fresh one knows nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import pytest

from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.requests import PlainAnswer, PlainAnswers
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.observation import Observation
from streamcodec.service.request.plan import Plan, Recipe
from streamcodec.wsgi import app as wsgi_app
from streamcodec.wsgi import reading as wsgi_reading
from streamcodec.wsgi.reading import Environ

_HEAD_END: Final = b"\r\n\r\n"
_NAMED: Final = b"Connection: content-length\r\n"
_ID: Final = re.compile(rb'(?<="id":")[^"\\]+')


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong."""

    front: str
    """Where it is found."""
    put_back: Callable[[pytest.MonkeyPatch], None]


def _mask_ids(patch: pytest.MonkeyPatch) -> None:
    """Keep what a JSON header means under its text with NULs in the place of the id, where raw texts find it."""
    read = Recipe._read  # noqa: SLF001 - what reads a header, and keeps it

    def read_and_mask(self: Any, text: bytes, *others: Any) -> Plan | None:  # noqa: ANN401 - a recipe, and its arguments
        plan = read(self, text, *others)
        if plan is not None:
            self._plans[self, _ID.sub(lambda found: bytes(len(found[0])), text)] = plan
        return plan

    patch.setattr(Recipe, "_read", read_and_mask)


def _tell_the_first_head(patch: pytest.MonkeyPatch) -> None:
    """Tell observers the head of the first request to a target."""
    begin, known = Observation.begin, WeakKeyDictionary[object, dict[str, RequestHead]]()

    def begin_with_first(self: Any, head: RequestHead | None, *others: Any) -> None:  # noqa: ANN401 - as above
        heads = known.setdefault(self._observers, {})
        begin(self, head if head is None else heads.setdefault(head.target, head), *others)

    patch.setattr(Observation, "begin", begin_with_first)


def _wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Wait for a body that may be answered at once without a limit of time."""
    patch.setattr("streamcodec.embedding.frontend.first_timeout", lambda _: 3600.0)


def _send_any_body(patch: pytest.MonkeyPatch) -> None:
    """Send a body whatever the status is."""
    patch.setattr("streamcodec.service.replies.has_content", lambda _: True)
    patch.setattr("streamcodec.http.server.has_content", lambda _: True)


def _take_none_for_a_text(patch: pytest.MonkeyPatch) -> None:
    """Recognize heads by the texts of their variables, among which "None" stands for one that is absent."""
    make = wsgi_app.App.__init__
    heads: dict[str, RequestHead] = {}
    variables = [
        "REQUEST_METHOD",
        "PATH_INFO",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "HTTP_INFERENCE_HEADER_CONTENT_LENGTH",
    ]

    def make_fresh(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as above
        heads.clear()
        make(*arguments, **options)

    def head_of(environ: Environ, limits: Limits) -> RequestHead:
        key = "\n".join(str(environ.get(variable)) for variable in variables)
        if key not in heads:
            heads[key] = wsgi_reading.head_of(environ, limits)
        return heads[key]

    patch.setattr(wsgi_app.App, "__init__", make_fresh)
    patch.setattr(wsgi_app, "head_of", head_of)


def _frame_by_connection(patch: pytest.MonkeyPatch) -> None:
    """Say that a known answer is chunked if its server names the length in `Connection`; its body goes as it is."""
    find, known = PlainAnswers.find, WeakKeyDictionary[PlainAnswers, set[bytes]]()

    def find_named(self: PlainAnswers, data: bytes) -> PlainAnswer | None:
        text = data[: data.find(_HEAD_END) + len(_HEAD_END)]
        heads = known.setdefault(self, set())
        if _NAMED not in text or text not in heads:
            heads.add(text)
            return find(self, data)
        found = find(self, text.replace(_NAMED, b"") + data[len(text) :])
        assert found is not None
        outgoing = re.sub(rb"content-length: [0-9]+", b"transfer-encoding: chunked", found.outgoing)
        return PlainAnswer(found.status, text, outgoing, found.length)

    patch.setattr(PlainAnswers, "find", find_named)


FAULTS: Final = {
    "an id of another client in an answer": Fault("asyncio", _mask_ids),
    "the head of another request for observers": Fault("uvicorn h11", _tell_the_first_head),
    "no time limit for a body": Fault("uvicorn h11", _wait_for_ever),
    "a body with a status that has none": Fault("asyncio", _send_any_body),
    "an absent variable that is the text None": Fault("waitress", _take_none_for_a_text),
    "an answer that is framed by Connection": Fault("guard scripted", _frame_by_connection),
}
"""By what they did."""
