"""Models of the servers under test."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import numpy as np
import numpy.typing as npt

from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, TensorMetadata, demo_models
from streamcodec.service.models.model import Predict


def _sleep(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    time.sleep(float(request.inputs["x"].reshape(-1)[0]))
    return request.inputs


def _break(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    msg = "the password is swordfish"
    raise ValueError(msg)


def _exit(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    raise SystemExit(3)


def _open_files(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return {"COUNT": len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 - names are enough


def _large(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return {"y": np.zeros(int(request.inputs["x"].reshape(-1)[0]), np.uint8)}


def _bfloat16(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    from ml_dtypes import bfloat16  # noqa: PLC0415 - an optional package

    array: np.ndarray[Any, Any] = request.inputs["x"].astype(bfloat16)
    return {"y": array}


async def _hold_up(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Hold up the event loop."""
    for _ in range(6000):
        time.sleep(0.1)  # noqa: ASYNC251 - as it says
    return request.inputs


async def _never_end(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Go on although it is cancelled."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        with suppress(BaseException):
            await anyio.sleep(0.01)
    return request.inputs


def _leave_thread(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    """Leave a thread behind that the interpreter waits for."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return request.inputs


def models() -> ModelRegistry:
    """Make a new registry: the demo models and some that misbehave."""
    registry = demo_models()
    misbehaving: dict[str, Predict] = {
        "sleep": _sleep,
        "break": _break,
        "exit": _exit,
        "files": _open_files,
        "large": _large,
        "bf16": _bfloat16,
        "holds up": _hold_up,
        "never ends": _never_end,
        "leaves a thread": _leave_thread,
    }
    for name, predict in misbehaving.items():
        registry.add(Model(name=name, predict=predict))
    declared = (TensorMetadata("x", "FP32", (ANY_SIZE, 4)),)
    registry.add(Model(name="declared", predict=lambda request: request.inputs, inputs=declared, outputs=declared))
    wide = tuple(TensorMetadata(f"input {number}", "FP32", (ANY_SIZE, 4)) for number in range(1000))
    registry.add(Model(name="wide", predict=lambda request: request.inputs, inputs=wide))
    return registry


MODELS = models()
ONE_MODEL = next(iter(MODELS))
A_LIST = [ONE_MODEL]
AN_ARRAY = np.zeros(3)


class Holder:
    """So that the path to an object may have dots."""

    models = MODELS
