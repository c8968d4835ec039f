"""Raw binary requests: the body is the bytes of one tensor and nothing else (`Inference-Header-Content-Length: 0`).

Specification, "Raw Binary Request": the model has exactly one input. At most one of its dimensions is variable, and
follows from the size of the body. A BYTES input has the shape [1], and the whole body is its one element. For a
batching model the request is a batch of one. If no dimension is variable, the size need not be known: the body may come
in chunks, or compressed.
"""

from __future__ import annotations

import math
from typing import Final

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.spec import TensorSpec
from streamcodec.http.messages import RequestHead
from streamcodec.service.models import ANY_SIZE, Model


def raw_tensor(model: Model, head: RequestHead) -> TensorSpec:
    """Deduce the tensor of a raw binary request.

    Args:
        model: the requested model.
        head: of the request. If chunking or compression hides the length of the body, the model's input must determine
            it. The body is then checked against that length.

    Raises:
        RemoteProtocolError: `model-mismatch`: the tensor cannot be deduced. `length-required`, status 411: the length
            is missing, or is hidden although the shape follows from it.
    """
    if head.content_length == 0 and not head.fields.values(b"content-length"):
        # Without a body there is no tensor, not even one of 0 bytes.
        raise _length_required("a raw binary request has a body; this one has neither Content-Length nor chunks")
    if model.inputs is None or len(model.inputs) != 1:
        count = "any inputs" if model.inputs is None else f"{len(model.inputs)} inputs"
        raise _mismatch(f"a raw binary request needs a model with one input; this one takes {count}")
    metadata = model.inputs[0]
    datatype = DATATYPES[metadata.datatype]
    batch, dimensions = ((1,), metadata.shape[1:]) if model.is_batching else ((), metadata.shape)
    nbytes = head.body_length
    if not datatype.is_bytes:
        shape = _shape(dimensions, nbytes, datatype.itemsize)
        nbytes = datatype.itemsize * math.prod(shape)
    elif dimensions != (1,):
        raise _mismatch(f"a raw binary request for BYTES needs an input of shape [1], not {list(dimensions)}")
    elif nbytes is None:
        raise _length_required(f"the body is the one element of the model's input, {_HIDDEN}")
    else:
        shape = (1,)
    return TensorSpec(
        name=metadata.name,
        datatype=datatype,
        shape=(*batch, *shape),
        nbytes=nbytes,
        offset=0,
        is_single_element=datatype.is_bytes,
    )


def _shape(wanted: tuple[int, ...], nbytes: int | None, itemsize: int) -> tuple[int, ...]:
    """Replace the variable dimension by the size that fits."""
    if wanted.count(ANY_SIZE) > 1:
        raise _mismatch(f"the model's input {list(wanted)} has several variable dimensions; send a header")
    row = itemsize * math.prod(size for size in wanted if size != ANY_SIZE)
    if nbytes is None and ANY_SIZE in wanted:
        raise _length_required(f"the model's input {list(wanted)} has a variable dimension, {_HIDDEN}")
    if nbytes is None:
        return wanted
    if ANY_SIZE not in wanted:
        fits, count = nbytes == row, 1
    else:
        fits, count = (nbytes % row == 0, nbytes // row) if row else (nbytes == 0, 0)
    if not fits:
        raise _mismatch(f"{nbytes} bytes do not fill the model's input {list(wanted)} with items of {itemsize} bytes")
    return tuple(count if size == ANY_SIZE else size for size in wanted)


_HIDDEN: Final = (
    "so a raw binary request needs the length of the body: send Content-Length, without chunks or compression"
)


def _length_required(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)


def _mismatch(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.MODEL_MISMATCH)
