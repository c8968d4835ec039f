"""Models: what the server in little memory serves. A file of its own, so that another checkout can serve it."""

from __future__ import annotations

import zlib

import numpy as np

from streamcodec import Windows
from streamcodec.engine.memory.rows import synchronous
from streamcodec.service import InferenceRequest, Model
from streamcodec.service.models.model import Outputs


def _identity(request: InferenceRequest) -> Outputs:
    return request.values


def _digest(request: InferenceRequest) -> Outputs:
    """Answer the checksum of a plain tensor."""
    return {"y": np.array([zlib.crc32(request.inputs["x"].data.cast("B"))], np.int64)}


def _objects(request: InferenceRequest) -> Outputs:
    """Take BYTES as Python objects, and answer how many there are, and how long they are together."""
    array = request.inputs["x"]
    return {"y": np.array([array.size, sum(map(len, array.flat))], np.int64)}


def _windows(request: InferenceRequest) -> Outputs:
    total = 0
    for window in synchronous(request.rows["x"]):
        total = zlib.crc32(window.data.cast("B"), total)
    return {"y": np.array([total], np.int64)}


models = [
    Model(name="identity", predict=_identity),
    Model(name="digest", predict=_digest),
    Model(name="objects", predict=_objects),
    Model(name="windows", predict=_windows, windows=Windows(max_window_bytes=256 << 10)),
]
