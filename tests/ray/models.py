"""What replicas serve: our service, and an application that takes whole bodies, as one would write it first.

- `identity`, `sink`: as in `tests.benchmarks.models`.
- `holding`: `sink`, which takes a third of a second for it: so requests of several clients are there together.
- `slow`: `sink` by windows, which begins to read after two seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcodec import Windows
from streamcodec.engine.memory.rows import synchronous
from streamcodec.ray import Replica
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service, TensorMetadata
from tests.benchmarks import models

SLOW_SECONDS = 2.0
HOLDING_SECONDS = 0.3

_X = (TensorMetadata("x", "FP32", (-1,)),)
_COUNT = (TensorMetadata("COUNT", "INT64", (1,)),)

Message = MutableMapping[str, Any]


def _holding(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    time.sleep(HOLDING_SECONDS)
    return {"COUNT": np.array([request.inputs["x"].nbytes], np.int64)}


def _slow(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    time.sleep(SLOW_SECONDS)
    return {"COUNT": np.array([sum(window.nbytes for window in synchronous(request.rows["x"]))], np.int64)}


def make_service() -> Service:
    """Return the service of a replica."""
    windows = Windows(max_window_bytes=1 << 20)
    ours = [
        Model(name="holding", predict=_holding, inputs=_X, outputs=_COUNT),
        Model(name="slow", predict=_slow, inputs=_X, outputs=_COUNT, windows=windows),
    ]
    return Service(ModelRegistry.of([*models.models(), *ours]))


class Observed(Replica):
    """A replica that tells what it has."""

    async def state(self) -> dict[str, int]:
        """Return numbers of what should be gone when nobody asks for anything."""
        return {
            "reserved_bytes": self._server.reserved_bytes,
            "requests": self._server.requests_in_progress,
            "abandoned_calls": self._server.abandoned_calls,
            "tasks": len(asyncio.all_tasks()),
        }


async def _naive(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    pieces = []
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(pieces)
    model = scope["path"].split("/models/")[-1].split("/")[0]
    length = int(dict(scope["headers"]).get(b"inference-header-content-length", b"0"))
    if model not in {"identity", "sink", "holding"} or not length:
        await _answer(send, 404, {"content-type": "application/json"}, b'{"error": "unknown model"}')
        return
    x = np.frombuffer(body[length:], np.float32)
    output: dict[str, object] = {"name": "x", "datatype": "FP32", "shape": list(x.shape)}
    if model == "identity":
        data = x.tobytes()
    else:
        await asyncio.sleep(HOLDING_SECONDS if model == "holding" else 0)
        output = {"name": "COUNT", "datatype": "INT64", "shape": [1]}
        data = np.array([x.nbytes], np.int64).tobytes()
    output["parameters"] = {"binary_data_size": len(data)}
    header = json.dumps({"model_name": model, "outputs": [output]}).encode()
    await _answer(send, 200, {"inference-header-content-length": str(len(header))}, header + data)


async def _answer(
    send: Callable[[Message], Awaitable[None]], status: int, fields: Mapping[str, str], body: bytes
) -> None:
    fields = {**fields, "content-length": str(len(body))}
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def naive() -> Callable[..., Awaitable[None]]:
    """Make the application that takes whole bodies."""
    return _naive
