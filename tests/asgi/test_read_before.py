"""Endpoints whose body has been read before: they say so at once, and do not wait for bytes that never come."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streamcodec import LocalProtocolError
from streamcodec.asgi import receive_request
from tests.asgi.client import Exchanged
from tests.asgi.test_app import infer, on_both, run

fastapi = pytest.importorskip("fastapi")


async def _body(request: Any) -> None:  # noqa: ANN401 - FastAPI's
    await request.body()


async def _stream(request: Any) -> None:  # noqa: ANN401 - FastAPI's
    async for _ in request.stream():
        pass


async def _receive(request: Any) -> None:  # noqa: ANN401 - FastAPI's
    await receive_request(request)


async def _receive_by_scope(request: Any) -> None:  # noqa: ANN401 - FastAPI's
    await receive_request(request.scope, request.receive)


async def _receive_in_vain(request: Any) -> None:  # noqa: ANN401 - FastAPI's
    def check(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await receive_request(request, check=check)


def app_of(endpoint: Any) -> Any:  # noqa: ANN401 - FastAPI's
    endpoint.__annotations__["request"] = fastapi.Request
    app = fastapi.FastAPI()
    app.add_api_route("/v2/models/m/infer", endpoint, methods=["POST"])
    return app


@on_both
@pytest.mark.parametrize("read", [_body, _stream, _receive, _receive_by_scope, _receive_in_vain])
def test_who_has_read_a_body_before_is_told(backend: str, read: Callable[[Any], Awaitable[None]]) -> None:
    scope, body = infer()

    async def endpoint(request: Any) -> None:  # noqa: ANN401 - FastAPI's
        await read(request)
        await receive_request(request)

    async def main() -> None:
        exchanged = Exchanged(deque([body[:50], body[50:]]))
        with pytest.raises(LocalProtocolError, match="has been read before"):
            await app_of(endpoint)({**scope}, exchanged.receive, exchanged.send)

    run(main, backend=backend)


def test_a_second_receive_by_scope_is_told() -> None:
    scope, body = infer()

    async def main() -> None:
        exchanged = Exchanged(deque([body]))
        await receive_request(scope, exchanged.receive)
        with pytest.raises(LocalProtocolError, match=r"an earlier `receive_request\(\)`"):
            await receive_request(scope, exchanged.receive)
        with pytest.raises(LocalProtocolError, match="needs the scope and `receive`"):
            await receive_request(scope)

    run(main)


def test_a_parameter_that_is_taken_from_the_body_is_named() -> None:
    scope, body = infer()

    async def endpoint(request: Any, value: Any) -> None:  # noqa: ANN401, ARG001 - FastAPI's
        await receive_request(request)

    async def main() -> None:
        exchanged = Exchanged(deque([body]))
        with pytest.raises(LocalProtocolError, match="for a parameter that FastAPI takes from it"):
            await app_of(endpoint)({**scope}, exchanged.receive, exchanged.send)

    endpoint.__defaults__ = (fastapi.Body(),)
    endpoint.__annotations__["value"] = bytes
    run(main)


def test_what_notices_it_keeps_nothing() -> None:
    """A server's object often refers to the scope."""
    scope, body = infer()

    async def main() -> weakref.ref[Exchanged]:
        exchanged = Exchanged(deque([body]))
        mine = {**scope}
        exchanged.scope = mine  # type: ignore[attr-defined] # as uvicorn's has
        await receive_request(mine, exchanged.receive)
        return weakref.ref(exchanged)

    gc.collect()
    gc.disable()
    try:
        assert run(main)() is None
    finally:
        gc.enable()


def test_a_receive_without_weak_references_is_known_again() -> None:
    class Rust:
        """A server's object, as of granian."""

        __slots__ = ("exchanged",)

        def __init__(self, body: bytes) -> None:
            self.exchanged = Exchanged(deque([body]))

        async def receive(self) -> Any:  # noqa: ANN401 - a message
            return await self.exchanged.receive()

    scope, body = infer()

    async def main() -> None:
        first, second = Rust(body), Rust(body)
        await receive_request(scope, first.receive)
        await receive_request(scope, second.receive)
        with pytest.raises(LocalProtocolError, match="has been read before"):
            await receive_request(scope, second.receive)

    run(main)
