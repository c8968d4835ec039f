"""A KServe ModelServer with models of our own: `python -m tests.interop.servers.kserve_program DIRECTORY PORT`.

Runs with the Python of KServe's own environment, which has neither streamcodec nor pytest. The models do with inputs
and outputs what KServe's documentation shows: `as_numpy()` in, `InferOutput` out. DIRECTORY is not used.

- `identity` and `matrix` answer each input as the output of the same name; the parameter `fail` makes them fail;
- `seen` answers, as JSON text, what a request said;
- `echo` is `identity` without an id of its own where the request has none;
- `payloads` answers NaNs that KServe could not have read as such.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer, model_server
from kserve.errors import InvalidInput
from kserve.protocol.rest.server import RESTServer
from kserve.utils.utils import generate_uuid

from tests.interop.tensors import BINARY_ONLY, datatype, fingerprint

_DATATYPES = ["BOOL", "UINT8", "UINT64", "INT8", "INT64", "FP16", "FP32", "FP64", "BYTES"]


class Identity(Model):  # type: ignore[misc]  # KServe is not in this environment
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:  # noqa: ARG002 - KServe gives it
        fail = (payload.parameters or {}).get("fail")
        if fail == "invalid":
            msg = "the model wants it otherwise"
            raise InvalidInput(msg)
        if fail == "broken":
            msg = "the model is broken"
            raise RuntimeError(msg)
        return self._answer(payload, self._outputs(payload))

    def get_input_types(self) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": name, "shape": [-1]} for name in _DATATYPES]

    def get_output_types(self) -> list[dict[str, Any]]:
        return self.get_input_types()

    def _id(self, payload: InferRequest) -> str | None:
        return payload.id or generate_uuid()  # type: ignore[no-any-return]  # as KServe's own models

    def _outputs(self, payload: InferRequest) -> list[InferOutput]:
        return [output(tensor.name, tensor.datatype, tensor.as_numpy()) for tensor in payload.inputs]

    def _answer(self, payload: InferRequest, outputs: list[InferOutput]) -> InferResponse:
        return InferResponse(
            response_id=self._id(payload),
            model_name=self.name,
            infer_outputs=outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


class _Echo(Identity):
    def _id(self, payload: InferRequest) -> str | None:
        return payload.id  # type: ignore[no-any-return]  # as the documentation's examples


class _Seen(Identity):
    def _outputs(self, payload: InferRequest) -> list[InferOutput]:
        seen = {
            "id": payload.id,
            "parameters": payload.parameters,
            "inputs": {tensor.name: fingerprint(tensor.as_numpy()) for tensor in payload.inputs},
        }
        return [output("SEEN", "BYTES", np.array([json.dumps(seen)], dtype=object))]


class _Payloads(Identity):
    def _outputs(self, payload: InferRequest) -> list[InferOutput]:  # noqa: ARG002 - it answers always the same
        names = [name for name in BINARY_ONLY if "NaN" in name]
        return [output(datatype(name), datatype(name), BINARY_ONLY[name]) for name in names]


def output(name: str, datatype: str, array: np.ndarray[Any, Any]) -> InferOutput:
    return InferOutput(name=name, shape=list(array.shape), datatype=datatype, data=array)


class OnLoopback(RESTServer):  # type: ignore[misc]  # KServe is not in this environment
    """KServe listens on all interfaces and has no option for that."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of the server
        super().__init__(*arguments, **options)
        self.config.host = "127.0.0.1"


def serve(models: list[Model], port: int) -> None:
    """Serve models on the loopback interface, until a signal."""
    model_server.RESTServer = OnLoopback
    server = ModelServer(http_port=port, enable_grpc=False, workers=1, enable_latency_logging=False)
    server.start(models)


def all_models() -> list[Model]:
    return [Identity("identity"), Identity("matrix"), _Echo("echo"), _Seen("seen"), _Payloads("payloads")]


if __name__ == "__main__":
    serve(all_models(), int(sys.argv[2]))
