"""Raw binary requests: a body that is one tensor's bytes and nothing else (`Inference-Header-Content-Length: 0`).

Specification, "Raw Binary Request": the model has exactly one input; of its dimensions at most one is variable, and
follows from the size; a BYTES input has the shape [1], and the whole body is its one element; to a batching model the
request is a batch of one.
"""

from __future__ import annotations

import math

from streamcodec.core.datatypes import DATATYPES
from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.core.model import TensorSpec
from streamcodec.service.models import ANY_SIZE, Model


def raw_tensor(model: Model, nbytes: int | None) -> TensorSpec:
    """Deduce the tensor of a raw binary request.

    Args:
        model: the one that is asked.
        nbytes: length of the body; None if it is not declared, chunked or compressed.

    Raises:
        RemoteProtocolError: `model-mismatch`: it cannot be deduced; `length-required`, status 411: the length is
            missing.
    """
    if nbytes is None:
        msg = "a raw binary request needs a Content-Length, and no compression"
        raise RemoteProtocolError(msg, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)
    if model.inputs is None or len(model.inputs) != 1:
        count = "any inputs" if model.inputs is None else f"{len(model.inputs)} inputs"
        raise _mismatch(f"a raw binary request needs a model with one input; this one takes {count}")
    metadata = model.inputs[0]
    datatype = DATATYPES[metadata.datatype]
    batch, dimensions = ((1,), metadata.shape[1:]) if model.is_batching else ((), metadata.shape)
    if not datatype.is_bytes:
        shape = _shape(dimensions, nbytes, datatype.itemsize)
    elif dimensions in {(1,), (ANY_SIZE,)}:
        shape = (1,)
    else:
        raise _mismatch(f"a raw binary request for BYTES needs an input of shape [1], not {list(dimensions)}")
    return TensorSpec(
        name=metadata.name,
        datatype=datatype,
        shape=(*batch, *shape),
        nbytes=nbytes,
        offset=0,
        is_single_element=datatype.is_bytes,
    )


def _shape(wanted: tuple[int, ...], nbytes: int, itemsize: int) -> tuple[int, ...]:
    """Put the size that fits in the place of the one variable dimension."""
    if wanted.count(ANY_SIZE) > 1:
        raise _mismatch(f"the model's input {list(wanted)} has several variable dimensions; send a header")
    row = itemsize * math.prod(size for size in wanted if size != ANY_SIZE)
    if ANY_SIZE not in wanted:
        fits, count = nbytes == row, 1
    else:
        fits, count = (nbytes % row == 0, nbytes // row) if row else (nbytes == 0, 0)
    if not fits:
        raise _mismatch(f"{nbytes} bytes do not fill the model's input {list(wanted)} with items of {itemsize} bytes")
    return tuple(count if size == ANY_SIZE else size for size in wanted)


def _mismatch(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.MODEL_MISMATCH)
