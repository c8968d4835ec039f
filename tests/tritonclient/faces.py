"""Faces: the blocking and the asynchronous client of a package, ours or tritonclient's, called in one way."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

OURS = "streamcodec.tritonclient"
THEIRS = "tritonclient"


class Face:
    """A client, and the module that its package has for it."""

    def __init__(self, package: str, client: Any, runner: asyncio.Runner | None) -> None:  # noqa: ANN401 - of either package
        self.client = client
        self.http: ModuleType = importlib.import_module(f"{package}.http")
        self._runner = runner

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the method
        """Call a method, and wait for its result."""
        result = getattr(self.client, method)(*arguments, **options)
        return self._runner.run(result) if self._runner is not None and asyncio.iscoroutine(result) else result

    def tensor(self, name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:  # noqa: ANN401 - of either package
        """Make an input."""
        return self.http.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary_data=binary)


@contextmanager
def face(package: str, kind: str, address: str, **options: Any) -> Iterator[Face]:  # noqa: ANN401 - those of the client
    """Make a client: `sync` or `aio`."""
    if kind == "sync":
        with importlib.import_module(f"{package}.http").InferenceServerClient(address, **options) as client:
            yield Face(package, client, None)
        return
    with asyncio.Runner() as runner:

        async def make() -> Any:  # noqa: ANN401 - aiohttp's connector wants a loop that runs
            return importlib.import_module(f"{package}.http.aio").InferenceServerClient(address, **options)

        client = runner.run(make())
        try:
            yield Face(package, client, runner)
        finally:
            runner.run(client.close())
            runner.run(asyncio.sleep(0))


KINDS = pytest.mark.parametrize("kind", ["sync", "aio"])
