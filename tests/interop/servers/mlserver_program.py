"""MLServer with a model that answers its inputs: `python -m tests.interop.servers.mlserver_program DIRECTORY PORT`.

Runs with the Python of an environment that has mlserver; imports nothing but the standard library. Writes the model to
DIRECTORY and becomes the server, on loopback.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

_MODEL = """\
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Echo(MLModel):
    async def predict(self, payload):
        members = {"name", "shape", "datatype", "data"}
        outputs = [ResponseOutput(**tensor.model_dump(include=members)) for tensor in payload.inputs]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)
"""


def main(directory: Path, port: int) -> None:
    directory.joinpath("echo.py").write_text(_MODEL, encoding="utf-8")
    _write(directory / "model-settings.json", {"name": "echo", "implementation": "echo.Echo"})
    settings = {"host": "127.0.0.1", "http_port": port, "parallel_workers": 0, "debug": False}
    _write(directory / "settings.json", settings | {f"{name}_port": _free_port() for name in ("grpc", "metrics")})
    program = str(Path(sys.prefix) / "bin" / "mlserver")
    os.execv(program, [program, "start", str(directory)])  # noqa: S606 - so that signals reach the server itself


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
