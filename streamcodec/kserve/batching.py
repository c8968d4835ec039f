"""Batching: a KServe model whose `predict` is called with the rows of several requests.

KServe's own batcher takes requests of the v1 protocol only, as JSON. Here `preprocess` and `postprocess` stay KServe's,
once for each request, and so do statuses, metrics and hooks. Only `predict` is replaced, in the object: it puts the
request into the queue of its model, and waits for its own rows. So requests over gRPC and in JSON go together with
binary ones, with and without `install`.

A `predict` that is no `async def` is called by KServe on the event loop. For a batch it is called in a thread of the
model's own: it takes the longer, the more rows there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Final, cast

import numpy as np
from kserve import InferRequest, InferResponse
from kserve import Model as KserveModel
from kserve.errors import InferenceError, InvalidInput, ModelNotReady
from kserve.protocol.infer_type import to_http_parameters

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.kserve.call import CURRENT
from streamcodec.kserve.messages import infer_response, received_request
from streamcodec.kserve.tensors import array_of, arrays_of, text_of, values_of
from streamcodec.runtime.batches.queue import QueuedMember, queue_of
from streamcodec.runtime.memory.available import default_budget
from streamcodec.runtime.models.failures import raise_bare
from streamcodec.runtime.models.threads import current_loop
from streamcodec.runtime.models.workers import NoThreadError, Workers
from streamcodec.service import Batch, InferenceRequest, Model, Reservation, TensorMetadata
from streamcodec.service.batches.keys import key_of
from streamcodec.service.batches.members import Failed
from streamcodec.service.memory.budget import Budget
from streamcodec.service.models.batching import QueueFullError
from streamcodec.service.models.model import Outputs

_PREDICT: Final = "predict"


class BusyError(ModelNotReady):  # type: ignore[misc]  # KServe has no types
    """As many rows wait as may: status 503, with `Retry-After` where `install` has been called."""

    def __init__(self, model_name: str, message: str) -> None:
        """Say how many."""
        super().__init__(model_name)
        self.reason = self.error_msg = message


def batched(model: KserveModel, batch: Batch) -> KserveModel:
    """Have `predict` of a KServe model called with the rows of several V2 requests, one after the other in each input.

    It gets an `InferRequest` without id and requested outputs, whose inputs have `n` rows, and no fields of a head. It
    returns an `InferResponse` whose outputs have `n` rows, of which only the arrays are used; or it raises
    `RowError`. Each client gets its own rows, by `infer_response`.

    Args:
        model: loaded, and not yet registered: `get_input_types` is asked here.
        batch: how requests are put together.

    Returns:
        The same model.

    Raises:
        LocalProtocolError: the model has no `predict` of its own, as a transformer that asks a predictor; it has been
            given one already; it yields its answer in pieces; it sets fields of the answer's head
            (`return_response_headers`), which belong to one request; or a declared tensor has no first dimension.
    """
    kind = type(model)
    if not isinstance(model, KserveModel):
        msg = f"a {kind.__name__} is no kserve.Model, so it has no predict that could be called with a batch"
    elif kind.predict is KserveModel.predict:
        msg = f"model {model.name!r} has no predict of its own; give the batch to the predictor that it asks"
    elif _PREDICT in vars(model):
        msg = f"predict of model {model.name!r} has been replaced already, by another batch or by the program"
    elif isasyncgenfunction(kind.predict) or isgeneratorfunction(kind.predict):
        msg = f"predict of model {model.name!r} yields its answer in pieces, which cannot be cut by rows"
    elif model.required_response_headers:
        msg = f"model {model.name!r} sets fields of an answer's head, and a batch has many: leave out one of the two"
    else:
        setattr(model, _PREDICT, partial(_predict, _Batched(model, batch)))
        return model
    raise LocalProtocolError(msg)


def batch_of(model: Any) -> Model | None:  # noqa: ANN401 - whatever KServe's repository has
    """Return what stands for a batched model in a queue; None if it is not batched."""
    predict = vars(model).get(_PREDICT)
    is_ours = isinstance(predict, partial) and predict.func is _predict
    return cast("_Batched", predict.args[0]).model if is_ours else None


class _Batched:
    """One model.

    Attributes:
        model: stands for it in a queue.
    """

    def __init__(self, own: KserveModel, batch: Batch) -> None:
        self._own = own
        is_async = iscoroutinefunction(type(own).predict)
        self.model = Model(
            name=own.name,
            predict=self._call_async if is_async else self._call,
            inputs=_declared(own.get_input_types()),
            outputs=_declared(own.get_output_types()),
            platform="",
            batch=batch,
            is_inline=False,
        )
        self._prepare()

    def _prepare(self) -> None:
        """Make what each process has of its own."""
        self._workers = Workers(cast("Batch", self.model.batch).max_running, 0)
        self._budget = Budget(default_budget())

    def __getstate__(self) -> tuple[KserveModel, Model]:
        return self._own, self.model

    def __setstate__(self, state: tuple[KserveModel, Model]) -> None:
        self._own, self.model = state
        self._prepare()

    async def outcome_of(self, payload: InferRequest) -> Outputs | Failed:
        """Return the outputs for one request, or what the model has raised for it.

        Raises:
            InvalidInput: its inputs have not the same number of rows, or too many.
            BusyError: too many rows wait, or no thread can be started.
        """
        request = _request_of(payload)
        try:
            cast("Batch", self.model.batch).check(request.header.tensors)
        except MessageError as error:
            raise InvalidInput(str(error)) from None
        call = CURRENT.get()
        reservation = Reservation(self._budget) if call is None else call.reservation
        queue = queue_of(self.model, current_loop())
        member = QueuedMember(request, reservation, _nobody, key=_key_of(request))
        try:
            queue.put(member, _checked, self._workers)
            return await queue.wait(member)
        except (QueueFullError, NoThreadError) as error:
            raise BusyError(self.model.name, str(error)) from None

    def _call(self, request: InferenceRequest) -> Outputs:
        predict = cast("Callable[..., Outputs]", type(self._own).predict)
        return predict(self._own, received_request(request, self.model.name), {})

    async def _call_async(self, request: InferenceRequest) -> Outputs:
        predict = cast("Callable[..., Awaitable[Outputs]]", type(self._own).predict)
        return await predict(self._own, received_request(request, self.model.name), {})


async def _predict(batched: _Batched, payload: Any, _: dict[str, str] | None = None) -> InferResponse:  # noqa: ANN401 - KServe's
    """Stand in the place of `predict`."""
    if not isinstance(payload, InferRequest):
        msg = f"model {batched.model.name!r} takes batches of V2 requests, and no {type(payload).__name__}"
        raise InvalidInput(msg)
    outcome = await batched.outcome_of(payload)
    if not isinstance(outcome, Failed):
        return infer_response(payload, cast("Mapping[str, np.ndarray[Any, Any]]", outcome))
    error, outcome = outcome.error, {}  # its traceback refers to this frame
    try:
        if isinstance(error, Exception):
            raise_bare(error)
        msg = f"model {batched.model.name!r} raised {type(error).__name__}"
        raise InferenceError(msg) from None  # anything else would end the event loop
    finally:
        del error


def _request_of(payload: InferRequest) -> InferenceRequest:
    """Return a request of KServe's as ours."""
    arrays = {tensor.name: array_of(values_of(tensor)) for tensor in payload.inputs}
    tensors = tuple(
        [
            TensorSpec(
                name=tensor.name,
                datatype=DATATYPES[tensor.datatype],
                shape=arrays[tensor.name].shape,
                nbytes=arrays[tensor.name].nbytes,
                parameters=to_http_parameters(tensor.parameters or {}),
            )
            for tensor in payload.inputs
        ]
    )
    header = RequestHeader(tensors=tensors, parameters=to_http_parameters(payload.parameters or {}))
    return InferenceRequest(inputs=arrays, header=header, model_name=payload.model_name, model_version="")


def _key_of(request: InferenceRequest) -> Hashable:
    """Return what agrees for requests that go together: also whether KServe's `as_numpy` gives BYTES as text.

    It does so if all elements of an input are UTF-8. In one batch, one client would decide for all others.
    """
    are_text = [text_of(array) is not array for array in request.inputs.values()]
    return key_of(request.header, request.model_version), tuple(are_text)


def _checked(returned: object) -> Outputs:
    """Return the outputs of a batch, as `predict` or a `RowError` has given them.

    Raises:
        LocalProtocolError: it is something else.
    """
    if isinstance(returned, InferResponse):
        return arrays_of(returned)
    if isinstance(returned, Mapping) and all(isinstance(value, np.ndarray) for value in returned.values()):
        return returned
    msg = f"predict of a batched model returns an InferResponse, not {type(returned).__name__}"
    raise LocalProtocolError(msg)


def _declared(tensors: list[dict[str, Any]]) -> tuple[TensorMetadata, ...] | None:
    """Return what a model of KServe's says about its tensors; None if that is nothing."""
    found = [TensorMetadata(tensor["name"], tensor["datatype"], tuple(tensor["shape"])) for tensor in tensors]
    return tuple(found) or None


def _nobody() -> None:
    """Wake nobody: the task that waits says later how."""
