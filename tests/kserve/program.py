"""A KServe ModelServer with ours installed, or without: `python -m tests.kserve.program DIRECTORY PORT`.

Runs with the Python of KServe's own environment, in the root of the checkout. DIRECTORY has the `settings.json` of the
test; see `Settings`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer, model_server
from kserve.errors import InvalidInput
from kserve.predictor_config import PredictorConfig
from kserve.protocol.rest.multiprocess import server as multiprocess

from streamcodec.kserve import arrays_of, batched, infer_response, install
from streamcodec.server import ServerOptions
from streamcodec.service import Batch, RowError
from tests.interop.servers.kserve_program import Identity, OnLoopback, all_models, output

Fields = dict[str, str] | None


@dataclass(kw_only=True)
class Settings:
    """How the server is started."""

    installs: bool = True
    workers: int = 1
    grpc_port: int | None = None
    predictor: str | None = None
    """HOST:PORT of another server, which the models `identity` and `dictionary` ask: they are transformers then."""
    protocol: str = "v2"
    """In which they ask it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `ServerOptions`; those of `install` if it is empty."""


class Process(Identity):
    """Answers which process has answered."""

    def _outputs(self, payload: InferRequest) -> list[InferOutput]:  # noqa: ARG002 - it answers always the same
        return [output("PID", "INT64", np.array([os.getpid()]))]


class Sink(Identity):
    """Answers how many bytes have come."""

    def _outputs(self, payload: InferRequest) -> list[InferOutput]:
        return [output("COUNT", "INT64", np.array([sum(tensor.as_numpy().nbytes for tensor in payload.inputs)]))]


class Arrays(Identity):
    """The identity, by our functions."""

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:  # noqa: ARG002 - KServe gives it
        return infer_response(payload, arrays_of(payload), parameters={"by": "arrays"})


class Hooked(Identity):
    """Has all hooks of KServe, and fields of its own for the answer."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.required_response_headers = True

    async def preprocess(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferRequest:
        payload.parameters = {**(payload.parameters or {}), "seen": sorted(headers or ())}
        return payload

    async def predict(
        self, payload: InferRequest, headers: dict[str, str] | None = None, response_headers: Fields = None
    ) -> InferResponse:
        await asyncio.sleep(0)
        assert headers is not None
        assert response_headers is not None
        response_headers.update({"x-model": headers["x-question"], "content-length": "1", "content-type": "text/plain"})
        response = self._answer(payload, self._outputs(payload))
        response.parameters = payload.parameters
        return response

    async def postprocess(
        self, result: InferResponse, headers: dict[str, str] | None = None, response_headers: Fields = None
    ) -> InferResponse:
        assert headers is not None
        assert response_headers is not None
        response_headers["x-done"] = headers["x-question"]
        result.outputs[0].parameters = {"unit": "cm"}
        return result


class Dictionary(Model):  # type: ignore[misc]  # KServe is not in this environment
    """Answers a dictionary, and the v1 protocol."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def predict(self, payload: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:  # noqa: ANN401, ARG002 - KServe's
        if isinstance(payload, dict):
            return {"predictions": payload["instances"]}
        outputs = [{"name": "y", "shape": [1], "datatype": "INT64", "data": [1]}]
        return {"id": payload.id, "model_name": self.name, "outputs": outputs}


class Passing(Model):  # type: ignore[misc]  # KServe is not in this environment
    """Passes on what it gets."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True


class Late(Identity):
    """Is not ready after all."""

    async def healthy(self) -> bool:
        return False


class Rows(Identity):
    """Doubles rows, and tells the rows of each call. NaN is refused; minus infinity breaks it."""

    def get_input_types(self) -> list[dict[str, Any]]:
        return [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:  # noqa: ARG002 - KServe gives it
        x = arrays_of(payload)["x"]
        if (payload.parameters or {}).get("fail"):
            msg = "the model wants it otherwise"
            raise InvalidInput(msg)
        if np.isneginf(x).any():
            msg = f"{len(x)} rows break the model"
            raise ArithmeticError(msg)
        bad = np.flatnonzero(np.isnan(x).any(axis=1))
        outputs = {"y": x * 2, "rows": np.full(len(x), len(x)), "text": np.array([[b"\xff"]] * len(x), object)}
        if bad.size:
            raise RowError({int(row): InvalidInput(f"row {row} is NaN") for row in bad}, outputs)
        return infer_response(payload, outputs)


class Greeting(Identity):
    """Greets each row, as text if KServe gives it as text."""

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:  # noqa: ARG002 - KServe gives it
        names = payload.get_input_by_name("x").as_numpy()
        return infer_response(payload, {"y": np.array([[f"hello {name}"] for name in names[:, 0]], object)})


class LateRows(Rows):
    """The same, as an `async def`, with all hooks of KServe."""

    async def preprocess(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferRequest:
        assert headers is not None
        return payload

    async def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:
        await asyncio.sleep(0)
        return super().predict(payload, headers)

    async def postprocess(self, result: InferResponse, headers: dict[str, str] | None = None) -> InferResponse:
        assert headers is not None
        result.parameters = {"asked": headers["x-question"]}
        return result


class Held(Rows):
    """Comes to its end when somebody has asked `release`."""

    go_on = asyncio.Event()

    async def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:
        await self.go_on.wait()
        return super().predict(payload, headers)


class Release(Identity):
    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:
        Held.go_on.set()
        return super().predict(payload, headers)


def models() -> list[Model]:
    more = {
        "process": Process,
        "sink": Sink,
        "arrays": Arrays,
        "hooked": Hooked,
        "dictionary": Dictionary,
        "late": Late,
        "release": Release,
    }
    return all_models() + [kind(name) for name, kind in more.items()] + batched_models()


def batched_models() -> list[Model]:
    """Return models that wait for four rows, for none or for two; and one that can be held."""
    four = Batch(max_rows=4, max_delay=60.0, preferred_rows=(4,))
    return [
        batched(Rows("rows"), four),
        batched(LateRows("late-rows"), four),
        batched(Rows("alone"), Batch(max_rows=4, max_delay=0.0, retry_alone=True)),
        batched(Greeting("greeting"), Batch(max_rows=4, max_delay=60.0, preferred_rows=(2,))),
        batched(Held("held"), Batch(max_rows=2, max_delay=0.0, max_queue_rows=2)),
    ]


def main(directory: Path, port: int) -> None:
    settings = Settings(**json.loads((directory / "settings.json").read_text()))
    model_server.RESTServer = multiprocess.RESTServer = OnLoopback
    predictor = settings.predictor
    server = ModelServer(
        predictor_config=predictor and PredictorConfig(predictor, settings.protocol),
        http_port=port,
        grpc_port=settings.grpc_port or 0,
        enable_grpc=settings.grpc_port is not None,
        workers=settings.workers,
    )
    if settings.installs:
        install(server, ServerOptions(**settings.options) if settings.options else None)
    server.start(models() if predictor is None else [Passing("identity"), Passing("dictionary")])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
