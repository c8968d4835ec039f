"""The models of `repository`, for Triton's Python backend: each model of the repository is a link to this file.

Runs inside Triton, so it may import neither streamcodec nor pytest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as backend  # type: ignore[import-not-found]  # Triton puts it there

_Arrays = dict[str, Any]
_START, _END = 1, 2


def _identity(given: _Arrays, _: Any) -> _Arrays:  # noqa: ANN401 - the backend has no types
    return {name.replace("INPUT", "OUTPUT"): array for name, array in given.items()}


def _add_sub(given: _Arrays, _: Any) -> _Arrays:  # noqa: ANN401 - as above
    first, second = (_numbers(given[name]) for name in ("INPUT0", "INPUT1"))
    return {"OUTPUT0": first + second, "OUTPUT1": first - second}


def _sub_add(given: _Arrays, request: Any) -> _Arrays:  # noqa: ANN401 - as above
    found = _add_sub(given, request)
    return {"OUTPUT0": found["OUTPUT1"], "OUTPUT1": found["OUTPUT0"]}


def _numbers(array: Any) -> Any:  # noqa: ANN401 - as above
    return array.astype(np.int64) if array.dtype == object else array


def _sequence(given: _Arrays, request: Any) -> _Arrays:  # noqa: ANN401 - as above
    return {"OUTPUT": given["INPUT"] + (1 if request.flags() & _START else 0)}


def _dyna_sequence(given: _Arrays, request: Any) -> _Arrays:  # noqa: ANN401 - as above
    last = int(request.correlation_id()) if request.flags() & _END else 0
    return {"OUTPUT": _sequence(given, request)["OUTPUT"] + last}


_sums: dict[str, int] = {}


def _dyna_sum(given: _Arrays, request: Any) -> _Arrays:  # noqa: ANN401 - as above
    name = request.correlation_id()
    last = int(name) if request.flags() & _END else 0
    _sums[name] = int(given["INPUT"].item()) + last + (0 if request.flags() & _START else _sums[name])
    return {"OUTPUT": np.full((1, 1), _sums[name])}


def _classes(given: _Arrays, _: Any) -> _Arrays:  # noqa: ANN401 - as above
    """Four numbers that differ from image to image."""
    rows = [np.frombuffer(row.tobytes(), np.uint8) if row.dtype != object else row for row in given["INPUT"]]
    sums = [int(row.sum()) if row.dtype != object else len(row[0]) for row in rows]
    return {"OUTPUT": np.array([[number % modulus for modulus in (3, 5, 7, 11)] for number in sums])}


_KINDS: dict[str, Callable[[_Arrays, Any], _Arrays]] = {
    "identity": _identity,
    "add_sub": _add_sub,
    "sub_add": _sub_add,
    "sequence": _sequence,
    "dyna_sequence": _dyna_sequence,
    "dyna_sum": _dyna_sum,
    "classes": _classes,
}


class TritonPythonModel:
    """Answers by the function that the parameter `kind` names, after `seconds`."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:  # noqa: ANN401 - the backend has no types
        """Complete the configuration with which an example replaces that of the model `simple`."""
        for number in (0, 1):
            config.add_input({"name": f"INPUT{number}", "data_type": "TYPE_INT32", "dims": [16]})
            config.add_output({"name": f"OUTPUT{number}", "data_type": "TYPE_INT32", "dims": [16]})
        return config

    def initialize(self, arguments: dict[str, str]) -> None:
        config = json.loads(arguments["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._kind = _KINDS[parameters.get("kind", "add_sub")]
        self._seconds = float(parameters.get("seconds", 0))
        self._dtypes = {
            output["name"]: backend.triton_string_to_numpy(output["data_type"]) for output in config["output"]
        }

    def execute(self, requests: list[Any]) -> list[Any]:
        time.sleep(self._seconds)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:  # noqa: ANN401 - the backend has no types
        arrays = self._kind({tensor.name(): tensor.as_numpy() for tensor in request.inputs()}, request)
        wanted = request.requested_output_names()
        return backend.InferenceResponse(
            [backend.Tensor(name, self._typed(name, array)) for name, array in arrays.items() if name in wanted]
        )

    def _typed(self, name: str, array: Any) -> Any:  # noqa: ANN401 - the backend has no types
        dtype = self._dtypes[name]
        if dtype != np.object_:
            return array.astype(dtype)
        texts = [value if isinstance(value, bytes) else str(value).encode() for value in array.reshape(-1).tolist()]
        found = np.empty(array.size, object)
        found[:] = texts
        return found.reshape(array.shape)
