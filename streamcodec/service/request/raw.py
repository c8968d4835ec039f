"""Raw binary requests: the body is the bytes of one tensor and nothing else (`Inference-Header-Content-Length: 0`).

Specification, "Raw Binary Request": the model has exactly one input. At most one of its dimensions is variable, and
follows from the size of the body. A BYTES input has the shape [1], and the whole body is its one element. For a
batching model the request is a batch of one.

The body may come in chunks, or compressed. If no dimension is variable, its size is known nevertheless. Else it is
known when the body has come; until then, the body is kept (`Reader.gather`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.spec import TensorSpec
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.models.batching import mismatch
from streamcodec.service.models.model import ANY_SIZE, Model, TensorMetadata

Deduce = Callable[[int], TensorSpec]
"""Deduces the tensor from the length of the body.

Raises `RemoteProtocolError`, `model-mismatch`: it has no such length.
"""


def raw_tensor(model: Model, head: RequestHead) -> TensorSpec | Deduce:
    """Deduce the tensor of a raw binary request.

    Args:
        model: the requested model.
        head: of the request. If chunking or compression hides the length of the body, and the model's input has a fixed
            size, then the body is checked against that.

    Returns:
        The tensor; or what deduces it when the body has come, if it follows from a length that is hidden.

    Raises:
        RemoteProtocolError: `model-mismatch`: the tensor cannot be deduced. `length-required`, status 411: there is no
            body.
    """
    has_framing = head.fields.is_chunked or bool(head.fields.values(b"content-length"))
    if head.content_length == 0 and not has_framing:
        raise _no_body()
    if model.inputs is None or len(model.inputs) != 1:
        count = "any inputs" if model.inputs is None else f"{len(model.inputs)} inputs"
        raise mismatch(f"a raw binary request needs a model with one input; this one takes {count}")
    metadata = model.inputs[0]
    dimensions = metadata.shape[1:] if model.is_batching else metadata.shape
    is_bytes = DATATYPES[metadata.datatype].is_bytes
    if is_bytes and dimensions != (1,):
        raise mismatch(f"a raw binary request for BYTES needs an input of shape [1], not {list(dimensions)}")
    if dimensions.count(ANY_SIZE) > 1:
        raise mismatch(f"the model's input {list(dimensions)} has several variable dimensions; send a header")
    deduce = partial(_tensor, metadata, dimensions, is_batching=model.is_batching)
    if head.body_length is not None:
        return deduce(head.body_length)
    if is_bytes or ANY_SIZE in dimensions:
        return deduce if has_framing else partial(_with_body, deduce)
    return deduce(DATATYPES[metadata.datatype].itemsize * math.prod(dimensions))


def _tensor(metadata: TensorMetadata, dimensions: tuple[int, ...], nbytes: int, *, is_batching: bool) -> TensorSpec:
    datatype = DATATYPES[metadata.datatype]
    shape = dimensions if datatype.is_bytes else _shape(dimensions, nbytes, datatype.itemsize)
    return TensorSpec(
        name=metadata.name,
        datatype=datatype,
        shape=(1, *shape) if is_batching else shape,
        nbytes=nbytes,
        offset=0,
        is_single_element=datatype.is_bytes,
    )


def _with_body(deduce: Deduce, nbytes: int) -> TensorSpec:
    """Deduce the tensor of a request of HTTP/2, which needs no field to say that it has a body."""
    if not nbytes:
        raise _no_body()
    return deduce(nbytes)


def _shape(wanted: tuple[int, ...], nbytes: int, itemsize: int) -> tuple[int, ...]:
    """Replace the variable dimension by the size that fits."""
    row = itemsize * math.prod(size for size in wanted if size != ANY_SIZE)
    if ANY_SIZE not in wanted:
        fits, count = nbytes == row, 1
    else:
        fits, count = (nbytes % row == 0, nbytes // row) if row else (nbytes == 0, 0)
    if not fits:
        raise mismatch(f"{nbytes} bytes do not fill the model's input {list(wanted)} with items of {itemsize} bytes")
    return tuple(count if size == ANY_SIZE else size for size in wanted)


def _no_body() -> RemoteProtocolError:
    """Return the error for a request without a body: there is no tensor then, not even one of 0 bytes."""
    msg = "a raw binary request has a body; this one has neither Content-Length nor chunks"
    return RemoteProtocolError(msg, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)
