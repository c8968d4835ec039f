"""Endpoints of one's own: requests received and answered within an ASGI application, and under FastAPI."""

from __future__ import annotations

import gzip
from collections import deque
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import ErrorCode, RemoteProtocolError, RequestHeader, Rows, new_array
from streamcodec.asgi import pieces, receive_request, send_response
from streamcodec.server.endpoint import in_shared_pool
from streamcodec.service import Reply, error_reply
from streamcodec.service.reception import ReceivedRequest
from tests.asgi.client import Exchanged, scope_of
from tests.asgi.test_app import X, infer, on_both, output, run

LARGE = np.arange(1 << 18, dtype=np.float32)


async def receive(parts: list[bytes], scope: Any, **options: Any) -> ReceivedRequest:  # noqa: ANN401 - those of receive_request
    exchanged = Exchanged(deque(parts), is_cut=options.pop("is_cut", False))
    return await receive_request(scope, exchanged.receive, **options)


@on_both
def test_a_request_is_received_and_answered(backend: str) -> None:
    scope, body = infer(LARGE, request_id="7")

    async def main() -> Exchanged:
        exchanged = Exchanged(deque([body[:1000], b"", body[1000:]]))
        received = await receive_request(scope, exchanged.receive)
        assert received.header.id == "7"
        await send_response(exchanged.send, received.reply({"y": received.inputs["x"]}, model_name="m"))
        return exchanged

    exchanged = run(main, backend=backend)
    assert exchanged.status == 200
    assert np.array_equal(output(exchanged), LARGE)
    assert int(exchanged.fields["content-length"]) == len(exchanged.body)
    assert exchanged.is_whole
    assert max(len(message["body"]) for message in exchanged.sent[1:]) <= 256 << 10


def test_a_compressed_request_is_received() -> None:
    scope, body = infer(LARGE)
    compressed = gzip.compress(body)
    fields = [field for field in scope["headers"] if field[0] != b"content-length"]
    scope = {
        **scope,
        "headers": [*fields, (b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(compressed))],
    }
    assert np.array_equal(run(receive, [compressed], scope).inputs["x"], LARGE)


def test_tensors_go_to_memory_that_is_used_again() -> None:
    scope, body = infer(np.zeros(1 << 20, np.float32))
    addresses = set()
    for _ in range(4):
        received = run(receive, [body], scope)
        addresses.add(received.inputs["x"].ctypes.data)
        del received
    assert len(addresses) == 1
    assert run(partial(receive, place=new_array), [body], scope).inputs["x"].ctypes.data not in addresses
    assert in_shared_pool(None).idle_bytes > 0  # type: ignore[arg-type] # is not looked at


def test_a_check_refuses_before_the_body_has_come() -> None:
    def check(_: RequestHeader) -> None:
        msg = "not this"
        raise RemoteProtocolError(msg, code=ErrorCode.MODEL_MISMATCH)

    scope, body = infer(LARGE)

    async def main() -> int:
        exchanged = Exchanged(deque([body[:4000], body[4000:]]))
        with pytest.raises(RemoteProtocolError, match="not this"):
            await receive_request(scope, exchanged.receive, check=check)
        return exchanged.received

    assert run(main) == 1


def test_a_client_that_leaves_is_an_error_with_its_code() -> None:
    scope, body = infer()
    with pytest.raises(RemoteProtocolError) as caught:
        run(partial(receive, is_cut=True), [body[:50]], scope)
    assert caught.value.code is ErrorCode.CONNECTION_CLOSED


@on_both
def test_a_client_that_stops_is_an_error_in_time(backend: str) -> None:
    scope, _ = infer()

    async def main() -> None:
        with pytest.raises(RemoteProtocolError, match=r"0\.05 seconds") as caught:
            await receive_request(scope, anyio.sleep_forever, timeout=0.05)  # type: ignore[arg-type] # never returns
        assert caught.value.status_hint == 408

    run(main, backend=backend)


def test_a_wrong_head_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="Content-Length"):
        run(receive, [], scope_of("POST", "/", [(b"content-length", b"x")]))


def test_an_error_is_sent_as_any_answer() -> None:
    exchanged = Exchanged(deque())
    error = RemoteProtocolError("no", code=ErrorCode.MODEL_MISMATCH)
    run(send_response, exchanged.send, error_reply(error))
    assert (exchanged.status, exchanged.body) == (400, b'{"error":"no"}')


def test_rows_are_made_while_they_are_sent() -> None:
    made: list[int] = []

    def windows() -> Any:  # noqa: ANN401 - a generator
        for number in range(3):
            made.append(number)
            yield np.full((1, 4), number, np.uint8)

    async def main() -> list[tuple[bytes, int]]:
        reply = Reply(status=200, buffers=(Rows("UINT8", (3, 4), windows()),), body_length=12)
        return [(piece, len(made)) async for piece in pieces(reply)]

    found = run(main)
    assert b"".join(piece for piece, _ in found) == bytes([0] * 4 + [1] * 4 + [2] * 4)
    assert [count for _, count in found] == [1, 2, 3, 3], "the last byte is sent when there are no more windows"


def test_under_fastapi_an_endpoint_has_a_few_lines() -> None:
    fastapi = pytest.importorskip("fastapi")
    responses = pytest.importorskip("fastapi.responses")
    app = fastapi.FastAPI()

    @app.exception_handler(RemoteProtocolError)  # type: ignore[untyped-decorator]
    async def refuse(_: Any, error: RemoteProtocolError) -> Any:  # noqa: ANN401 - FastAPI's
        return responses.JSONResponse({"error": str(error)}, error.status_hint)

    async def double(request: Any) -> Any:  # noqa: ANN401 - FastAPI's
        received = await receive_request(request.scope, request.receive)
        reply = received.reply({"y": received.inputs["x"] * 2}, model_name="double")
        return responses.StreamingResponse(pieces(reply), reply.status, dict(reply.headers))

    double.__annotations__["request"] = fastapi.Request
    app.add_api_route("/v2/models/m/infer", double, methods=["POST"], response_model=None)
    scope, body = infer()

    async def main() -> list[Exchanged]:
        answers = []
        for data in (body, b"{}"):
            exchanged = Exchanged(deque([data]))
            message = (
                {**scope, "headers": [*scope["headers"]]}
                if data is body
                else scope_of("POST", "/v2/models/m/infer", [(b"content-length", b"2")])
            )
            await app(message, exchanged.receive, exchanged.send)
            answers.append(exchanged)
        return answers

    good, bad = run(main)
    assert np.array_equal(output(good), X * 2)
    assert bad.status == 400
    assert b"inputs" in bad.body
