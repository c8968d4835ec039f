"""Models: what the server under soak serves.

The demo models, those of the corpus (whose refused cases are sent to it), and one for each way in which a model may
run: in a thread, as an `async def`, with windows that come while it works, with rows that go while it works, with the
rows of several clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import anyio
import numpy as np

from streamcodec import ErrorCode, RemoteProtocolError, Rows, Windows
from streamcodec.engine.memory.rows import Window, synchronous
from streamcodec.service import (
    ANY_SIZE,
    Batch,
    InferenceRequest,
    Model,
    ModelRegistry,
    RowError,
    TensorMetadata,
    demo_models,
)
from streamcodec.service.models.model import Outputs
from tests.corpus.serving import models as corpus_models

_WINDOWS = Windows(max_window_bytes=256 << 10)
_FLOATS = (TensorMetadata("x", "FP32", (ANY_SIZE,)),)


def models() -> ModelRegistry:
    """Make the registry."""
    return ModelRegistry.of(
        [
            *demo_models(),
            *corpus_models(),
            Model(name="thread", predict=_inputs),
            Model(name="async", predict=_inputs_later),
            Model(name="raw", predict=_inputs, inputs=_FLOATS, outputs=_FLOATS),
            Model(name="crc", predict=_crc, windows=_WINDOWS),
            Model(name="mirror", predict=_mirror, windows=_WINDOWS),
            Model(name="batched", predict=_sums, batch=Batch(max_rows=16, max_delay=0.002)),
        ]
    )


def _inputs(request: InferenceRequest) -> Outputs:
    return request.values


async def _inputs_later(request: InferenceRequest) -> Outputs:
    await anyio.lowlevel.checkpoint()
    return request.values


def _crc(request: InferenceRequest) -> Outputs:
    """Answer the checksum of what came in windows."""
    total = 0
    for window in synchronous(request.rows["x"]):
        total = zlib.crc32(window.tobytes(), total)
    return {"CRC": np.array([total], np.int64)}


def _sums(request: InferenceRequest) -> Outputs:
    """Answer the sum of each row, unless a value is not finite."""
    sums = request.inputs["x"].sum(axis=1, keepdims=True)
    if rows := np.flatnonzero(~np.isfinite(sums)).tolist():
        error = RemoteProtocolError("a value is not finite", code=ErrorCode.MODEL_MISMATCH)
        raise RowError(dict.fromkeys(rows, error), {"y": sums})
    return {"y": sums}


def _mirror(request: InferenceRequest) -> Outputs:
    """Answer the windows of the input, each as soon as it has come."""
    rows = request.rows["x"]
    return {"x": Rows(rows.datatype, rows.shape, _passed_on(rows))}


def _passed_on(rows: Rows) -> Iterator[Window]:
    yield from synchronous(rows)
