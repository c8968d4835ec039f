"""NaN as null, as KServe's client writes it: passed on as it came if the operator says so, refused by default."""

from __future__ import annotations

import json

import pytest

from tests.client.scripted import scripted
from tests.guard.serving import guarding, nobody
from tests.server.wire import Wire, chunked, head, post

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
PATH = "/v2/models/m/infer"


def _body(values: list[float | None], datatype: str = "FP32") -> bytes:
    tensor = {"name": "x", "shape": [len(values)], "datatype": datatype, "data": values}
    return json.dumps({"id": "1", "inputs": [tensor]}).encode()


def _requests(body: bytes) -> list[bytes]:
    return [post(body, model="m"), head(PATH, "Transfer-Encoding: chunked") + chunked(body, [1, 40])]


@pytest.mark.parametrize("count", [2, 20_000])
def test_null_passes_if_the_operator_says_so(count: int) -> None:
    body = _body([None, *[1.0] * (count - 2), float("nan")])
    requests = _requests(body) * 2
    with scripted([OK] * len(requests)) as server, guarding(server.url, null_is_nan=True) as guard, Wire(guard) as wire:
        for request in requests:
            assert wire.send(request).response().status == 200
    assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [body] * len(requests)


@pytest.mark.parametrize("count", [2, 20_000])
def test_null_is_refused_by_default_and_in_other_datatypes(count: int) -> None:
    values: list[float | None] = [None, *[1] * (count - 1)]
    for null_is_nan, datatype in ((False, "FP32"), (True, "INT32"), (True, "BOOL"), (True, "BYTES")):
        with guarding(nobody(), null_is_nan=null_is_nan) as guard:
            for request in _requests(_body(values, datatype)) * 2:
                with Wire(guard) as wire:
                    answer = wire.send(request).response()
                    assert (answer.status, "data[0]" in answer.error) == (400, True)
