"""Batching: how the requests of several clients are put together for one call of a model. Data only.

A model with a `Batch` is called with the rows of several requests, one after the other, in one array. What is waited
for, and when a batch is closed, is decided by `streamcodec.service.batches`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from streamcodec.engine.arguments import check_kind, checked_integer
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.message import Values
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How requests are put together for one call of a model.

    The first dimension of every input and output is the batch. Requests go together if the names, datatypes, other
    dimensions and parameters of their inputs agree, and their own parameters, and the version. One request may bring
    several rows; they stay together.
    """

    max_rows: int = 64
    """Rows of a call, at most. A request with more of them is refused with status 400, as with Triton."""
    max_delay: float = 0.002
    """Seconds that a request waits for others, at most, while the model is free. 0 takes what is there."""
    preferred_rows: Sequence[int] = ()
    """A batch that has exactly so many rows does not wait for more."""
    max_queue_rows: int = 1024
    """Rows that wait for a call, at most. Further requests are answered 503 with `Retry-After`: to wait for 16 calls of
    64 rows takes long enough, and whoever is told so can ask another server."""
    max_running: int = 1
    """Calls of the model at once. While it works, the next batch grows, so one call keeps a processor busy and batches
    large. More are useful for a model that waits for another device."""
    retry_alone: bool = True
    """Whether the requests of a failed call are tried once again, each alone, so that one bad input fails no others.
    More than 16 are tried a few at a time before."""

    def __post_init__(self) -> None:
        """Refuse values that no batch can have.

        Raises:
            LocalProtocolError: a value is of another type, or out of range.
        """
        for name in ("max_rows", "max_queue_rows", "max_running"):
            if checked_integer(name, getattr(self, name)) < 1:
                msg = f"{name} of a Batch must be an integer above 0, not {getattr(self, name)!r}"
                raise LocalProtocolError(msg)
        check_kind(self.max_delay, (int, float), "max_delay of a Batch is a number of seconds")
        if not 0 <= self.max_delay < math.inf:
            msg = f"max_delay of a Batch must be a number of seconds from 0 on, not {self.max_delay!r}"
            raise LocalProtocolError(msg)
        check_kind(self.preferred_rows, Sequence, "preferred_rows of a Batch are a tuple of int, as (16, 32)")
        if not all(0 < checked_integer("a preferred size", rows) <= self.max_rows for rows in self.preferred_rows):
            msg = f"preferred_rows must be 1 to max_rows, {self.max_rows}, unlike {list(self.preferred_rows)}"
            raise LocalProtocolError(msg)
        if self.max_queue_rows < self.max_rows:
            msg = f"max_queue_rows must be at least max_rows, {self.max_rows}, not {self.max_queue_rows}"
            raise LocalProtocolError(msg)

    def check(self, tensors: Sequence[TensorSpec]) -> None:
        """Refuse a request that cannot be a part of a batch.

        Raises:
            RemoteProtocolError: `model-mismatch`: there are no inputs; one has no first dimension, or not that of the
                others; or there are more rows than the model takes.
        """
        if not tensors:
            raise mismatch("the model takes batches, and there are no inputs", "$.inputs")
        wanted = tensors[0].shape[:1]
        for index, tensor in enumerate(tensors):
            path = f"$.inputs[{index}].shape"
            if not tensor.shape:
                raise mismatch("the model takes batches, and the input has no dimension for rows", path)
            if tensor.shape[:1] != wanted:
                raise mismatch(f"the input has {tensor.shape[0]} rows, and the first one {wanted[0]}", path)
        if wanted[0] > self.max_rows:
            raise mismatch(f"there are {wanted[0]} rows, and the model takes {self.max_rows}", "$.inputs[0].shape")


class RowError(Exception):
    """Raised by a model for some rows of a batch. The clients of the other rows get their outputs.

    Attributes:
        errors: by the index of the row in the batch; each is answered as if the model had raised it for that request.
        outputs: of the whole batch; None if there are none. Then the other rows are computed once again.
    """

    def __init__(self, errors: Mapping[int, BaseException], outputs: Mapping[str, Values] | None = None) -> None:
        """Name the rows.

        Raises:
            LocalProtocolError: `errors` is no mapping of row numbers to exceptions, or is empty.
        """
        check_kind(errors, Mapping, "the errors are given by row, as RowError({3: ValueError('no face')})")
        for error in errors.values():
            check_kind(error, BaseException, "the error of a row is an exception, as ValueError('no face')")
        if not errors:
            raise LocalProtocolError("a RowError names at least one row")
        super().__init__(f"{len(errors)} rows of a batch have failed")
        self.errors = {checked_integer("a row", row): error for row, error in errors.items()}
        self.outputs = outputs


class Queues(WeakKeyDictionary[Any, Any]):
    """What waits for a batch of one model, by event loop. A copy of the model in another process has its own."""

    def __reduce__(self) -> tuple[type[Queues], tuple[()]]:
        """Leave everything out."""
        return Queues, ()


class QueueFullError(Exception):
    """The queue of a model has its maximum number of rows: status 503 with `Retry-After`."""


@record()
class BatchPlace:
    """What one request has to do with the batch that it was a part of, for logs, metrics and traces."""

    number: int
    """Of the batch in this process. All of its requests have the same."""
    rows: int
    """Rows of the batch."""
    own_rows: int
    """Of them, those of this request."""
    requests: int
    """Requests in it."""
    index: int
    """Of this request in it. Whoever counts batches counts those with index 0."""
    reason: str
    """Why it was closed: `full`, `preferred` or `delay`."""
    waited: float
    """Seconds that this request has waited for it."""


def mismatch(message: str, path: str | None = None) -> RemoteProtocolError:
    """Return the error of a request that does not fit its model."""
    return RemoteProtocolError(message, code=ErrorCode.MODEL_MISMATCH, path=path)
