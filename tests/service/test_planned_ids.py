"""Ids: a plan that is used for other ids gives the answer that the ordinary way gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcodec.service import InferenceRequest, Model, ModelRegistry, Predict, ResolvedHead, Service
from streamcodec.service.models import Outputs
from streamcodec.service.plan import Plans, infer_at_once
from tests.service.requests import answer, head

TARGET = "/v2/models/m/infer"
TENSOR = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
DATA = np.arange(2, dtype="<f4").tobytes()


def _echo(request: InferenceRequest) -> Outputs:
    seen = repr((request.header.id, request.header.parameters, [spec.parameters for spec in request.header.tensors]))
    return {"seen": np.frombuffer(seen.encode(), np.uint8)}


def _echo_as_id(request: InferenceRequest) -> Outputs:
    """Have an output with the name of the id."""
    return {"id": request.inputs["x"], **_echo(request)}


def _service(predict: Predict = _echo) -> Service:
    return Service(ModelRegistry.of([Model(name="m", predict=predict, is_inline=True)]))


def _resolved(service: Service, text: bytes) -> ResolvedHead:
    fields = [("Inference-Header-Content-Length", str(len(text)))]
    resolved = service.open(head(TARGET, "POST", fields, len(text + DATA)))
    assert isinstance(resolved, ResolvedHead)
    return resolved


def _answers(service: Service, texts: Iterable[bytes]) -> list[Any]:
    """Answer requests with these headers by plans that know the ones before; None for those that have none."""
    plans, found = Plans(), []
    for text in texts:
        reply = infer_at_once(_resolved(service, text), plans, text + DATA)
        found.append(None if reply is None else (reply.status, list(answer(reply).fields.items()), answer(reply).body))
    return found


def _compare(texts: list[bytes]) -> None:
    """Compare each answer with that of plans that know nothing."""
    for predict in (_echo, _echo_as_id):
        service = _service(predict)
        assert _answers(service, texts) == [_answers(service, [text])[0] for text in texts]


def _text(**members: object) -> bytes:
    return json.dumps({**members, "inputs": [TENSOR], "parameters": {"binary_data_output": True}}).encode()


def test_requests_that_differ_in_their_ids_share_a_plan() -> None:
    service, plans = _service(), Plans()
    found = []
    for number in range(20):
        text = _text(id=f"request {number:04}")
        planned = plans.find(_resolved(service, text), text + DATA)
        assert planned is not None
        plan, header = planned
        assert header.id == f"request {number:04}"
        found.append(plan)
    assert len(set(map(id, found))) == 1
    _compare([_text(id=f"request {number:04}") for number in range(20)])


NESTED = json.dumps({**TENSOR, "parameters": {"binary_data_size": 8, "id": "ab"}})

PLACES = {
    "escaped, and another one": b'{"\\u0069d":"ab","inputs":[%b]}' % NESTED.encode(),
    "escaped, and another value": b'{"\\u0069d":"ab","inputs":[%b]}' % NESTED.replace('"ab"', '"cd"').encode(),
    "a parameter, and escaped": b'{"inputs":[%b],"\\u0069d":"ab"}' % NESTED.encode(),
    "a parameter, and then": b'{"inputs":[%b],"id":"ab"}' % NESTED.encode(),
    "only a parameter": b'{"inputs":[%b]}' % NESTED.encode(),
    "twice": b'{"id":"ab","id":"ab","inputs":[%b]}' % json.dumps(TENSOR).encode(),
    "and a parameter": b'{"id":"ab","inputs":[%b]}' % NESTED.encode(),
    "in a text": _text(id="ab", x='the "id":"ab"'),
    "as a number": _text(id=12),
    "with white space": _text(id="ab").replace(b":", b" :\t\r\n "),
    "with a quote": _text(id='a"'),
    "with an escape": _text(id="ab").replace(b'"ab"', b'"\\u0061b"'),
    "not ASCII": json.dumps({"id": "\u00e4", "inputs": [TENSOR]}, ensure_ascii=False).encode(),
    "empty": _text(id=""),
    "like the tensor": _text(id="x"),
    "null": _text(id=None),
    "last": json.dumps({"inputs": [TENSOR], "id": "ab"}).encode(),
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_an_id_stands_the_answer_is_the_ordinary_one(place: str) -> None:
    text = PLACES[place]
    ids = (b"cd", b"x!", b'\\"', b"\xc3\xa4", b"\x01\x02", b"id")
    beginning, ab, end = text.rpartition(b'"ab"')
    for each in ids:
        value = b'"%b"' % each
        others = [text.replace(ab, value), text.replace(ab, value, 1), beginning + value + end if ab else text]
        _compare([text, *others, text])
        _compare([*others, text])


IDS = st.text(st.sampled_from('ab"\\ \u00e4\u2028\0{}:,id'), max_size=4)


@given(st.lists(IDS, min_size=2, max_size=5), st.booleans(), st.sampled_from(["id", "x", "ids"]))
def test_any_ids_are_answered_as_on_the_ordinary_way(ids: list[str], is_ascii: bool, name: str) -> None:
    parameters = {"binary_data_output": True, name: "ab"}
    _compare(
        [
            json.dumps({"id": each, "inputs": [TENSOR], "parameters": parameters}, ensure_ascii=is_ascii).encode()
            for each in ids
        ]
    )
