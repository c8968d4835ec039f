"""Models that fail, and clients that make them fail: nothing of a request waits for the garbage collector.

The traceback of an exception holds the frames of the model and of the server, and so the request's arrays. They do not
count as memory of the request any more. So whoever can make a model fail could make a server use any amount of it.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

from streamcodec import ErrorCode, RemoteProtocolError, Rows, Windows
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, RequestRecord
from tests.embedding.faults import leave_abruptly
from tests.server.lanes import eventually
from tests.server.programs import server_here
from tests.server.wire import Wire, infer_request

Array = np.ndarray[Any, Any]
_SEEN: list[weakref.ref[Any]] = []


class _Notes(Observer):
    """Looks at the traceback while it may."""

    def __init__(self) -> None:
        self.causes: list[BaseException] = []
        self.have_tracebacks = True

    def request_ended(self, request: RequestRecord) -> None:
        if request.cause is not None:
            self.causes.append(request.cause)
            self.have_tracebacks &= request.cause.__traceback__ is not None


def _look(request: InferenceRequest) -> Array:
    _SEEN.append(weakref.ref(request.inputs["x"]))
    return request.inputs["x"]


def _raise(request: InferenceRequest) -> dict[str, Any]:
    _look(request)
    raise ValueError


def _refuse(request: InferenceRequest) -> dict[str, Any]:
    try:
        _raise(request)
    except ValueError as error:
        msg = "no such thing"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER) from error
    return {}


def _windows(x: Array) -> Iterator[Array]:
    yield x[:1]
    raise ValueError


async def _async_windows(x: Array) -> AsyncIterator[Array]:
    yield x[:1]
    raise ValueError


async def _raise_later(request: InferenceRequest) -> dict[str, Any]:
    return _raise(request)


async def _raise_in_thread(request: InferenceRequest) -> dict[str, Any]:
    """A frame of anyio holds a future, which holds the exception, whose traceback holds the frame."""
    return await anyio.to_thread.run_sync(_raise, request)


async def _raise_in_group(request: InferenceRequest) -> dict[str, Any]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_raise_later, request)
    return {}


async def _lack_memory_in_thread(request: InferenceRequest) -> dict[str, Any]:
    def fail() -> dict[str, Any]:
        raise MemoryError

    _look(request)
    return await anyio.to_thread.run_sync(fail)


async def _return_object(request: InferenceRequest) -> dict[str, Any]:
    _look(request)
    return {"y": np.array([object()] * 50_000)}  # so many are encoded in a thread


async def _refuse_later(request: InferenceRequest) -> dict[str, Any]:
    return _refuse(request)


def _rows(make: Callable[[Array], Any]) -> Callable[[InferenceRequest], dict[str, Any]]:
    return lambda request: {"y": Rows("FP32", (2,), make(_look(request)))}


MODELS = [
    Model(name="thread", predict=_raise),
    Model(name="refusing-in-a-thread", predict=_refuse),
    Model(name="event-loop", predict=_raise, is_inline=True),
    Model(name="refusing-on-the-event-loop", predict=_refuse, is_inline=True),
    Model(name="async", predict=_raise_later),
    Model(name="async-in-a-thread", predict=_raise_in_thread),
    Model(name="async-in-a-group", predict=_raise_in_group),
    Model(name="async-without-memory", predict=_lack_memory_in_thread),
    Model(name="async-with-a-wrong-output", predict=_return_object),
    Model(name="async-refusing", predict=_refuse_later),
    Model(name="rows", predict=_rows(_windows)),
    Model(name="async-rows", predict=_rows(_async_windows)),
]


BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])


@BACKENDS
@pytest.mark.parametrize("is_observed", [False, True])
def test_nothing_waits_for_the_garbage_collector(
    backend: str, is_observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "streamcodec")  # records of the log that are kept hold tracebacks, too
    notes = _Notes()
    gc.collect()
    gc.disable()
    try:
        observers = [notes] if is_observed else []
        with server_here(ModelRegistry.of(MODELS), backend=backend, observer=observers) as (_, address):
            for model in MODELS:
                for count in (4, 50_000):
                    _SEEN.clear()
                    with Wire(address) as wire, suppress(ConnectionError):
                        for _ in range(2):  # the second one has a known head
                            wire.send(infer_request(model.name, count=count)).response()
                    assert _SEEN
                    assert eventually(lambda: not any(seen() is not None for seen in _SEEN)), (model.name, count)
    finally:
        gc.enable()
    assert notes.have_tracebacks
    assert bool(notes.causes) is is_observed


@contextmanager
def _no_collector(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "streamcodec")
    _SEEN.clear()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@BACKENDS
def test_nothing_of_a_call_that_was_given_up_waits_for_it(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    is_over = threading.Event()

    def fail(request: InferenceRequest) -> dict[str, Any]:
        _look(request)
        is_over.wait(60)
        raise ValueError

    models = ModelRegistry.of([Model(name="m", predict=fail)])
    options = ServerOptions(model_timeout=0.05)
    with _no_collector(caplog), server_here(models, options, backend=backend) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("m")).response().status == 504
        is_over.set()
        assert eventually(lambda: _SEEN[0]() is None)


@BACKENDS
def test_nothing_of_an_answer_whose_client_has_left_before_waits_for_it(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun, has_left = threading.Event(), threading.Event()

    def echo(request: InferenceRequest) -> dict[str, Any]:
        has_begun.set()
        has_left.wait(60)
        return {"y": _look(request)}

    models = ModelRegistry.of([Model(name="m", predict=echo)])
    with _no_collector(caplog), server_here(models, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=1 << 20))
        assert has_begun.wait(60)
        leave_abruptly(wire.sock)
        has_left.set()
        assert eventually(lambda: bool(_SEEN) and _SEEN[0]() is None)


@BACKENDS
def test_nothing_of_windows_that_are_sent_back_to_a_client_that_leaves_waits_for_it(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(request: InferenceRequest) -> dict[str, Any]:
        x = request.rows["x"]
        _SEEN.append(weakref.ref(x.windows))
        return {"y": Rows(x.datatype, x.shape, x.windows)}

    models = ModelRegistry.of([Model(name="m", predict=echo, windows=Windows(max_window_bytes=1 << 16))])
    with _no_collector(caplog), server_here(models, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=1 << 20)[: 1 << 20])
        assert wire.sock.recv(1000)
        leave_abruptly(wire.sock)
        assert eventually(lambda: bool(_SEEN) and _SEEN[0]() is None)
