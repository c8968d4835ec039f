"""What the cases of `client_script.py` are made of: the client, and the list they are put into.

Imported in an environment that has KServe but neither streamcodec nor pytest.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse

from tests.interop.tensors import Array

FORMS = {"binary": True, "json": False}
HEADER_LENGTH = "Inference-Header-Content-Length"


class Caller:
    """The client, with the address that it wants at every call."""

    def __init__(self, client: InferenceRESTClient, url: str) -> None:
        self.client = client
        self.url = url
        self.headers: dict[str, str] = {}
        """Of the last response."""

    async def infer(self, model: str, inputs: list[InferInput], **options: object) -> InferResponse:
        request = InferRequest(model, inputs, **options)
        return await self.client.infer(self.url, request, model_name=model, response_headers=self.headers)

    async def infer_bytes(self, model: str, body: bytes, fields: dict[str, str]) -> InferResponse:
        """Give bytes in the place of a request, which the client sends unlooked at, with fields by hand."""
        return await self.client.infer(self.url, body, model_name=model, headers=fields, response_headers=self.headers)

    async def identity(self, inputs: Mapping[str, Array], *, binary: bool = True, **options: object) -> InferResponse:
        given = [as_input(name, array, "FP32", binary=binary) for name, array in inputs.items()]
        return await self.infer("identity", given, **options)

    async def seen(self, inputs: list[InferInput], **options: object) -> dict[str, Any]:
        """What the model `seen` says that it was given."""
        response = await self.infer("seen", inputs, **options)
        report: dict[str, Any] = json.loads(response.outputs[0].as_numpy()[0])
        return report


Case = Callable[[Caller], Awaitable[Any]]
CASES: dict[str, Case] = {}
CASES_COMPRESSING: dict[str, Case] = {}
"""For a server that compresses when asked, and writes NaN and the infinities as null."""


def case(name: str, cases: dict[str, Case] = CASES) -> Callable[[Case], Case]:
    def add(run: Case) -> Case:
        cases[name] = run
        return run

    return add


def as_input(name: str, array: Array, datatype: str, *, binary: bool = True) -> InferInput:
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


def outputs_of(response: InferResponse) -> dict[str, Any]:
    return {output.name: output.as_numpy().tolist() for output in response.outputs}


def is_binary(caller: Caller) -> bool:
    """Whether the last response had a binary output; the client itself does not keep that."""
    return "inference-header-content-length" in caller.headers
