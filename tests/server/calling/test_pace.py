"""Pace: requests to models that have proved quick are answered without a thread, and others keep theirs."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_DATA, Tensor, encode_request
from streamcodec.runtime.models import pace
from streamcodec.runtime.models.pace import run
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, Service
from streamcodec.service.models.model import Outputs
from streamcodec.service.observing import RequestRecord
from tests.effort import places
from tests.server.connection.test_express import FIXED, OrdinaryWay, sent_by
from tests.server.programs import server_here
from tests.server.wire import Wire, head
from tests.waiting import until

NBYTES = 200_000
STALL = 0.004
"""Seconds; twice as long as a call on the event loop may take."""


def _message(array: np.ndarray[Any, Any], *fields: str, is_binary: bool = True) -> bytes:
    tensor = Tensor(name="x", array=array, is_binary=is_binary)
    message = encode_request([tensor], parameters={"binary_data_output": True})
    lines = [f"{name}: {value}" for name, value in message.headers]
    return head("/v2/models/m/infer", *lines, *fields) + b"".join(message.buffers)


MESSAGE = _message(np.arange(NBYTES, dtype=np.uint8))


SMALL = _message(np.arange(100, dtype=np.uint8))
OFTEN = 16
"""Quick calls in a row, in threads, before one needs none."""


class Clock:
    """The time, which passes only in models, and what the system counts meanwhile."""

    now = 0.0
    waits = 0
    cpu_seconds = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "perf_counter", lambda: Clock.now)
    monkeypatch.setattr(pace, "_usage", lambda: (Clock.waits, Clock.cpu_seconds))


def _session(service: Service, kind: type[RequestCache] = RequestCache, model_timeout: float = 300.0) -> Session:
    return Session(service, kind(service, model_timeout), Admission(ServerOptions()), FIXED)


def _nothing() -> None:
    pass


def _takes(seconds: float = STALL, *, waits: int = 0, cpu_seconds: float = 0.0) -> None:
    """Have a call take so long, and so much of what the system counts."""
    Clock.now += seconds
    Clock.waits += waits
    Clock.cpu_seconds += cpu_seconds


def _service(work: Callable[[], object] = _nothing, *, is_inline: bool | None = True) -> Service:
    def predict(request: InferenceRequest) -> Outputs:
        work()
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


def _wanted(session: Session, count: int, message: bytes = MESSAGE) -> list[bool]:
    """Bring so many requests; return which of them wanted a thread."""
    return [_answered(session, [message])[1] for _ in range(count)]


@pytest.mark.parametrize("message", [SMALL, MESSAGE], ids=["small", "large"])
def test_requests_that_were_quick_often_need_no_thread(message: bytes) -> None:
    session = _session(_service(is_inline=None))
    assert _wanted(session, OFTEN + 3, message) == [True] * OFTEN + [False] * 3


def test_a_model_that_says_that_it_is_quick_proves_it_for_large_requests_only() -> None:
    session = _session(_service(is_inline=True))
    assert _wanted(session, 3, SMALL) == [False] * 3
    assert _wanted(session, OFTEN + 1) == [True] * OFTEN + [False]


def test_a_model_that_says_that_it_needs_a_thread_always_has_one() -> None:
    session = _session(_service(is_inline=False))
    assert all(_wanted(session, OFTEN + 3, SMALL) + _wanted(session, OFTEN + 3))


def test_small_requests_do_not_vouch_for_larger_ones() -> None:
    session = _session(_service(is_inline=None))
    assert _wanted(session, OFTEN + 1, SMALL)[-1] is False
    assert _wanted(session, OFTEN + 1) == [True] * OFTEN + [False]


def test_a_model_that_waits_however_shortly_keeps_its_thread() -> None:
    session = _session(_service(partial(_takes, 0.0, waits=1), is_inline=None))
    assert all(_wanted(session, 3 * OFTEN, SMALL))


@pytest.mark.parametrize("message", [SMALL, MESSAGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "slow",
    [
        partial(_takes, waits=1),
        partial(_takes, cpu_seconds=STALL),
        partial(int, "it fails"),
    ],
    ids=["waits", "computes", "fails"],
)
def test_one_slow_call_sends_a_model_back_to_threads_for_ever_longer(slow: Callable[[], None], message: bytes) -> None:
    work = _nothing
    session = _session(_service(lambda: work(), is_inline=None))  # noqa: PLW0108 - it changes
    assert _wanted(session, OFTEN + 1, message)[-1] is False
    lengths = []
    for _ in range(3):
        work = slow
        assert _wanted(session, 1, message) == [False]
        work, since = _nothing, Clock.now
        assert all(_wanted(session, OFTEN, message))
        while _wanted(session, 1, message) == [True]:
            Clock.now += 0.01
        lengths.append(Clock.now - since)
    assert lengths[0] >= 1
    assert lengths == pytest.approx([lengths[0], 2 * lengths[0], 4 * lengths[0]], rel=0.2)


@pytest.mark.parametrize("cpu_seconds", [0.0, 0.0001], ids=["it had not begun to count", "it had counted"])
def test_a_call_is_not_slow_by_itself_if_something_else_had_the_processor(cpu_seconds: float) -> None:
    work = _nothing
    session = _session(_service(lambda: work(), is_inline=None))  # noqa: PLW0108 - it changes
    assert _wanted(session, OFTEN + 1, SMALL)[-1] is False
    work = partial(_takes, cpu_seconds=cpu_seconds)
    assert _wanted(session, 3, SMALL) == [False] * 3


@pytest.mark.parametrize("message", [SMALL, MESSAGE], ids=["small", "large"])
def test_a_call_without_a_thread_has_the_time_limit_of_any_call(message: bytes) -> None:
    work = _nothing
    session = _session(_service(lambda: work(), is_inline=None), model_timeout=0.5)  # noqa: PLW0108 - it changes
    _wanted(session, OFTEN, message)
    answers = []
    for seconds in (0.5, 0.6):
        Clock.now = 10_000 * seconds  # the pause of the call before is over
        _wanted(session, OFTEN, message)
        work = partial(_takes, seconds)
        answer, has_called = _answered(session, [message])
        work = _nothing
        assert not has_called
        answers.append(answer)
    assert answers[0].startswith(b"HTTP/1.1 200")
    assert answers[1].startswith(b"HTTP/1.1 504")
    assert b"model 'm' has not answered within 0.5 seconds" in answers[1]


class Calls(Observer):
    """Where the calls of models were, and where their requests ended: that is on the event loop."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.loops: list[int] = []

    def call_begun(self, request: RequestRecord) -> None:  # noqa: ARG002 - the same for all
        self.begun.append(threading.get_ident())

    def call_ended(self, request: RequestRecord) -> None:  # noqa: ARG002 - as before
        self.ended.append(threading.get_ident())

    def request_ended(self, request: RequestRecord) -> None:
        assert request.status == 200
        self.loops.append(threading.get_ident())


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_server_calls_a_function_on_its_event_loop_when_it_is_quick_and_else_in_threads(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with the time as it is
    lock = threading.Lock()

    def wait(request: InferenceRequest) -> Outputs:
        lock.acquire(timeout=0.0001)
        return {"x": request.inputs["x"]}

    def echo(request: InferenceRequest) -> Outputs:
        return {"x": request.inputs["x"]}

    models = [
        Model(name="m", predict=echo),
        Model(name="w", predict=wait),
        Model(name="t", predict=echo, is_inline=False),
    ]
    calls = Calls()
    with (
        lock,
        server_here(ModelRegistry.of(models), backend=backend, observer=calls) as (_, address),
        Wire(address) as wire,
    ):

        def is_in_thread(message: bytes) -> bool:
            """Bring a request; return whether its function had a thread."""
            assert wire.send(message).response().status == 200
            until(lambda: len(calls.loops) == len(calls.begun))
            assert calls.begun[-1] == calls.ended[-1]
            return calls.begun[-1] != calls.loops[-1]

        assert all(is_in_thread(SMALL) for _ in range(OFTEN))
        until(lambda: not is_in_thread(SMALL))
        for name in (b"/w/", b"/t/"):
            assert all(is_in_thread(SMALL.replace(b"/m/", name)) for _ in range(3 * OFTEN))


def test_where_the_system_does_not_count_for_threads_the_clock_alone_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert pace._usage_of_thread()() == (0, Clock.now)  # noqa: SLF001 - nothing else tells


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
    for _ in range(OFTEN + 1):
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
    for kind in (OrdinaryWay, RequestCache, RequestCache):
        session = _session(service, kind)
        session.connection.feed(MESSAGE[: NBYTES // 2])
        session.next_event()
        session.connection.feed(MESSAGE[NBYTES // 2 : -1])
        session.receive_eof()
        assert session.next_event() is Step.SEND
        found.append(sent_by(session))
    assert found[0] == found[1] == found[2]
    assert found[0].startswith(b"HTTP/1.1 400")
