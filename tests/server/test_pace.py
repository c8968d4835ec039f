"""Pace: larger requests to quick models are answered without a thread, and others keep theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_DATA, Tensor, encode_request
from streamcodec.server import ServerOptions, pace
from streamcodec.server.admission import Admission
from streamcodec.server.express import Express
from streamcodec.server.pace import run
from streamcodec.server.session import Session, Step
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from streamcodec.service.models import Outputs
from tests.effort import places
from tests.server.test_express import FIXED, OrdinaryWay, sent_by
from tests.server.wire import head

NBYTES = 200_000
STALL = 0.004
"""Seconds; twice as long as a call on the event loop may take."""


def _message(array: np.ndarray[Any, Any], *fields: str, is_binary: bool = True) -> bytes:
    tensor = Tensor(name="x", array=array, is_binary=is_binary)
    message = encode_request([tensor], parameters={"binary_data_output": True})
    lines = [f"{name}: {value}" for name, value in message.headers]
    return head("/v2/models/m/infer", *lines, *fields) + b"".join(message.buffers)


MESSAGE = _message(np.arange(NBYTES, dtype=np.uint8))


class Clock:
    """The time, which passes only in models."""

    now = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(pace, name, lambda: Clock.now)


def _session(service: Service, kind: type[Express] = Express) -> Session:
    return Session(service, kind(service), Admission(ServerOptions()), FIXED)


def _service(wait: Callable[[], float] = lambda: 0.0, *, is_inline: bool = True) -> Service:
    def predict(request: InferenceRequest) -> Outputs:
        Clock.now += wait()
        return {"x": request.inputs["x"]}

    return Service(ModelRegistry.of([Model(name="m", predict=predict, is_inline=is_inline)]))


def _answered(session: Session, pieces: list[bytes]) -> tuple[bytes, bool]:
    """Bring a request, and have its model called; return the answer, and whether a thread was wanted."""
    has_called, sent = False, b""
    for piece in pieces:
        data = piece
        while data:
            data = data[session.connection.feed(data) :]
            step = session.next_event()
            if step is Step.CALL and session.inference is not None:
                has_called = True
                step = session.answer(run(session.inference))
            if step is Step.SEND:
                sent += sent_by(session)
                session.outgoing = []
                session.has_sent()
    assert session.next_event() is NEED_DATA
    return sent, has_called


def test_requests_that_were_quick_twice_need_no_thread() -> None:
    session = _session(_service())
    assert [_answered(session, [MESSAGE])[1] for _ in range(5)] == [True, True, False, False, False]


def test_a_model_that_stalls_has_a_thread_again_until_it_was_quick_twice() -> None:
    waits = iter([0.0, 0.0, 0.0, STALL, 0.0, STALL, 0.0, 0.0, 0.0])
    session = _session(_service(lambda: next(waits)))
    wanted = [True, True, False, False, True, True, True, True, False]
    assert [_answered(session, [MESSAGE])[1] for _ in wanted] == wanted


def test_a_model_that_was_not_declared_quick_keeps_its_thread() -> None:
    session = _session(_service(is_inline=False))
    assert all(_answered(session, [MESSAGE])[1] for _ in range(5))


@pytest.mark.parametrize(
    "message",
    [
        _message(np.arange(NBYTES, dtype=np.uint8) % 2 == 1),
        _message(np.array([b"x" * 8] * (NBYTES // 8), object)),
        _message(np.arange(100_000, dtype=np.uint8), is_binary=False),
    ],
    ids=["BOOL", "BYTES", "JSON"],
)
def test_what_must_be_looked_at_keeps_its_thread(message: bytes) -> None:
    session = _session(_service())
    for _ in range(4):
        taken, step = 0, session.next_event()
        while step is not Step.CALL:
            taken += session.connection.feed(message[taken:])
            session.work()
            step = session.next_event()
        assert session.inference is not None
        session.answer(run(session.inference))
        session.outgoing = []
        session.has_sent()


CUTS = [*chain(range(1, 400), range(65_500, 65_700), range(len(MESSAGE) - 50, len(MESSAGE)))]


@pytest.mark.parametrize("field", ["", "Traceparent: 00-1"])
def test_every_cut_is_answered_as_on_the_ordinary_way(field: str) -> None:
    message = MESSAGE if not field else _message(np.arange(NBYTES, dtype=np.uint8), field)
    service = _service()
    wanted, _ = _answered(_session(service, OrdinaryWay), [message])
    session = _session(service)
    for number, cut in enumerate(places(CUTS)):
        varied = re.sub(rb"00-1", b"00-%d" % number, message)
        cut_message = [varied[start:end] for start, end in pairwise((0, cut, cut + 1, len(varied)))]
        assert _answered(session, cut_message)[0] == wanted, cut


def test_pipelined_requests_of_any_size_are_answered_in_order() -> None:
    service = _service()
    small = _message(np.arange(9, dtype=np.uint8))
    data = MESSAGE + small + MESSAGE * 3 + small
    wanted, _ = _answered(_session(service, OrdinaryWay), [data])
    session = _session(service)
    for _ in range(3):
        assert _answered(session, [data])[0] == wanted
    assert wanted.count(b"HTTP/1.1 200 OK") == 6


def test_a_client_that_ends_in_the_middle_is_told_as_on_the_ordinary_way() -> None:
    service = _service()
    found = []
    for kind in (OrdinaryWay, Express, Express):
        session = _session(service, kind)
        session.connection.feed(MESSAGE[: NBYTES // 2])
        session.next_event()
        session.connection.feed(MESSAGE[NBYTES // 2 : -1])
        session.receive_eof()
        assert session.next_event() is Step.SEND
        found.append(sent_by(session))
    assert found[0] == found[1] == found[2]
    assert found[0].startswith(b"HTTP/1.1 400")
