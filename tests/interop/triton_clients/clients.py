"""Clients: both of Triton's, called in one way; and what tests make and ask of their tensors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from tritonclient.http import InferInput, InferResult

from tests.interop.tensors import BINARY_ONLY, Array, fingerprint

BYTES_ONLY = BINARY_ONLY | {
    # numpy cannot make it from its bits, and KServe's client does not know it
    "BF16": np.array([0x8000, 0x0001, 0x3EAB, 0x7F7F, 0xFF80, 0x7F81], dtype=np.uint16).view(ml_dtypes.bfloat16),
}
LARGE_BODY = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
"""aiohttp, of the way in which tritonclient hands it a large body."""
_TIMEOUT = 20.0


class Aio:
    """The asynchronous client on an event loop of its own, called as if it were the other."""

    def __init__(self, address: str, *, verbose: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open(address, verbose=verbose))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - any method of the client
            return await getattr(self._client, name)(*args, **options)

        return lambda *args, **options: self._runner.run(call(*args, **options))

    def infer_at_once(self, requests: Sequence[list[InferInput]]) -> list[InferResult]:
        async def gather() -> list[InferResult]:
            return list(await asyncio.gather(*(self._client.infer("identity", inputs) for inputs in requests)))

        return self._runner.run(gather())

    def close(self) -> None:
        self._runner.run(self._client.close())
        # aiohttp closes a connection only when all it wanted to send has gone, and does not wait for that itself.
        self._runner.run(asyncio.sleep(0.5))
        self._runner.close()

    async def _open(self, address: str, *, verbose: bool) -> Any:  # noqa: ANN401 - tritonclient has no types
        return tritonclient.http.aio.InferenceServerClient(address, verbose=verbose, conn_timeout=_TIMEOUT)


class Sync(tritonclient.http.InferenceServerClient):  # type: ignore[misc]  # tritonclient has no types
    """The synchronous client, with a name for its way of asking several things at once."""

    def __init__(self, address: str, *, verbose: bool = False) -> None:
        super().__init__(address, verbose, concurrency=8, connection_timeout=_TIMEOUT, network_timeout=_TIMEOUT)

    def infer_at_once(self, requests: Sequence[list[InferInput]]) -> list[InferResult]:
        return [call.get_result() for call in [self.async_infer("identity", inputs) for inputs in requests]]


Client = Sync | Aio


def as_input(name: str, array: Array, datatype: str, *, binary: bool = True) -> InferInput:
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


def seen(result: InferResult) -> dict[str, Any]:
    """What the model `seen` says that it was given."""
    report: dict[str, Any] = json.loads(result.as_numpy("SEEN")[0])
    return report


def is_binary(result: InferResult, name: str) -> bool:
    return "binary_data_size" in result.get_output(name).get("parameters", {})


def assert_same(result: InferResult, name: str, array: Array) -> None:
    assert fingerprint(result.as_numpy(name)) == fingerprint(array)
