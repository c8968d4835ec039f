"""Openings, and what a service hands on to them: how a request is to be answered, and what its model is called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_TURN,
    Elements,
    EndOfMessage,
    HeaderReceived,
    LocalProtocolError,
    NonFiniteOutput,
    Tensor,
    TensorSpec,
    Windows,
    encode_request,
    new_array,
)
from streamcodec.engine.memory.placement import Placement
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service import (
    Batch,
    Inference,
    InferenceRequest,
    Model,
    ModelRegistry,
    ResolvedHead,
    Service,
    TensorMetadata,
)
from streamcodec.service import demo_models as demo
from streamcodec.service.models.model import Outputs
from tests.service.requests import ask, get, head, infer, raw, service_of

TARGET = "/v2/models/m/infer"
MAX_INLINE = 68 << 10


def _identity(request: InferenceRequest) -> Outputs:
    return request.values


async def _slowly(request: InferenceRequest) -> Outputs:
    return request.values


def _resolved(service: Service, *fields: tuple[str, str]) -> ResolvedHead:
    resolved = service.open(head(TARGET, "POST", fields, 1))
    assert isinstance(resolved, ResolvedHead)
    return resolved


def _quick(**options: Any) -> Service:  # noqa: ANN401 - those of Model and Service
    ways = {name: options.pop(name) for name in ("predict", "windows", "batch") if name in options}
    model = Model(name="m", is_inline=True, **{"predict": _identity, **ways})
    return Service(ModelRegistry.of([model]), **options)


# What is answered on the event loop


def test_a_quick_model_answers_up_to_68_kib_on_the_event_loop() -> None:
    resolved = _resolved(_quick())
    assert resolved.is_inline(MAX_INLINE)
    assert not resolved.is_inline(MAX_INLINE + 1)


def test_a_resolved_head_has_the_head_it_was_made_of() -> None:
    request = head(TARGET, "POST", length=1)
    resolved = service_of(_identity).open(request)
    assert isinstance(resolved, ResolvedHead)
    assert resolved.head is request


def test_only_a_model_that_says_so_is_quick() -> None:
    assert not _resolved(service_of(_identity)).is_inline(0)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"windows": Windows(max_window_bytes=64)}, []),
        ({"predict": _slowly}, []),
        ({"batch": Batch()}, []),
        ({"compresses": True}, [("Accept-Encoding", "gzip")]),
    ],
    ids=["windows", "async", "batch", "compressed"],
)
def test_what_waits_or_compresses_is_never_quick(options: dict[str, Any], fields: list[tuple[str, str]]) -> None:
    assert not _resolved(_quick(**options), *fields).is_inline(0)


def test_a_service_that_compresses_is_quick_for_those_who_do_not_want_it() -> None:
    assert _resolved(_quick(compresses=True)).is_inline(0)


@pytest.mark.parametrize(("count", "is_quick"), [(MAX_INLINE, True), (MAX_INLINE + 1, False)])
def test_up_to_68_kib_of_json_are_written_on_the_event_loop(count: int, is_quick: bool) -> None:
    header = RequestHeader(tensors=())
    assert _resolved(_quick()).is_quick({"y": np.zeros(count, np.uint8)}, header) == is_quick


TEXTS = np.full(MAX_INLINE // 8, b"a", object)


@pytest.mark.parametrize(
    ("outputs", "is_quick"),
    [
        ({"y": Elements([b"a"])}, True),
        ({"y": TEXTS[:-1]}, False),
        ({"y": TEXTS[: len(TEXTS) * 8 // 9]}, True),
        ({"y": np.zeros(MAX_INLINE, np.uint8), "z": TEXTS[:1]}, False),
        ({"y": TEXTS}, False),
    ],
    ids=["elements", "texts", "fewer texts", "numbers and a text", "as many references as there may be bytes"],
)
def test_the_texts_of_an_output_are_counted_beside_the_references(outputs: Outputs, *, is_quick: bool) -> None:
    assert _resolved(_quick()).is_quick(outputs, RequestHeader(tensors=())) is is_quick


def test_an_opening_does_nothing_that_it_is_not_told_to() -> None:
    model = Model(name="m", predict=_identity)
    asked = head(TARGET, "POST", [("Accept-Encoding", "gzip")], 1)
    headers: HeaderCache[RequestHeader] = _resolved(service_of(_identity)).headers
    resolved = ResolvedHead(
        model, asked, version=None, headers=headers, place=new_array, nonfinite=NonFiniteOutput.LITERAL
    )
    assert resolved.is_planned
    assert (resolved.encoding, resolved.classifies, resolved.allow_headerless) == (None, False, False)


# What a model is called with


def test_a_model_of_whole_arrays_gets_no_windows_and_one_of_windows_no_arrays() -> None:
    seen: list[tuple[object, list[str]]] = []

    def predict(request: InferenceRequest) -> Outputs:
        seen.append((dict(request.rows), [*request.inputs]))
        return {}

    assert ask(service_of(predict)).status == 200
    assert seen == [({}, ["x"])]


def test_a_model_is_not_called_before_its_inputs_are_there() -> None:
    message = encode_request([Tensor(name="x", array=np.ones(3))])
    body = b"".join(message.buffers)
    inference = service_of(_identity).begin(head(TARGET, "POST", message.headers, len(body)))
    assert isinstance(inference, Inference)
    inference.decoder.feed(body[:-1])
    event = inference.decoder.next_event()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)
    with pytest.raises(LocalProtocolError, match=r"^the model is called after the last event of the decoder"):
        inference.run()


def test_bytes_become_objects_when_a_model_asks_for_its_inputs() -> None:
    seen: list[object] = []

    def predict(request: InferenceRequest) -> Outputs:
        seen.extend([type(request.values["x"]), request.inputs["x"].dtype, request.inputs["x"].tolist()])
        return {}

    assert ask(service_of(predict), np.array([b"a", b"bc"], object)).status == 200
    assert seen == [Elements, np.dtype(object), [b"a", b"bc"]]


# What becomes of outputs that were not declared so


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({}, "model 'm' has not returned its output 'y'"),
        ({"y": np.zeros((2, 2), np.int8)}, "model 'm' has returned INT8 [2, 2] for its output 'y', declared BYTES [2]"),
        ({"y": Elements([b"a"])}, "model 'm' has returned BYTES [1] for its output 'y', declared BYTES [2]"),
    ],
    ids=["missing", "array", "elements"],
)
def test_the_log_is_told_which_output_is_not_as_declared(outputs: Outputs, reason: str) -> None:
    reply = ask(service_of(lambda _: outputs, outputs=(TensorMetadata("y", "BYTES", (2,)),)))
    assert reply.status == 500
    assert str(reply.cause) == reason


def test_elements_can_be_a_declared_output() -> None:
    reply = ask(service_of(lambda _: {"y": Elements([b"a", b"b"])}, outputs=(TensorMetadata("y", "BYTES", (2,)),)))
    assert reply.outputs["y"].tolist() == [b"a", b"b"]


# What a service hands on to decoders


def test_the_limits_of_a_service_are_those_that_were_asked_for() -> None:
    service = service_of(_identity)
    assert service.limits is _resolved(service).headers.limits


def test_a_service_knows_a_header_again() -> None:
    service = service_of(_identity)
    message = encode_request([Tensor(name="x", array=np.ones(3))])
    body = b"".join(message.buffers)
    seen = []
    for _ in range(2):
        inference = service.begin(head(TARGET, "POST", message.headers, len(body)))
        assert isinstance(inference, Inference)
        inference.decoder.feed(body)
        event = inference.decoder.next_event()
        assert isinstance(event, HeaderReceived)
        seen.append(event.header)
    assert seen[0] is seen[1]


@pytest.mark.parametrize("paced", [False, True])
def test_a_paced_request_asks_for_turns_and_others_do_not(paced: bool) -> None:
    message = encode_request([Tensor(name=f"t{index}", array=np.empty(0)) for index in range(500)])
    body = b"".join(message.buffers)
    request = head(TARGET, "POST", message.headers, len(body))
    service = service_of(_identity)
    inference = service.begin(request, paced=True) if paced else service.begin(request)
    assert isinstance(inference, Inference)
    view, turns = memoryview(body), 0
    while not isinstance(event := inference.decoder.next_event(), EndOfMessage):
        view = view[inference.decoder.feed(view) :]
        if event is NEED_TURN:
            turns += 1
            inference.decoder.work()
    assert (turns > 0) == paced


def test_the_header_is_followed_by_its_tensors_unless_a_pause_is_asked_for() -> None:
    message = encode_request([Tensor(name="x", array=np.ones(30_000))])
    body = b"".join(message.buffers)
    for pauses, options in ((False, {}), (True, {"pause_after_header": True})):
        inference = service_of(_identity).begin(head(TARGET, "POST", message.headers, len(body)), **options)
        assert isinstance(inference, Inference)
        taken = inference.decoder.feed(body)
        assert (taken < len(body)) == pauses


@pytest.mark.parametrize("batch", [None, Batch()])
def test_a_request_alone_may_have_memory_of_its_own(batch: Batch | None) -> None:
    others: list[TensorSpec] = []
    own: list[TensorSpec] = []

    def place(spec: TensorSpec) -> Placement:
        others.append(spec)
        return new_array(spec)

    def own_place(spec: TensorSpec) -> Placement:
        own.append(spec)
        return new_array(spec)

    model = Model(name="m", predict=_identity, batch=batch)
    message = encode_request({"x": np.ones((1, 3), np.float32)})
    body = b"".join(message.buffers)
    resolved = Service(ModelRegistry.of([model]), place=place).open(head(TARGET, "POST", message.headers, len(body)))
    assert isinstance(resolved, ResolvedHead)
    for inference in (resolved.begin(), resolved.begin(place=own_place)):
        inference.decoder.feed(body)
        while not isinstance(inference.decoder.next_event(), EndOfMessage):
            pass
    assert [spec.name for spec in others] == [spec.name for spec in own] == ["x"]


@pytest.mark.parametrize("is_raw", [False, True])
def test_tensors_go_where_the_program_says_whether_they_come_with_a_header_or_without(is_raw: bool) -> None:
    placed: list[TensorSpec] = []

    def place(spec: TensorSpec) -> Placement:
        placed.append(spec)
        return new_array(spec)

    service = service_of(_identity, inputs=(TensorMetadata("x", "FP32", (3,)),), place=place)
    x = np.ones(3, np.float32)
    answered = raw(service, TARGET, x.tobytes()) if is_raw else ask(service, x)
    assert answered.status == 200
    assert [(spec.name, spec.nbytes) for spec in placed] == [("x", 12)]


# The demo models


def test_the_sink_declares_and_counts_its_bytes() -> None:
    service = Service(demo())
    (output,) = get(service, "/v2/models/sink").document["outputs"]
    assert output == {"name": "COUNT", "datatype": "INT64", "shape": [1]}
    message = encode_request(
        [Tensor(name="x", array=np.ones(3)), Tensor(name="y", array=np.array([b"abc", b""], object))]
    )
    assert infer(service, "/v2/models/sink/infer", message).outputs["COUNT"].tolist() == [24 + 4 + 3 + 4]


def test_the_demo_models_are_quick() -> None:
    assert all(model.is_inline for model in demo())
