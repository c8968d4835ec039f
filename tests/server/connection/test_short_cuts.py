"""Short cuts: a request is judged, observed and answered as if it were the first one, whatever others have sent."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import ErrorCode, RemoteProtocolError
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, Reply, RequestRecord, Service
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Answer, Wire, head, infer_request


def identity(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return {"y": request.inputs["x"]}


def asked(address: tuple[str, int], request: bytes) -> Answer:
    """Ask over a connection of its own."""
    with Wire(address) as wire:
        return wire.send(request).response()


def with_id(text: bytes) -> bytes:
    """Return a request with these bytes as its id, which are eight."""
    return infer_request("m").replace(b'"inputs"', b'"id":"%b","inputs"' % text).replace(b" " * 15, b"", 1)


@pytest.mark.parametrize("is_inline", [False, True])
def test_an_answer_has_the_id_of_its_own_request(is_inline: bool) -> None:
    models = ModelRegistry.of([Model(name="m", predict=identity, is_inline=is_inline)])
    with server_here(models) as (_, address):
        first = asked(address, with_id(bytes(8)))
        assert first.status == 400
        for request_id in ("SECRET-A", "SECRET-A", "OTHER--B"):
            answer = asked(address, with_id(request_id.encode()))
            header = answer.body[: int(answer.fields["inference-header-content-length"])]
            assert json.loads(header)["id"] == request_id
        again = asked(address, with_id(bytes(8)))
        assert (again.status, again.body) == (first.status, first.body)


class Records(Observer):
    def __init__(self) -> None:
        self.ended: list[RequestRecord] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.ended.append(request)


@pytest.mark.parametrize("is_inline", [False, True])
def test_each_record_has_the_head_of_its_own_request(is_inline: bool) -> None:
    records = Records()
    models = ModelRegistry.of([Model(name="m", predict=identity, is_inline=is_inline)])
    with server_here(models, observer=records) as (_, address):
        for number in range(4):
            assert asked(address, infer_request("m", f"traceparent: 00-{number}")).status == 200
    assert len(records.ended) == 4
    for number, record in enumerate(records.ended):
        assert record.head is not None
        assert record.head.fields.values(b"traceparent") == [b"00-%d" % number]
        assert record.field(b"traceparent") == [b"00-%d" % number]
        assert record.head.fields.values(b"host") == [b"x"]


def refuse(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    status = int(request.inputs["x"][1])
    raise RemoteProtocolError("nothing here", code=ErrorCode.NOT_FOUND, status_hint=status)


def statuses(address: tuple[str, int], status: int) -> list[Answer]:
    """Have a model answer with a status, three times; then ask for something else over the same connection."""
    request = infer_request("m").replace(np.float32(1).tobytes(), np.float32(status).tobytes())
    with Wire(address) as wire:
        answers = [wire.send(request).response(has_body=status not in {204, 304}) for _ in range(3)]
        assert wire.send(GET_LIVE).response().document == {"live": True}
    return answers


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("status", [200, 204, 205, 299, 304, 404, 499, 599])
def test_an_answer_has_the_body_that_its_status_allows(status: int, is_inline: bool) -> None:
    models = ModelRegistry.of([Model(name="m", predict=refuse, is_inline=is_inline)])
    with server_here(models) as (_, address):
        for answer in statuses(address, status):
            has_content = status not in {204, 205, 304}
            assert (answer.status, bool(answer.body)) == (status, has_content)
            assert ("content-type" in answer.fields) is has_content
            assert ("content-length" in answer.fields) is (status not in {204, 304})


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("status", [-1, 0, 99, 100, 101, 199, 600, 999])
def test_a_status_that_no_answer_can_have_is_a_failure_of_the_model(
    status: int, is_inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    models = ModelRegistry.of([Model(name="m", predict=refuse, is_inline=is_inline)])
    with server_here(models) as (_, address):
        for answer in statuses(address, status):
            assert (answer.status, answer.error) == (500, "model 'm' failed with LocalProtocolError")
    assert f"status_hint is {status}, and the status of an answer is 200 to 599" in caplog.text


@pytest.mark.parametrize("status", [99, 600])
def test_a_page_with_a_status_that_no_answer_can_have_is_a_failure(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(ModelRegistry.of([]))
    service.add_page("/page", lambda: Reply(status=status, buffers=(b"text",), body_length=4))
    with server_here(service) as (_, address), Wire(address) as wire:
        for _ in range(3):
            answer = wire.send(head("/page", method="GET")).response()
            assert (answer.status, answer.error) == (500, f"the status of an answer is 200 to 599, not {status}")
        assert wire.send(GET_LIVE).response().document == {"live": True}
    assert f"the status of an answer is 200 to 599, not {status}" in caplog.text
