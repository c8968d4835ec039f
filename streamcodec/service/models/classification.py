"""Classification: answers outputs with their highest values, each with index and label (an extension of Triton's).

Extension, "classification": a requested output may have the parameter `{"classification": K}`. It is then answered as a
BYTES tensor of K texts, highest value first. A text is `VALUE:INDEX`, or `VALUE:INDEX:LABEL` if the model has a label
for that index. For a batching model each row of the batch is ranked separately, and the shape is [batch, K]. For other
models the whole output is one row, and the shape is [K]. If K is larger than the row, the whole row is ranked. All
this, and the printed form of values, is as in Triton. Triton leaves two cases undefined. Here the first of equal values
comes first, and NaN comes last.

Triton ranks integers, FP32 and FP64. FP16 and BF16 are ranked here too. BOOL and BYTES have no order, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import datatype_of, to_wire
from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.rows import Rows, collect
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.encoder import Tensor
from streamcodec.formats.v2.model import RequestedOutput, RequestHeader
from streamcodec.service.models.model import Model
from streamcodec.service.negotiation import CLASSIFICATION

_UNRANKED: Final = {"BOOL", "BYTES"}


def check_classes(model: Model, header: RequestHeader) -> None:
    """Refuse a request for classes that the model cannot answer.

    Raises:
        RemoteProtocolError: `model-mismatch` or `invalid-member`, with the path.
    """
    declared = {output.name: output.datatype for output in model.outputs or ()}
    for index, output in enumerate(header.outputs or ()):
        if _class_count(output, index) is not None and output.name in declared:
            _check_datatype(declared[output.name], index)


def classify_outputs(tensors: list[Tensor], model: Model, header: RequestHeader, limits: Limits) -> list[Tensor]:
    """Replace the outputs for which classes were requested.

    Args:
        tensors: the outputs of the model, one for each requested output.
        model: has the labels, and says whether the first dimension is the batch.
        header: of the request; `check_classes` has accepted it.
        limits: `max_bytes_elements` bounds how many texts are made, because many small elements make a large answer.

    Raises:
        RemoteProtocolError: `model-mismatch`: the values of an output have no order.
        LimitExceededError: too many classes.
    """
    if not header.outputs:
        return tensors
    return [
        _classified(tensor, model, count, index, limits) if (count := _class_count(output, index)) else tensor
        for index, (tensor, output) in enumerate(zip(tensors, header.outputs, strict=True))
    ]


def top_classes(scores: np.ndarray[Any, Any], count: int, labels: Sequence[str]) -> np.ndarray[Any, Any]:
    """Rank each row, and describe its highest values.

    Args:
        scores: integers or floats, of shape [rows, classes].
        count: how many classes are wanted, at most as many as there are.
        labels: of the first classes, or of none; an empty text is no label.

    Returns:
        An object array of texts, of shape [rows, count].
    """
    order = _top(scores, count)
    values = np.take_along_axis(scores, order, axis=1)
    form = "f" if scores.dtype.kind == "f" else "d"
    suffixes = [f":{label}" if label else "" for label in labels]
    texts = np.empty(order.size, dtype=object)
    texts[:] = [
        f"{value:{form}}:{index}{suffixes[index] if index < len(suffixes) else ''}"
        for value, index in zip(values.reshape(-1).tolist(), order.reshape(-1).tolist(), strict=True)
    ]
    return texts.reshape(order.shape)


def _classified(tensor: Tensor, model: Model, count: int, index: int, limits: Limits) -> Tensor:
    array = tensor.array
    if not isinstance(array, np.ndarray):
        array = collect(array) if isinstance(array, Rows) else array.array
    datatype = datatype_of(array.dtype).name
    _check_datatype(datatype, index)
    batch = array.shape[:1] if model.is_batching else ()
    scores = array.reshape(math.prod(batch), math.prod(array.shape[len(batch) :]))
    count = min(count, scores.shape[1])
    if len(scores) * count > limits.max_bytes_elements:
        msg = f"the classes are {len(scores) * count} texts, and {limits.max_bytes_elements} are allowed"
        raise LimitExceededError(msg, limit="max_bytes_elements", path=_path(index), status_hint=400)
    if datatype == "BF16":
        scores = (to_wire(scores).view("<u2").astype(np.uint32) << 16).view(np.float32)  # the upper half of FP32
    classes = top_classes(scores, count, (model.labels or {}).get(tensor.name, ()))
    return replaced(tensor, array=classes.reshape(*batch, count))


def _top(scores: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return the columns of the highest values of each row, in order; the other values are not sorted."""
    if not count or not len(scores):
        return np.empty((len(scores), count), dtype=np.intp)
    # Ascending order of the keys is descending order of the values, with NaN at the end. No integer overflows.
    keys = -scores if scores.dtype.kind == "f" else ~scores
    last = np.partition(keys, count - 1, axis=1)[:, count - 1 : count]
    rows, columns = np.nonzero(~(keys > last))  # the best, everything equal to the last of them, and NaN
    order = np.lexsort((keys[rows, columns], rows))  # by row, then by key, then by position
    starts = np.searchsorted(rows, np.arange(len(scores)))
    top: np.ndarray[Any, Any] = columns[order][starts[:, None] + np.arange(count)]
    return top


def _class_count(output: RequestedOutput, index: int) -> int | None:
    """Return how many classes are wanted; None if the output is to be answered unchanged."""
    count = output.parameters.get(CLASSIFICATION)
    if count is None or (type(count) is int and count >= 1):
        return count
    msg = "the number of classes is an integer >= 1"
    raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=_path(index))


def _check_datatype(datatype: str, index: int) -> None:
    if datatype in _UNRANKED:
        msg = f"the output is {datatype}, whose values have no order; classes are taken from integers and floats"
        raise RemoteProtocolError(msg, code=ErrorCode.MODEL_MISMATCH, path=_path(index))


def _path(index: int) -> str:
    return f"$.outputs[{index}].parameters.{CLASSIFICATION}"
