"""Models: what is asked, in each way in which a model can be called; and what an observer is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from streamcodec import ErrorCode, RemoteProtocolError
from streamcodec.server import ServerOptions
from streamcodec.service import (
    ANY_SIZE,
    InferenceRequest,
    Model,
    ModelRegistry,
    Observer,
    RequestRecord,
    TensorMetadata,
)

MEMORY_BYTES: Final = 1 << 18
"""All memory for requests: one large request shows whether some of it was not given back."""

HASTY_SECONDS: Final = 0.4
"""All limits of time for a client that stops, where it is meant to exceed them."""

FIELDS: Final = ("traceparent", "x-note", "host", "content-type", "content-length", "inference-header-content-length")
"""Fields of a head that the observer is asked for."""

Outputs = Mapping[str, Any]
Events = list[list[Any]]
"""What an observer was told of one request, in order; it can be written as JSON."""


def _echo(request: InferenceRequest) -> Outputs:
    return {"y": request.inputs["x"]}


def _tell(request: InferenceRequest) -> Outputs:
    """Answer what a model sees besides its inputs."""
    header = request.header
    seen = f"{header.id!r} {dict(header.parameters)!r} {request.model_name} {request.model_version}"
    return {"y": request.inputs["x"], "seen": np.frombuffer(seen.encode("utf-8", "backslashreplace"), np.uint8)}


def _fail(request: InferenceRequest) -> Outputs:
    """Refuse with a status that the request names, or raise anything else."""
    status = int(request.inputs["x"].reshape(-1)[0])
    if not status:
        raise ValueError(request.model_name)
    msg = "nothing here"
    raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=status)


def _count(request: InferenceRequest) -> Outputs:
    return {"n": np.array([request.inputs["x"].nbytes])}


def _later(predict: Callable[[InferenceRequest], Outputs]) -> Callable[[InferenceRequest], Any]:
    async def predict_later(request: InferenceRequest) -> Outputs:
        return predict(request)

    return predict_later


WORK: Final = {"echo": _echo, "tell": _tell, "fail": _fail}


def models(*, has_loop: bool) -> ModelRegistry:
    """Return each kind of work in each way: on the event loop, in a thread, and as a coroutine if there is a loop."""
    found = []
    for name, predict in WORK.items():
        found.append(Model(name=f"{name}-inline", predict=predict, is_inline=True))
        found.append(Model(name=f"{name}-thread", predict=predict))
        if has_loop:
            found.append(Model(name=f"{name}-coroutine", predict=_later(predict)))
    found.append(Model(name="count", predict=_count))
    declared = (TensorMetadata("x", "FP32", (ANY_SIZE,)),)
    found.append(Model(name="echo-raw", predict=_echo, is_inline=True, inputs=declared))
    return ModelRegistry.of(found)


def options(*, is_hasty: bool) -> ServerOptions:
    """Return small limits; those of time only if clients are to exceed them."""
    if not is_hasty:
        return ServerOptions(max_memory_bytes=MEMORY_BYTES)
    return ServerOptions(
        max_memory_bytes=MEMORY_BYTES,
        head_timeout=HASTY_SECONDS,
        header_timeout=HASTY_SECONDS,
        read_timeout=HASTY_SECONDS,
    )


class Recorder(Observer):
    """Keeps what it was told of each request that is over."""

    def __init__(self) -> None:
        self.over: list[tuple[str, Events]] = []
        """Client and events."""
        self._events: defaultdict[RequestRecord, Events] = defaultdict(list)

    def request_begun(self, request: RequestRecord) -> None:
        self._events[request].append(["begun", *_head(request)])

    def call_begun(self, request: RequestRecord) -> None:
        self._events[request].append(["call", request.model, request.version, request.request_id, *_head(request)])

    def call_ended(self, request: RequestRecord) -> None:
        self._events[request].append(["called", request.model, request.request_id])

    def request_ended(self, request: RequestRecord) -> None:
        code = None if request.code is None else str(request.code)
        told = [request.model, request.version, request.request_id, request.status, code, request.ending.value]
        events = self._events.pop(request, [])
        events.append(["ended", *told, request.bytes_out, *_head(request)])
        self.over.append((request.client, events))


def _head(request: RequestRecord) -> list[Any]:
    fields = {name: [value.decode("latin-1") for value in request.field(name.encode())] for name in FIELDS}
    return [request.method, request.target, fields]
