"""The Triton server's models, for its Python backend: each model of the repository is a link to this file.

Runs inside Triton, so it may import neither streamcodec nor pytest.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as backend  # type: ignore[import-not-found]  # Triton puts it there


class TritonPythonModel:
    """Answers each input as the output of the same name; the model `seen` tells what it was given instead."""

    def initialize(self, arguments: dict[str, str]) -> None:
        self._version = arguments["model_version"]
        self._tells = arguments["model_name"] == "seen"

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:  # noqa: ANN401 - the backend has no types
        parameters = json.loads(request.parameters() or "{}")
        if "fail" in parameters:
            return backend.InferenceResponse(output_tensors=[], error=backend.TritonError(parameters["fail"]))
        if self._tells:
            return backend.InferenceResponse(output_tensors=[self._seen(request, parameters)])
        wanted = request.requested_output_names()
        return backend.InferenceResponse([_same(tensor) for tensor in request.inputs() if tensor.name() in wanted])

    def _seen(self, request: Any, parameters: dict[str, Any]) -> Any:  # noqa: ANN401 - the backend has no types
        inputs = [tensor.name() for tensor in request.inputs()]
        seen = {"id": request.request_id(), "parameters": parameters, "version": self._version, "inputs": inputs}
        return backend.Tensor("SEEN", np.array([json.dumps(seen)], dtype=object))


def _same(tensor: Any) -> Any:  # noqa: ANN401 - the backend has no types
    """Hand the memory on; a numpy array would do, but numpy knows no BF16, and DLPack no BYTES."""
    if tensor.name() == "BYTES":
        return backend.Tensor("BYTES", tensor.as_numpy())
    return backend.Tensor.from_dlpack(tensor.name(), tensor.to_dlpack())
