"""Drivers: both clients behind one blocking interface, so that each test runs with each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamcodec import Event
from streamcodec.client import AsyncClient, Client, InferResult


class Driver:
    """A client; calls block, whatever is behind them."""

    def __init__(self, client: Client | AsyncClient, portal: BlockingPortal | None) -> None:
        self.client = client
        self._portal = portal

    def infer(self, *arguments: Any, **options: Any) -> InferResult:  # noqa: ANN401 - those of both clients
        result: InferResult = self.call("infer", *arguments, **options)
        return result

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of both clients
        function = getattr(self.client, method)
        if self._portal is None:
            return function(*arguments, **options)

        async def call() -> Any:  # noqa: ANN401 - as above
            return await function(*arguments, **options)

        return self._portal.call(call)

    @contextmanager
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Iterator[Event]]:  # noqa: ANN401 - as above
        if self._portal is None:
            assert isinstance(self.client, Client)
            with self.client.stream(*arguments, **options) as events:
                yield events
            return
        assert isinstance(self.client, AsyncClient)
        manager = self.client.stream(*arguments, **options)
        with self._portal.wrap_async_context_manager(manager) as asynchronous:
            yield self._iterate(self._portal, asynchronous)

    def _iterate(self, portal: BlockingPortal, events: AsyncIterator[Event]) -> Iterator[Event]:
        async def step() -> Event | None:
            return await anext(events, None)

        while (event := portal.call(step)) is not None:
            yield event


class Kind:
    """A kind of client."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_asynchronous = name != "sync"

    @contextmanager
    def client(self, url: str, **options: Any) -> Iterator[Driver]:  # noqa: ANN401 - those of both clients
        options = {"timeout": 10} | options
        if self._name == "sync":
            with Client(url, **options) as client:
                yield Driver(client, None)
            return
        settings = {"use_uvloop": True} if self._name == "uvloop" else None
        with start_blocking_portal("asyncio" if settings else self._name, settings) as portal:
            asynchronous = AsyncClient(url, **options)
            with portal.wrap_async_context_manager(asynchronous) as client_there:
                yield Driver(client_there, portal)


KINDS = pytest.mark.parametrize("kind", [Kind("sync"), Kind("asyncio"), Kind("trio")], ids=["sync", "asyncio", "trio"])
