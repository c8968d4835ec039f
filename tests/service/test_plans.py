"""Plans: a header that has been seen before is answered as one that has not, or is left to the ordinary way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import Elements, EncodedMessage, Limits, RemoteProtocolError, Tensor, encode_request
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Predict, ResolvedHead, Service
from streamcodec.service.models import Outputs
from streamcodec.service.plan import Plan, Plans, infer_at_once
from tests.service.requests import Array, answer, head, infer, service_of

TARGET = "/v2/models/m/infer"


def _identity(request: InferenceRequest) -> Outputs:
    return dict(request.inputs)


def _body(message: EncodedMessage) -> bytes:
    return b"".join(message.buffers)


def _message(array: Array, **options: Any) -> EncodedMessage:  # noqa: ANN401 - those of encode_request
    return encode_request([Tensor(name="x", array=array, **options)], parameters={"binary_data_output": True})


def _resolved(service: Service, message: EncodedMessage) -> ResolvedHead:
    resolved = service.open(head(TARGET, "POST", message.headers, message.body_length))
    assert isinstance(resolved, ResolvedHead)
    return resolved


def _plan(service: Service, message: EncodedMessage, plans: Plans | None = None) -> Plan | None:
    planned = (plans or Plans()).find(_resolved(service, message), _body(message))
    return None if planned is None else planned[0]


@pytest.mark.parametrize(
    "predict",
    [
        _identity,
        lambda request: {"y": request.inputs["x"].astype(">f4"), "z": request.inputs["x"][::2]},
        lambda request: {"y": request.inputs["x"][::2]},
        lambda _: {"y": [1, 2, 3]},
        lambda _: {"y": np.zeros(0)},
        lambda _: {"y": np.array([b"a", b"bc"], object)},
        lambda _: {"y": Elements([b"a", b"bc"])},
        lambda _: {"wrong": 1 / 0},
    ],
    ids=["identity", "byte order and steps", "steps", "list", "empty", "objects", "elements", "failure"],
)
def test_a_planned_answer_is_the_ordinary_one(predict: Predict) -> None:
    service, message, plans = service_of(predict), _message(np.arange(6, dtype=np.float32)), Plans()
    wanted = infer(service, TARGET, message)
    for _ in range(3):
        plan = _plan(service, message, plans)
        assert plan is not None
        found = answer(plan.run(plan.header, _body(message)))
        assert (found.status, found.fields, found.body) == (wanted.status, wanted.fields, wanted.body)


def test_a_plan_is_made_once_for_a_header() -> None:
    service, plans = service_of(_identity), Plans()
    first, other = _message(np.zeros(6)), _message(np.ones(6))
    assert _plan(service, first, plans) is _plan(service, other, plans)


def test_a_plan_answers_outputs_of_many_forms() -> None:
    service = service_of(lambda request: {"y": np.zeros(int(request.inputs["x"][0]), np.uint8)})
    message = _message(np.array([1.0]))
    plan = _plan(service, message)
    assert plan is not None
    for _ in range(2):
        for count in range(1, 20):
            body = _body(_message(np.array([float(count)])))
            assert answer(plan.run(plan.header, body)).outputs["y"].shape == (count,)


def test_a_header_that_can_be_changed_is_not_remembered() -> None:
    service, plans = service_of(_identity), Plans()
    message = encode_request([Tensor(name="x", array=np.zeros(2))], parameters={"list": [1]})
    first = _plan(service, message, plans)
    assert first is not None
    assert _plan(service, message, plans) is not first


@pytest.mark.parametrize(
    "message",
    [
        _message(np.zeros(2), is_binary=False),
        _message(np.zeros(2, np.bool_)),
        _message(np.array([b"a"], object)),
    ],
    ids=["JSON", "BOOL", "BYTES"],
)
def test_what_has_to_be_looked_at_is_not_planned(message: EncodedMessage) -> None:
    assert _plan(service_of(_identity), message) is None


def test_what_does_not_fit_is_not_planned() -> None:
    message, plans = _message(np.zeros(2)), Plans()
    service = service_of(_identity)
    resolved, body = _resolved(service, message), _body(message)
    assert message.header_length is not None
    assert plans.find(resolved, body[: message.header_length - 1]) is None
    assert plans.find(resolved, body[: message.header_length]) == plans.find(resolved, body) is not None
    assert infer_at_once(resolved, plans, body[:-1]) is infer_at_once(resolved, plans, body + b"x") is None
    longer = service.open(head(TARGET, "POST", message.headers, len(body) + 1))
    assert isinstance(longer, ResolvedHead)
    assert plans.find(longer, body + b"x") is Plans().find(longer, body + b"x") is None
    for limits in (Limits(max_header_bytes=message.header_length - 1), Limits(max_message_bytes=len(body) - 1)):
        assert _plan(service_of(_identity, limits=limits), message) is None
    headerless = service.open(head(TARGET, "POST", [], len(body)))
    assert isinstance(headerless, ResolvedHead)
    assert plans.find(headerless, body) is None


def test_what_is_refused_is_not_planned() -> None:
    message = _message(np.zeros(2))
    service = service_of(_identity, inputs=())
    with pytest.raises(RemoteProtocolError):
        _plan(service, message)


@pytest.mark.parametrize("length", [14, 2**63 - 1])
def test_a_header_length_beyond_the_body_is_not_planned(length: int) -> None:
    fields = [("Inference-Header-Content-Length", str(length))]
    resolved = service_of(_identity).open(head(TARGET, "POST", fields, 13))
    assert isinstance(resolved, ResolvedHead)
    assert Plans().find(resolved, b'{"inputs":[]}') is None


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize(
    "predict",
    [
        _identity,
        lambda request: {"y": request.inputs["x"].astype(">f4"), "z": request.inputs["x"][::2]},
        lambda request: {"y": request.inputs["x"] > 3, "x": request.inputs["x"]},
        lambda request: {"y": np.array([str(value).encode() for value in request.inputs["x"]], object)},
    ],
    ids=["identity", "byte order and steps", "BOOL too", "BYTES"],
)
def test_a_planned_answer_has_the_values_of_its_own_request(predict: Predict, is_binary: bool) -> None:
    service, plans = service_of(predict), Plans()
    for start in range(3):
        x = np.arange(start, start + 6, dtype=np.float32)
        message = encode_request([Tensor(name="x", array=x)], parameters={"binary_data_output": is_binary})
        plan = _plan(service, message, plans)
        assert plan is not None
        assert answer(plan.run(plan.header, _body(message))).body == infer(service, TARGET, message).body


def test_an_answer_of_a_form_that_is_known_is_not_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0
    encode = ResolvedHead.encode

    def counting(resolved: ResolvedHead, *arguments: Any) -> EncodedMessage:  # noqa: ANN401 - passed on
        nonlocal encoded
        encoded += 1
        return encode(resolved, *arguments)

    monkeypatch.setattr(ResolvedHead, "encode", counting)
    service = service_of(lambda request: {"y": request.inputs["x"], "z": np.ones((2, 2))})
    message = _message(np.arange(6, dtype=np.float32))
    plan = _plan(service, message)
    assert plan is not None
    replies = [plan.run(plan.header, _body(message)) for _ in range(5)]
    assert encoded == 1
    assert {(reply.status, reply.body_length) for reply in replies} == {(200, len(answer(replies[0]).body))}


def test_forms_of_outputs_that_never_come_again_are_not_all_kept() -> None:
    service = service_of(lambda request: {"y": np.zeros(int(request.inputs["x"][0]), np.uint8)})
    plan = _plan(service, _message(np.array([1.0])))
    assert plan is not None
    for count in range(1, 40):
        plan.run(plan.header, _body(_message(np.array([float(count)]))))
    assert len(plan._beginnings) == 16  # noqa: SLF001 - nothing else tells


def test_a_message_at_the_limits_is_planned() -> None:
    message = _message(np.zeros(2))
    body = _body(message)
    for limits in (Limits(max_header_bytes=message.header_length), Limits(max_message_bytes=len(body))):  # type: ignore[arg-type] # it has binary tensors
        assert _plan(service_of(_identity, limits=limits), message) is not None


def test_the_model_of_a_plan_gets_no_windows() -> None:
    seen: list[object] = []

    def predict(request: InferenceRequest) -> Outputs:
        seen.append(dict(request.rows))
        return {}

    message = _message(np.zeros(2))
    plan = _plan(service_of(predict), message)
    assert plan is not None
    assert answer(plan.run(plan.header, _body(message))).status == 200
    assert seen == [{}]


def test_the_call_of_a_planned_request_is_watched() -> None:
    told: list[str] = []

    class Watch:
        def call_begun(self, request: InferenceRequest) -> None:
            told.append(f"begun with {list(request.inputs)}")

        def call_ended(self) -> None:
            told.append("ended")

    message = _message(np.zeros(2))
    plan = _plan(service_of(_identity), message)
    assert plan is not None
    plan.run(plan.header, _body(message), Watch())
    assert told == ["begun with ['x']", "ended"]


# Whole requests at once


def _at_once(service: Service, message: EncodedMessage, body: bytes | None = None) -> Any:  # noqa: ANN401 - a reply or None
    return infer_at_once(_resolved(service, message), Plans(), _body(message) if body is None else body)


def test_a_whole_request_is_answered_at_once_with_a_plan_or_without() -> None:
    service = _inline(_identity)
    for array in (np.ones(3, np.float32), np.array([b"a", b"bc"], object)):
        reply = _at_once(service, _message(array))
        assert np.array_equal(answer(reply).outputs["x"], array)


def test_what_takes_time_is_left_to_the_ordinary_way() -> None:
    assert _at_once(service_of(_identity), _message(np.ones(3))) is None, "who knows how long this model takes"
    assert _at_once(_inline(_identity), _message(np.ones(1 << 14))) is None, "it is large"


def test_what_is_refused_is_left_to_the_ordinary_way() -> None:
    service, message = _inline(_identity), _message(np.array([b"a"], object))
    body = _body(message)
    for wrong in (b"x" + body[1:], body[:-1]):
        assert _at_once(service, message, wrong) is None


def _inline(predict: Predict) -> Service:
    return Service(ModelRegistry.of([Model(name="m", predict=predict, is_inline=True)]))
