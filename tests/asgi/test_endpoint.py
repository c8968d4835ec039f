"""Endpoints of one's own: requests received and answered within an ASGI application, and under FastAPI."""

from __future__ import annotations

import gzip
from collections import deque
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    MessageError,
    RemoteProtocolError,
    RequestHeader,
    Rows,
    new_array,
)
from streamcodec.asgi import SharedBudget, pieces, receive_request, send_response
from streamcodec.asgi.app import Message
from streamcodec.embedding.endpoint import in_shared_pool
from streamcodec.service import Reply, error_reply
from streamcodec.service.request.reception import ReceivedRequest
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


@pytest.mark.parametrize("status", [204, 205, 304])
def test_an_error_whose_status_allows_no_content_is_sent_without(status: int) -> None:
    exchanged = Exchanged(deque())
    reply = error_reply(RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status))
    run(send_response, exchanged.send, reply)
    assert (exchanged.status, exchanged.body) == (status, b"")
    assert exchanged.fields == ({"content-length": "0"} if status == 205 else {})

    async def sent() -> bytes:
        return b"".join([piece async for piece in pieces(reply)])

    assert run(sent) == b""


def test_a_status_that_no_answer_can_have_is_not_sent() -> None:
    exchanged = Exchanged(deque())
    with pytest.raises(LocalProtocolError, match="200 to 599, not 600"):
        run(send_response, exchanged.send, Reply(status=600))
    assert exchanged.sent == []


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


# Short whole bodies


@on_both
@pytest.mark.parametrize("cut", [None, 50])
@pytest.mark.parametrize("http_version", ["1.1", "2"])
@pytest.mark.parametrize("has_empty_end", [False, True])
def test_a_whole_body_is_received_as_one_in_pieces(
    backend: str, cut: int | None, http_version: str, has_empty_end: bool
) -> None:
    scope, body = infer(request_id="7")
    scope["http_version"] = http_version

    async def main() -> None:
        budget = SharedBudget(1 << 20)
        exchanged = Exchanged(deque([body] if cut is None else [body[:cut], body[cut:]]), has_empty_end=has_empty_end)
        received = await receive_request(scope, exchanged.receive, budget=budget)
        assert received.header.id == "7"
        assert np.array_equal(received.inputs["x"], X)
        assert budget.budget.reserved == len(body)
        del received
        assert budget.budget.reserved == 0

    run(main, backend=backend)


@pytest.mark.parametrize(
    "change", [{"body": b"x"}, {"body": b"{}"}, {"more_body": True}, {"body": b"more than that" * 50}]
)
def test_a_whole_body_that_is_wrong_is_refused_as_one_in_pieces(change: dict[str, Any]) -> None:
    scope, body = infer()
    wrong = body.replace(b"FP32", b"FP64")

    async def refused(messages: list[Message]) -> list[object]:
        coming = iter([*messages, {"type": "http.disconnect"}])

        async def receive() -> Message:
            return next(coming)

        budget = SharedBudget(1 << 20)
        with pytest.raises(MessageError) as caught:
            await receive_request(dict(scope), receive, budget=budget)
        assert budget.budget.reserved == 0
        error = caught.value
        return [type(error), error.code, str(error), error.offset, error.status_hint]

    async def main() -> None:
        message = {"type": "http.request", "body": wrong, "more_body": False, **change}
        first = {"type": "http.request", "body": b"", "more_body": True}
        assert await refused([message]) == await refused([first, message])

    run(main)


def test_a_whole_body_waits_for_memory_as_any_other() -> None:
    scope, body = infer()
    budget = SharedBudget(len(body) + 50)

    async def main() -> None:
        seen: list[RequestHeader] = []
        first = await receive_request(dict(scope), Exchanged(deque([body])).receive, budget=budget, check=seen.append)
        received: list[ReceivedRequest] = []

        async def wait() -> None:
            exchanged = Exchanged(deque([body]))
            received.append(await receive_request(dict(scope), exchanged.receive, budget=budget, check=seen.append))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.05)
            assert not received
            del first
        assert np.array_equal(received[0].inputs["x"], X)
        assert len(seen) == 2
        exchanged = Exchanged(deque([body]))
        with pytest.raises(LimitExceededError):
            await receive_request(dict(scope), exchanged.receive, budget=SharedBudget(len(body) - 1))
        assert exchanged.received == 0

    run(main)
    assert budget.budget.reserved == 0


def test_a_check_that_refuses_a_whole_body_gives_its_memory_back() -> None:
    def check(_: RequestHeader) -> None:
        raise ZeroDivisionError

    scope, body = infer()
    budget = SharedBudget(1 << 20)
    with pytest.raises(ZeroDivisionError):
        run(partial(receive, check=check, budget=budget), [body], scope)
    assert budget.budget.reserved == 0


def test_a_place_of_ones_own_is_asked_for_each_tensor() -> None:
    scope, body = infer()
    seen = []

    def place(spec: Any) -> Any:  # noqa: ANN401 - a placement
        seen.append(spec.name)
        return new_array(spec)

    run(partial(receive, place=place), [body], scope)
    assert seen == ["x"]
