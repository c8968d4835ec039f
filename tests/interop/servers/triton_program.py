"""A Triton server with models of our own: `python -m tests.interop.servers.triton_program DIRECTORY PORT`.

Runs with the Python of an environment that has nvidia-pytriton, whose wheel carries the server and its Python backend;
imports nothing but the standard library. Writes the model repository to DIRECTORY and becomes the server, on loopback.

Each model takes its inputs as options and answers those it was given, so that one model serves all datatypes:

- `identity` and `matrix`, of rank 1 and 2: an input and an output for each datatype, of the datatype's name;
- `seen`, in two versions: answers, as JSON text, what a request said;
- `single` and `element`: one input, FP32 of any length and BYTES [1], as a raw binary request needs;
- `batches`: batches of up to 8 rows of 4, whose classes have labels.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

_NUMBERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64"]
_DATATYPES = ["BOOL", *_NUMBERS, "BYTES"]
_LABELS = ["hare", "hedgehog", "otter", "owl"]


def main(directory: Path, port: int) -> None:
    install_backend(directory / "backends" / "python")
    _write_models(directory / "models")
    become_server(directory, port)


def become_server(directory: Path, port: int, *options: str) -> None:
    """Become the server, with what is in `models` and `backends` of a directory; later options have precedence."""
    wheel = _wheel()
    server = wheel / "bin" / "tritonserver"
    command = [
        str(server),
        f"--model-repository={directory / 'models'}",
        f"--backend-directory={directory / 'backends'}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--log-info=false",
        *options,
    ]
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(wheel.parent.parent / "nvidia_pytriton.libs"),
        # The backend starts the first `python3` for its packages, numpy among them.
        "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
    }
    os.execve(server, command, environment)  # noqa: S606 - so that signals reach the server itself


def _wheel() -> Path:
    spec = find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{sys.executable} has no package pytriton")
    return Path(spec.submodule_search_locations[0]) / "tritonserver"


def install_backend(backend: Path) -> None:
    """Put the Python backend together: the wheel keeps the program that runs models once for each Python version."""
    wheel = _wheel()
    backend.mkdir(parents=True)
    for file in (wheel / "backends" / "python").iterdir():
        (backend / file.name).symlink_to(file)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = shutil.copy(wheel / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
    Path(stub).chmod(0o755)


def _write_models(repository: Path) -> None:
    for name, dims in (("identity", "-1"), ("matrix", "-1, -1")):
        tensors = [_tensor(way, datatype, dims) for datatype in _DATATYPES for way in ("input", "output")]
        _write_model(repository / name, tensors)
    given = [_tensor("input", datatype, "-1") for datatype in _DATATYPES]
    _write_model(
        repository / "seen",
        [*given, 'output { name: "SEEN" data_type: TYPE_STRING dims: [1] }', "version_policy { all {} }"],
        versions=2,
    )
    _write_model(repository / "single", [_tensor("input", "FP32", "-1"), _tensor("output", "FP32", "-1")])
    _write_model(repository / "element", [_tensor("input", "BYTES", "1"), _tensor("output", "BYTES", "1")])
    output = 'output { name: "FP32" data_type: TYPE_FP32 dims: [4] label_filename: "labels.txt" }'
    _write_model(repository / "batches", [_tensor("input", "FP32", "4"), output, "max_batch_size: 8"])
    (repository / "batches" / "labels.txt").write_text("\n".join(_LABELS))


def _tensor(way: str, datatype: str, dims: str) -> str:
    data_type = "STRING" if datatype == "BYTES" else datatype
    optional = "optional: true" if way == "input" else ""
    return f'{way} {{ name: "{datatype}" data_type: TYPE_{data_type} dims: [{dims}] {optional} }}'


def _write_model(model: Path, lines: list[str], *, versions: int = 1) -> None:
    for version in range(1, versions + 1):
        (model / str(version)).mkdir(parents=True)
        (model / str(version) / "model.py").symlink_to(Path(__file__).with_name("triton_model.py"))
    (model / "config.pbtxt").write_text("\n".join(['backend: "python"', "instance_group { kind: KIND_CPU }", *lines]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
