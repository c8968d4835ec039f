"""What our REST client sends and takes, over transports of the test: `python -m tests.kserve.transports_script`.

Runs in KServe's environment, and writes a line for each case.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
from kserve import InferInput, InferRequest, RESTConfig
from kserve.errors import InvalidInput

from streamcodec import DATATYPES, Tensor, TensorSpec, encode_response
from streamcodec.kserve import InferenceRESTClient, arrays_of, infer_request
from streamcodec.kserve.tensors import input_of

X = np.arange(300_000, dtype=np.float32)
FIELD = "Inference-Header-Content-Length"


class Server:
    """Keeps what it is asked, and answers with `answer`; its metadata are `metadata`, or an error."""

    def __init__(self, answer: httpx.Response | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.answer, self.metadata = answer, metadata
        self.asked: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.asked.append(request)
        if request.method == "GET":
            return httpx.Response(404) if self.metadata is None else httpx.Response(200, json=self.metadata)
        return self.answer or answer_of({"y": X})

    async def infer(self, *requests: InferRequest, **arguments: Any) -> list[Any]:  # noqa: ANN401 - those of `infer`
        config = RESTConfig(protocol="v2", transport=httpx.MockTransport(self), verbose=True)
        async with InferenceRESTClient(config) as client:
            return [await client.infer("http://server/path", each, "m", **arguments) for each in requests]

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.asked]


def answer_of(outputs: dict[str, np.ndarray[Any, Any]], extra: bytes = b"", cut: int | None = None) -> httpx.Response:
    message = encode_response([Tensor(name=name, array=array) for name, array in outputs.items()], model_name="m")
    body = (b"".join(message.buffers) + extra)[:cut]
    return httpx.Response(200, headers=[(FIELD, str(message.header_length))], stream=Pieces(body))


class Pieces(httpx.AsyncByteStream):
    """A body in pieces."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 1 << 16):
            yield self._body[start : start + (1 << 16)]


def passed_on(array: np.ndarray[Any, Any]) -> InferRequest:
    """Return a request as a transformer has received it from our data plane, with an input that it has made itself."""
    spec = TensorSpec(name="x", datatype=DATATYPES["INT32"], shape=array.shape, nbytes=array.nbytes)
    return InferRequest("m", [input_of(spec, array), InferInput("z", [*array.shape], "INT32", data=array)])


async def body_is_sent_from_arrays() -> None:
    server = Server()
    fields: dict[str, str] = {}
    headers = {"Content-Type": "application/json", "content-length": "1", "X-Mine": "1"}
    (response,) = await server.infer(infer_request("m", {"x": X}), headers=headers, response_headers=fields)
    (request,) = server.asked
    assert str(request.url) == "http://server/path/v2/models/m/infer"
    assert request.headers.get_list("content-type") == ["application/octet-stream"]
    assert request.headers.get_list("content-length") == [str(len(request.content))]
    assert "transfer-encoding" not in request.headers
    assert request.headers["x-mine"] == "1"
    assert request.content.endswith(X.tobytes())
    assert headers == {"Content-Type": "application/json", "content-length": "1", "X-Mine": "1"}, "it is the caller's"
    np.testing.assert_array_equal(arrays_of(response)["y"], X)
    assert FIELD.lower() in fields


async def server_is_asked_once_what_it_reads() -> None:
    for metadata, is_binary in (
        ({"name": "triton", "extensions": ["binary_tensor_data"]}, True),
        ({"name": "kserve", "extensions": ["model_repository_extension"]}, True),
        ({"name": "mlserver", "extensions": []}, False),
        ({"name": "odd", "extensions": None}, False),
        (None, False),
    ):
        server = Server(metadata=metadata)
        request = passed_on(np.arange(3, dtype=np.int32))
        await server.infer(request, request)
        assert server.methods == ["GET", "POST", "POST"], "asked once"
        assert str(server.asked[0].url) == "http://server/path/v2"
        assert (FIELD in server.asked[1].headers) is is_binary
        if not is_binary:
            document = json.loads(server.asked[2].content)
            assert document["inputs"][0]["data"] == [0, 1, 2]
            assert server.asked[2].headers["content-type"] == "application/json"


async def server_that_does_not_answer_is_asked_again() -> None:
    server = Server()

    async def fail(request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and len(server.asked) < 1:
            server.asked.append(request)
            raise httpx.ConnectError("not now")
        return await Server.__call__(server, request)

    async with InferenceRESTClient(RESTConfig(protocol="v2", transport=httpx.MockTransport(fail))) as client:
        for _ in range(2):
            await client.infer("http://server", passed_on(np.ones(2, np.int32)), "m")
    assert server.methods == ["GET", "POST", "GET", "POST"]


async def lists_are_sent_as_they_are() -> None:
    server = Server()
    nested = InferInput("x", [2, 1], "INT64", data=[[1], [2]])
    await server.infer(InferRequest("m", [nested], request_id="7"))
    assert server.methods == ["POST"], "nothing had to be asked"
    assert json.loads(server.asked[0].content)["inputs"][0]["data"] == [[1], [2]]


async def json_answer_keeps_its_nesting() -> None:
    output = {"name": "y", "datatype": "INT64", "shape": [2, 1], "data": [[1], [2]]}
    server = Server(httpx.Response(200, json={"model_name": "m", "id": "7", "outputs": [output]}))
    (response,) = await server.infer(infer_request("m", {"x": X}))
    assert response.outputs[0].data == [[1], [2]]


async def failure(answer: httpx.Response) -> BaseException | None:
    """Return what the client raises for an answer."""
    outcomes: tuple[list[Any] | BaseException] = await asyncio.gather(
        Server(answer).infer(infer_request("m", {"x": X})), return_exceptions=True
    )
    return outcomes[0] if isinstance(outcomes[0], BaseException) else None


async def wrong_answers_are_refused() -> None:
    unreadable = httpx.Response(200, headers={FIELD: "+7"}, content=b"{}")
    empty = httpx.Response(200, headers={FIELD: "2"}, content=b"{}")
    cases = {
        "bytes follow": answer_of({"y": X}, extra=b"0"),
        "follow": answer_of({"y": X[:0]}, extra=b"0" * (1 << 17)),
        "the answer is invalid": answer_of({"y": X}, cut=-1),
        "is no number": unreadable,
        "invalid: ": empty,
    }
    for words, answer in cases.items():
        error = await failure(answer)
        assert isinstance(error, InvalidInput), error
        assert words in str(error), (words, str(error))


async def error_has_its_text() -> None:
    error = await failure(httpx.Response(503, json={"error": "the model is tired"}))
    assert isinstance(error, httpx.HTTPStatusError), error
    assert "the model is tired" in str(error)
    assert error.response.status_code == 503


CASES = [
    body_is_sent_from_arrays,
    server_is_asked_once_what_it_reads,
    server_that_does_not_answer_is_asked_again,
    lists_are_sent_as_they_are,
    json_answer_keeps_its_nesting,
    wrong_answers_are_refused,
    error_has_its_text,
]

if __name__ == "__main__":
    for case in CASES:
        asyncio.run(case())
        sys.stdout.write(f"{case.__name__}\n")
