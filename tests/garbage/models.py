"""Models that end in each way in which a model can end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

from streamcodec import ErrorCode, RemoteProtocolError, Rows, Windows
from streamcodec.service import ANY_SIZE, Batch, InferenceRequest, Model, ModelRegistry, TensorMetadata
from streamcodec.service.models.model import Outputs

MODEL_SECONDS = 0.2
"""The servers' `model_timeout`."""

_WINDOWS = Windows(max_window_bytes=256 << 10)
_WINDOW_COUNT = 64


def _echo(request: InferenceRequest) -> Outputs:
    return request.values


def _fail(request: InferenceRequest) -> Outputs:
    raise ValueError(request.model_name)


def _refuse(request: InferenceRequest) -> Outputs:
    try:
        return _fail(request)
    except ValueError as error:
        msg = "no such thing"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER) from error


def _lack_memory(request: InferenceRequest) -> Outputs:
    raise MemoryError(request.model_name)


def _exit(request: InferenceRequest) -> Outputs:
    raise SystemExit(request.model_name)


def _late(request: InferenceRequest) -> Outputs:
    time.sleep(MODEL_SECONDS / 2)
    return request.values


def _too_late(request: InferenceRequest) -> Outputs:
    time.sleep(MODEL_SECONDS * 1.5)
    return request.values


def _fail_too_late(request: InferenceRequest) -> Outputs:
    return _fail(request) if _too_late(request) else {}


def _after(seconds: float, predict: Callable[[InferenceRequest], Outputs]) -> Callable[[InferenceRequest], Any]:
    async def predict_later(request: InferenceRequest) -> Outputs:
        await anyio.sleep(seconds)
        return predict(request)

    return predict_later


def _in_thread(predict: Callable[[InferenceRequest], Outputs]) -> Callable[[InferenceRequest], Any]:
    async def predict_in_thread(request: InferenceRequest) -> Outputs:
        return await anyio.to_thread.run_sync(predict, request, abandon_on_cancel=True)

    return predict_in_thread


async def _clean_up_and_fail(request: InferenceRequest) -> Outputs:
    try:
        await anyio.sleep(10)
    finally:
        _fail(request)
    return {}


async def _in_group(request: InferenceRequest) -> Outputs:
    async def fail() -> None:
        _fail(request)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fail)
    return {}


def _returning(make: Callable[[np.ndarray[Any, Any]], Any]) -> Callable[[InferenceRequest], Any]:
    return lambda request: make(request.inputs["x"])


def _rows(x: np.ndarray[Any, Any], *, end: Callable[[], object]) -> Iterator[np.ndarray[Any, Any]]:
    rows = x.reshape(_WINDOW_COUNT, -1)
    for number in range(_WINDOW_COUNT):
        if number == _WINDOW_COUNT // 2:
            end()
        yield rows[number : number + 1]


async def _async_rows(x: np.ndarray[Any, Any], *, end: Callable[[], object]) -> AsyncIterator[np.ndarray[Any, Any]]:
    for row in _rows(x, end=end):
        await anyio.lowlevel.checkpoint()
        yield row


def _answer_rows(
    end: Callable[[], object], rows: Callable[..., Any] = _rows
) -> Callable[[InferenceRequest], dict[str, Rows]]:
    def predict(request: InferenceRequest) -> dict[str, Rows]:
        x = request.inputs["x"]
        return {"y": Rows("UINT8", (_WINDOW_COUNT, x.size // _WINDOW_COUNT), rows(x, end=end))}

    return predict


def _raise() -> None:
    raise ValueError


def _nothing() -> None:
    pass


def _stall() -> None:
    time.sleep(MODEL_SECONDS * 1.5)


def _stall_and_fail() -> None:
    _stall()
    _raise()


def _sum(request: InferenceRequest) -> Outputs:
    return {"n": np.array([sum(window.nbytes for window in request.rows["x"].windows)])}


async def _sum_async(request: InferenceRequest) -> Outputs:
    count = 0
    async for window in request.rows["x"].windows:
        count += window.nbytes
    return {"n": np.array([count])}


def _echo_windows(request: InferenceRequest) -> Outputs:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, x.shape, iter(x.windows))}


def _fail_in_windows(request: InferenceRequest) -> Outputs:
    for number, _ in enumerate(request.rows["x"].windows):
        if number:
            _fail(request)
    return {}


async def _fail_in_windows_async(request: InferenceRequest) -> Outputs:
    number = 0
    async for _ in request.rows["x"].windows:
        number += 1
        if number > 1:
            _fail(request)
    return {}


PREDICTING: dict[str, Callable[..., Any]] = {
    "ok": _echo,
    "fails": _fail,
    "refuses": _refuse,
    "lacks memory": _lack_memory,
    "exits": _exit,
    "is late": _late,
    "is too late": _too_late,
    "fails too late": _fail_too_late,
    "async": _after(0, _echo),
    "async, fails": _after(0, _fail),
    "async, refuses": _after(0, _refuse),
    "async, lacks memory": _after(0, _lack_memory),
    "async, is late": _after(MODEL_SECONDS / 2, _echo),
    "async, is too late": _after(MODEL_SECONDS * 2, _echo),
    "async, fails while cancelled": _clean_up_and_fail,
    "async, fails in a thread": _in_thread(_fail),
    "async, is too late in a thread": _in_thread(_too_late),
    "async, fails too late in a thread": _in_thread(_fail_too_late),
    "async, fails in a group": _in_group,
    "returns None": _returning(lambda _: None),
    "returns a list": _returning(lambda x: [x]),
    "returns an object": _returning(lambda x: {"y": x, "z": object()}),
    "returns objects": _returning(lambda x: {"y": x, "z": np.array([object()] * 50_000)}),
    "returns names that are wrong": _returning(lambda x: {1: x}),
    "returns too few rows": _returning(lambda x: {"y": Rows("UINT8", (2, x.size), iter([x.reshape(1, -1)]))}),
    "returns rows of another size": _returning(lambda x: {"y": Rows("UINT8", (2, 3), iter([x.reshape(1, -1)]))}),
    "rows": _answer_rows(_nothing),
    "rows fail": _answer_rows(_raise),
    "rows stall": _answer_rows(_stall),
    "rows stall and fail": _answer_rows(_stall_and_fail),
    "async rows": _answer_rows(_nothing, _async_rows),
    "async rows fail": _answer_rows(_raise, _async_rows),
}

WINDOWED: dict[str, Callable[..., Any]] = {
    "windows": _sum,
    "windows, async": _sum_async,
    "windows, echoed": _echo_windows,
    "windows, fails": _fail_in_windows,
    "windows, async, fails": _fail_in_windows_async,
    "windows, fails at once": _fail,
    "windows, is too late": _too_late,
}

BATCHED = ("ok", "fails", "is late", "is too late", "async", "async, is late", "async, is too late")


def models(*, has_loop: bool = True) -> ModelRegistry:
    """Return them all; those that need an event loop only if there is one."""
    found = [Model(name=name, predict=predict) for name, predict in PREDICTING.items()]
    found += [Model(name=f"inline, {name}", predict=PREDICTING[name], is_inline=True) for name in ("ok", "fails")]
    found += [Model(name=name, predict=predict, windows=_WINDOWS) for name, predict in WINDOWED.items()]
    found += [Model(name=f"batched, {name}", predict=PREDICTING[name], batch=Batch(max_rows=4)) for name in BATCHED]
    declared = (TensorMetadata("x", "UINT8", (ANY_SIZE,)),)
    found.append(Model(name="declared", predict=_returning(lambda x: {"y": x}), inputs=declared, outputs=declared))
    found.append(Model(name="raw", predict=_fail, inputs=declared))
    return ModelRegistry.of([model for model in found if has_loop or "async" not in model.name])
