"""Models: what a server offers, and how it is called.

A model is a Python callable with metadata. The callable gets an `InferenceRequest`; the network has filled the memory
of its arrays. It returns its outputs by name. The metadata say which inputs the model takes. A request that does not
fit is refused before memory is taken for its tensors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from itertools import islice
from types import MappingProxyType, NoneType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from streamcodec.engine.arguments import check_kind, whole
from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.memory.windows import Windows
from streamcodec.engine.message import Values
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service.batches.blocks import Blocks
from streamcodec.service.models.batching import Batch, Queues, mismatch
from streamcodec.service.models.quickness import Quickness

_MOST_NAMES: Final = 5
"""Of inputs in an error."""

ValueT = TypeVar("ValueT")

ANY_SIZE = -1
"""In the shape of a `TensorMetadata`: this dimension may have any size."""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """The declaration of an input or output of a model."""

    name: str
    """As in requests and responses."""
    datatype: str
    """One of the specification's 14 names, as `FP32`."""
    shape: tuple[int, ...]
    """Sizes of the dimensions; -1 if any size is allowed."""
    optional: bool = False
    """Whether a request may leave this input out. It is then missing in `InferenceRequest.inputs`."""

    def __post_init__(self) -> None:
        """Refuse metadata that no tensor can match.

        Raises:
            LocalProtocolError: the datatype is unknown, or a size is below -1.
        """
        if self.datatype not in DATATYPES:
            msg = f"{self.datatype!r} is not a datatype; there are {', '.join(DATATYPES)}"
            raise LocalProtocolError(msg)
        check_kind(self.shape, Sequence, "a shape is a tuple of int, as (ANY_SIZE, 3)")
        if any(whole(size) is None for size in self.shape):
            msg = f"sizes are int, -1 for any, unlike {list(self.shape)}"
            raise LocalProtocolError(msg)
        if any(size < ANY_SIZE for size in self.shape):
            msg = f"sizes must be >= 0, or -1 for any, unlike {list(self.shape)}"
            raise LocalProtocolError(msg)

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Tell whether a tensor may have this shape."""
        if len(shape) != len(self.shape):
            return False
        for wanted, size in zip(self.shape, shape, strict=True):  # noqa: SIM110 - a generator takes twice the time
            if wanted not in (ANY_SIZE, size):
                return False
        return True


@record()
class InferenceRequest:
    """The argument of a model's callable."""

    inputs: Mapping[str, np.ndarray[Any, Any]]
    """Arrays by name, in the order of the request. They are writable, and the model may keep them. BYTES are object
    arrays of `bytes`, which are made on first access; see `values` and `Model.takes_elements`. Empty for a model that
    takes windows. If a model that declares no inputs asks for a name that was not sent, the request is refused with
    status 400."""
    header: RequestHeader
    """The content of the JSON header: id, parameters, parameters of the tensors, and requested outputs."""
    model_name: str
    """The model's name in the URL."""
    model_version: str
    """The version in the URL, or else the model's newest."""
    rows: Mapping[str, Rows] = MappingProxyType({})
    """For a model that takes windows: its inputs by name, in the order of the request. The model must take them in this
    order. Their `windows` wait for data that have not arrived: with `async for` if the model is an `async def`."""

    @property
    def values(self) -> Mapping[str, np.ndarray[Any, Any] | Elements]:
        """The inputs by name. BYTES that came in binary form are `Elements`, without an object for each element."""
        return self.inputs.values_received if type(self.inputs) is Inputs else self.inputs


class Inputs(Mapping[str, np.ndarray[Any, Any]]):
    """Inputs of which some are BYTES. Their objects are made on access, because a model may never need them."""

    def __init__(self, values: Mapping[str, np.ndarray[Any, Any] | Elements], *, has_objects: bool = True) -> None:
        """Keep the received values; `has_objects` tells whether there is memory for the objects of BYTES."""
        self.values_received = values
        self._has_objects = has_objects

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return an input as an array.

        Raises:
            LocalProtocolError: it is BYTES, and the model takes these as `Elements`.
        """
        values = self.values_received[name]
        if not isinstance(values, Elements):
            return values
        if not self._has_objects:
            msg = f"the model takes_elements, so there is no memory for objects; take request.values[{name!r}]"
            raise LocalProtocolError(msg)
        return values.array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the request."""
        return iter(self.values_received)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self.values_received)


class MissingInputError(RemoteProtocolError, KeyError):
    """A model that declares no inputs asks for one that was not sent. A model may catch it like any `KeyError`."""

    def __init__(self, name: object, sent: Iterable[str]) -> None:
        """Say what was sent instead."""
        others = ", ".join(map(shown, islice(sent, _MOST_NAMES))) or "none"
        msg = f"the model needs the input {shown(str(name))}; the request has {others}"
        super().__init__(msg, code=ErrorCode.MODEL_MISMATCH, path="$.inputs")


class Sent(dict[str, ValueT]):
    """What was sent for a model that declares no inputs, by name: so only the model can tell that one is missing."""

    __slots__ = ()

    def __missing__(self, name: object) -> NoReturn:
        """Refuse the request.

        Raises:
            MissingInputError: status 400.
        """
        raise MissingInputError(name, self)


Outputs = Mapping[str, Values]

Predict = Callable[[InferenceRequest], Outputs] | Callable[[InferenceRequest], Awaitable[Outputs]]
"""A model's callable. It runs in a worker thread, so several calls may run at once, unless the model says otherwise. An
`async def` runs on the event loop. If it raises a `RemoteProtocolError`, the request is refused with the `status_hint`
of that error. Any other exception is answered with status 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and its metadata."""

    name: str
    """The name in URLs."""
    predict: Predict
    """Computes the outputs of a request."""
    inputs: tuple[TensorMetadata, ...] | None = None
    """The inputs. All are required unless they are `optional`. None if any inputs are allowed."""
    outputs: tuple[TensorMetadata, ...] | None = None
    """The outputs; None if they depend on the request."""
    versions: tuple[str, ...] = ("1",)
    """Served versions, the newest last."""
    platform: str = "python"
    """The platform in the model's metadata."""
    is_batching: bool = False
    """Whether the first dimension of every input and output is the batch. A raw binary request is then a batch of 1,
    and classes are found for each row of the batch."""
    batch: Batch | None = None
    """How the rows of several requests are put together for one call; None if each request has a call of its own. The
    callable then gets arrays of `n` rows and returns arrays of `n` rows, and each client gets its own. Its
    `request.header` has no id and no outputs, because it belongs to all of them. `is_batching` is then True."""
    is_inline: bool | None = None
    """Whether the callable runs on the event loop: this is faster than a thread, but nothing else is served meanwhile.

    None if this shall be found out: it runs in threads until some calls in a row, for requests of about the same size,
    have taken at most half a millisecond each, and have waited for nothing. Then it runs on the event loop, until a
    call there takes more than 2 ms or fails. Then it runs in threads for a while, and longer each time. True if it
    takes at most about 100 microseconds for a small request (a tensor of 64 KiB): such requests run on the event loop
    from the first one on, and larger ones as with None. False if it needs a thread: for example, it waits, or it starts
    an event loop of its own."""
    windows: Windows | None = None
    """How a model gets its inputs window by window, as `InferenceRequest.rows`, in constant memory; None for whole
    arrays. A model with windows is called when the header has arrived. If it answers with `Rows` made from its inputs,
    results are sent while the rest of the input arrives. The client must then read while it sends, as ours do. Other
    clients first send everything; this works if the answer is short."""
    shared_inputs: bool = False
    """Whether the model copes with inputs that their client can change while it computes. Then inputs that come by a
    memory lane are not copied: they are read-only arrays of the client's own memory, valid until the model returns. Say
    so only if wrong values harm nobody but that client. Code that checks a value and then uses it, as an index into
    an array, must copy it before. Without effect for BYTES and BOOL, which are always copied."""
    takes_elements: bool = False
    """Whether the callable takes BYTES from `InferenceRequest.values`, where they are `Elements`, and never as object
    arrays. A Python object takes 48 bytes and 8 for the reference to it, besides its content: much more than what came
    over the network. Servers reserve this memory before the tensors of a request are read, unless this is True. Then
    `inputs` refuses BYTES. Without effect for BYTES that came as JSON: these are objects already."""
    labels: Mapping[str, Sequence[str]] | None = field(default=None, hash=False)
    """Names of the classes of an output, by the output's name, for `Service(classifies=True)`; None if there are
    none."""
    ready: Callable[[], bool] | None = None
    """Tells whether a model that must load or warm up is ready; None if it is always ready.

    It is called on the event loop for each request for the model and for each readiness check, so it must be quick.
    While it returns False or raises, requests are answered with status 503, and the server as a whole is not ready."""
    is_async: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether the callable is an `async def`."""
    quickness: Quickness = field(default_factory=Quickness, init=False, repr=False, compare=False)
    """What the servers know about the time of its calls."""
    queues: Queues = field(default_factory=Queues, init=False, repr=False, compare=False)
    """What waits for a batch on each event loop; see `streamcodec.runtime.batches`."""
    blocks: Blocks = field(default_factory=Blocks, init=False, repr=False, compare=False)
    """The memory of batches whose requests are being received."""

    def __post_init__(self) -> None:
        """Refuse a model that could never be shown or called.

        Raises:
            LocalProtocolError: a value is of another type, as a `predict` that cannot be called; labels belong to an
                output that the model does not have, or are one text; an output is `optional`; or a batch is wanted of
                windows, of shared inputs, of `Elements`, or of a tensor without dimensions.
        """
        check_kind(self.predict, Callable, f"predict of model {self.name!r} is a function of a request")
        check_kind(self.name, str, "the name of a model is a str")
        check_kind(self.platform, str, f"the platform of model {self.name!r} is a str")
        versions = f"the versions of model {self.name!r} are a tuple of str, as ('1',)"
        check_kind(self.versions, (tuple, list), versions)
        for version in self.versions:
            check_kind(version, str, versions)
        for tensors in (self.inputs, self.outputs):
            check_kind(tensors, (Sequence, NoneType), "inputs and outputs are a tuple of TensorMetadata")
            for tensor in tensors or ():
                check_kind(tensor, TensorMetadata, "inputs and outputs are TensorMetadata objects")
        for output in self.outputs or ():
            if output.optional:
                msg = f"output {output.name!r} of model {self.name!r} is optional, which only inputs can be"
                raise LocalProtocolError(msg)
        known = None if self.outputs is None else {output.name for output in self.outputs}
        for name, labels in (self.labels or {}).items():
            if known is not None and name not in known:
                msg = f"model {self.name!r} has labels for {name!r}, which is not one of its outputs"
                raise LocalProtocolError(msg)
            if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
                msg = f"the labels of output {name!r} must be a sequence of str"
                raise LocalProtocolError(msg)
        self._check_batch()
        is_async = iscoroutinefunction(self.predict) or iscoroutinefunction(type(self.predict).__call__)
        object.__setattr__(self, "is_async", is_async)  # found out once: each request asks, and it takes 1.5 us

    def _check_batch(self) -> None:
        check_kind(self.batch, (Batch, NoneType), f"the batch of model {self.name!r} is a Batch, as Batch(max_rows=64)")
        if self.batch is None:
            return
        if self.windows is not None or self.shared_inputs or self.takes_elements:
            flag = "shared_inputs" if self.shared_inputs else "takes_elements"
            kind = flag if self.windows is None else "windows"
            msg = f"model {self.name!r} has {kind}, whose rows cannot be put together: leave out {kind} or batch"
            raise LocalProtocolError(msg)
        for tensor in (*(self.inputs or ()), *(self.outputs or ())):
            if not tensor.shape:
                msg = f"{tensor.name!r} of model {self.name!r} has shape (), and no first dimension for a batch"
                raise LocalProtocolError(msg)
        object.__setattr__(self, "is_batching", True)

    @property
    def is_ready(self) -> bool:
        """Whether the model is ready now."""
        try:
            return self.ready is None or bool(self.ready())
        except KeyboardInterrupt:  # may be meant for the program
            raise
        except BaseException:  # noqa: BLE001 - it may raise anything, and must not end the server
            return False

    def check(self, header: RequestHeader) -> None:
        """Refuse a request that does not fit the metadata.

        Raises:
            RemoteProtocolError: `model-mismatch`, with the path of the tensor or output.
            LimitExceededError: a row of a tensor is larger than a window of the model.
        """
        if self.inputs is not None and not self._are_inputs(header.tensors):
            self._check_inputs(header.tensors, {tensor.name: tensor for tensor in self.inputs})
        if self.batch is not None:
            self.batch.check(header.tensors)
        if self.windows is not None:
            for index, tensor in enumerate(header.tensors):
                if tensor.datatype.is_bytes:
                    raise mismatch("the model takes windows, which BYTES do not have", f"$.inputs[{index}].datatype")
                self.windows.row_bytes(tensor)
        if self.outputs is not None:
            known = {output.name for output in self.outputs}
            for index, output in enumerate(header.outputs or ()):
                if output.name not in known:
                    raise no_such_output(output.name, f"$.outputs[{index}].name")

    def _are_inputs(self, tensors: tuple[TensorSpec, ...]) -> bool:
        """Tell whether these are all inputs in their order, as nearly always."""
        inputs = self.inputs or ()
        if len(tensors) != len(inputs):
            return False
        for tensor, metadata in zip(tensors, inputs, strict=True):
            if tensor.name != metadata.name or tensor.datatype.name != metadata.datatype:
                return False
            if not metadata.accepts(tensor.shape):
                return False
        return True

    def _check_inputs(self, tensors: tuple[TensorSpec, ...], known: dict[str, TensorMetadata]) -> None:
        for index, tensor in enumerate(tensors):
            path = f"$.inputs[{index}]"
            metadata = known.pop(tensor.name, None)
            if metadata is None:
                raise mismatch(f"the model has no input {shown(tensor.name)}", f"{path}.name")
            if tensor.datatype.name != metadata.datatype:
                found, wanted = tensor.datatype.name, metadata.datatype
                raise mismatch(f"the datatype is {found}, the model takes {wanted}", f"{path}.datatype")
            if not metadata.accepts(tensor.shape):
                found, wanted = str(list(tensor.shape)), str(list(metadata.shape))
                raise mismatch(f"the shape is {found}, the model takes {wanted}", f"{path}.shape")
        for metadata in known.values():
            if not metadata.optional:
                raise mismatch(f"the model also needs the input {shown(metadata.name)}", "$.inputs")


def no_such_output(name: str, path: str) -> RemoteProtocolError:
    """Make the error for a requested output that the model does not have."""
    return mismatch(f"the model has no output {shown(name)}", path)
