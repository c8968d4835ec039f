"""Missing inputs: however a model is called, to ask for an input that was not sent is answered 400."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import pytest

from streamcodec import Windows
from streamcodec.engine.memory.rows import synchronous
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, infer_request


def _ask(request: InferenceRequest) -> Outputs:
    return {"y": request.inputs["z"]}


async def _ask_later(request: InferenceRequest) -> Outputs:
    return _ask(request)


def _ask_for_rows(request: InferenceRequest) -> Outputs:
    for _ in synchronous(request.rows["x"]):
        pass
    return {"y": request.rows["z"]}


async def _ask_for_rows_later(request: InferenceRequest) -> Outputs:
    async for _ in cast("AsyncIterator[np.ndarray[Any, Any]]", request.rows["x"].windows):
        pass
    return {"y": request.rows["z"]}


MODELS = [
    Model(name="thread", predict=_ask, is_inline=False),
    Model(name="inline", predict=_ask, is_inline=True),
    Model(name="async", predict=_ask_later),
    Model(name="windows", predict=_ask_for_rows, windows=Windows(max_window_bytes=64)),
    Model(name="windows-async", predict=_ask_for_rows_later, windows=Windows(max_window_bytes=64)),
]


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_the_request_is_refused_and_the_connection_stays(backend: str) -> None:
    with server_here(ModelRegistry.of(MODELS), backend=backend) as (_, address), Wire(address) as wire:
        for model in MODELS:
            for count in (4, 30_000):
                answer = wire.send(infer_request(model.name, count=count)).response()
                assert (answer.status, answer.is_last) == (400, False), model.name
                assert answer.error == "the model needs the input 'z'; the request has 'x' ($.inputs)"
