"""Models: what a server offers, and how it is called.

A model is a Python callable plus metadata. The callable gets an `InferenceRequest`, whose arrays are the memory that
the network filled, and returns its outputs by name. The metadata says which inputs the model takes; requests that do
not fit are refused before any memory is taken for their tensors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any

import numpy as np

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.engine.message import Values
from streamcodec.engine.record import record
from streamcodec.engine.rows import Rows
from streamcodec.engine.spec import TensorSpec
from streamcodec.engine.windows import Windows
from streamcodec.formats.v2.model import RequestHeader

ANY_SIZE = -1
"""In the shape of a `TensorMetadata`: this dimension may have any size."""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """What a model declares of one of its inputs or outputs."""

    name: str
    """As in requests and responses."""
    datatype: str
    """One of the specification's 14 names, as `FP32`."""
    shape: tuple[int, ...]
    """Sizes of the dimensions; -1 where any size will do."""
    optional: bool = False
    """Of an input: whether a request may leave it out. It is not in `InferenceRequest.inputs` then."""

    def __post_init__(self) -> None:
        """Refuse metadata that no tensor could meet.

        Raises:
            LocalProtocolError: the datatype is unknown, or a size is below -1.
        """
        if self.datatype not in DATATYPES:
            msg = f"{self.datatype!r} is not a datatype; there are {', '.join(DATATYPES)}"
            raise LocalProtocolError(msg)
        if any(size < ANY_SIZE for size in self.shape):
            msg = f"sizes are >= 0, or -1 for any, unlike {list(self.shape)}"
            raise LocalProtocolError(msg)

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Tell whether a tensor may have this shape."""
        return len(shape) == len(self.shape) and all(
            wanted in {ANY_SIZE, size} for wanted, size in zip(self.shape, shape, strict=True)
        )


@record()
class InferenceRequest:
    """What a model is called with."""

    inputs: Mapping[str, np.ndarray[Any, Any]]
    """Arrays by name, in the order of the request: writable, and the model's to keep. BYTES are object arrays of
    `bytes`, made when they are asked for; see `values`. Empty for a model that takes windows."""
    header: RequestHeader
    """All that the request said: its id, its parameters and those of its tensors, the outputs it asks for."""
    model_name: str
    """The model, as the URL named it."""
    model_version: str
    """The version, as the URL named it, or else the model's newest."""
    rows: Mapping[str, Rows] = MappingProxyType({})
    """For a model that takes windows: its inputs by name, in the order of the request, in which they are to be taken.
    Their `windows` wait for what has not arrived, by `async for` if the model is `async def`."""

    @property
    def values(self) -> Mapping[str, np.ndarray[Any, Any] | Elements]:
        """The inputs by name, where BYTES that came in binary are `Elements`, without an object for each."""
        return self.inputs.values_received if type(self.inputs) is Inputs else self.inputs


class Inputs(Mapping[str, np.ndarray[Any, Any]]):
    """Inputs of which some are BYTES: their objects are made when they are asked for, which a model may never do."""

    def __init__(self, values: Mapping[str, np.ndarray[Any, Any] | Elements]) -> None:
        """Keep what has been received."""
        self.values_received = values

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return an input as an array."""
        values = self.values_received[name]
        return values.array if isinstance(values, Elements) else values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the request."""
        return iter(self.values_received)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self.values_received)


Outputs = Mapping[str, Values]

Predict = Callable[[InferenceRequest], Outputs] | Callable[[InferenceRequest], Awaitable[Outputs]]
"""A model's callable. It runs in a worker thread, so several calls may run at once, unless the model says otherwise. An
`async def` runs on the event loop. A `RemoteProtocolError` that it raises refuses the request with its `status_hint`;
any other exception is answered with status 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and its metadata."""

    name: str
    """As in URLs."""
    predict: Predict
    """Computes the outputs of a request."""
    inputs: tuple[TensorMetadata, ...] | None = None
    """The inputs, all of them required but those that are `optional`; None if any will do."""
    outputs: tuple[TensorMetadata, ...] | None = None
    """The outputs; None if they depend on the request."""
    versions: tuple[str, ...] = ("1",)
    """Versions that are served, the newest last."""
    platform: str = "python"
    """As in the model's metadata."""
    is_batching: bool = False
    """Whether the first dimension of every input and output is the batch. A raw binary request then is a batch of 1,
    and classes are found for each row of the batch."""
    is_inline: bool = False
    """Whether the callable is so quick, some 100 microseconds at most, that for small requests (64 KiB) it runs on the
    event loop between others: that is sooner done than handing it to a thread. Nothing else is served meanwhile."""
    windows: Windows | None = None
    """How the inputs are given to a model that takes them window by window, as `InferenceRequest.rows`, in constant
    memory; such a model is called as soon as the header has come. None for whole arrays. If it answers with `Rows` that
    are made of its inputs, what it has computed is sent while the rest arrives. That takes a client that reads while it
    sends, as ours do; others first send all of it, which goes well if the answer is short."""
    labels: Mapping[str, Sequence[str]] | None = field(default=None, hash=False)
    """Names of the classes of an output, by the output's name, for `Service(classifies=True)`; None if there are
    none."""
    ready: Callable[[], bool] | None = None
    """Tells whether the model can be asked now, for a model that has to load or to warm up; None if it always can.

    It is called for each request of the model and each readiness check, on the event loop, so it must be quick. While
    it says no, or raises, requests are answered 503, and the server as a whole is not ready."""

    def __post_init__(self) -> None:
        """Refuse what could never be shown or done.

        Raises:
            LocalProtocolError: labels are of an output that the model does not have, or are one text; or an output is
                `optional`.
        """
        for output in self.outputs or ():
            if output.optional:
                msg = f"output {output.name!r} of model {self.name!r} is optional, which only inputs can be"
                raise LocalProtocolError(msg)
        known = None if self.outputs is None else {output.name for output in self.outputs}
        for name, labels in (self.labels or {}).items():
            if known is not None and name not in known:
                msg = f"model {self.name!r} has labels for {name!r}, which is none of its outputs"
                raise LocalProtocolError(msg)
            if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
                msg = f"the labels of output {name!r} are a sequence of str"
                raise LocalProtocolError(msg)

    @property
    def is_async(self) -> bool:
        """Whether the callable is an `async def`."""
        return iscoroutinefunction(self.predict) or iscoroutinefunction(type(self.predict).__call__)

    @property
    def is_ready(self) -> bool:
        """Whether the model can be asked now."""
        try:
            return self.ready is None or bool(self.ready())
        except KeyboardInterrupt:  # may be meant for the program
            raise
        except BaseException:  # noqa: BLE001 - it may raise anything, and shall not end the server
            return False

    def check(self, header: RequestHeader) -> None:
        """Refuse a request that does not fit the metadata.

        Raises:
            RemoteProtocolError: `model-mismatch`, with the path of the tensor or output.
        """
        if self.inputs is not None:
            self._check_inputs(header.tensors, {tensor.name: tensor for tensor in self.inputs})
        if self.windows is not None:
            for index, tensor in enumerate(header.tensors):
                if tensor.datatype.is_bytes:
                    raise _mismatch(
                        "the model takes windows, which BYTES do not come in", f"$.inputs[{index}].datatype"
                    )
        if self.outputs is not None:
            known = {output.name for output in self.outputs}
            for index, output in enumerate(header.outputs or ()):
                if output.name not in known:
                    raise no_such_output(output.name, f"$.outputs[{index}].name")

    def _check_inputs(self, tensors: tuple[TensorSpec, ...], known: dict[str, TensorMetadata]) -> None:
        for index, tensor in enumerate(tensors):
            path = f"$.inputs[{index}]"
            metadata = known.pop(tensor.name, None)
            if metadata is None:
                raise _mismatch(f"the model has no input {shown(tensor.name)}", f"{path}.name")
            if tensor.datatype.name != metadata.datatype:
                found, wanted = tensor.datatype.name, metadata.datatype
                raise _mismatch(f"the datatype is {found}, the model takes {wanted}", f"{path}.datatype")
            if not metadata.accepts(tensor.shape):
                found, wanted = str(list(tensor.shape)), str(list(metadata.shape))
                raise _mismatch(f"the shape is {found}, the model takes {wanted}", f"{path}.shape")
        for metadata in known.values():
            if not metadata.optional:
                raise _mismatch(f"the model also needs the input {shown(metadata.name)}", "$.inputs")


def no_such_output(name: str, path: str) -> RemoteProtocolError:
    """Make the error for a requested output that the model does not have."""
    return _mismatch(f"the model has no output {shown(name)}", path)


def _mismatch(message: str, path: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.MODEL_MISMATCH, path=path)
