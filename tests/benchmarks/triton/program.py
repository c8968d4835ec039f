"""A Triton server with native models: `python -m tests.benchmarks.triton.program DIRECTORY PORT`.

Runs with the Python of an environment that has nvidia-pytriton (see `tests.interop.servers.triton_program`) and needs a
C compiler. Compiles `backend.c` twice, writes the model repository, and becomes the server. Each model has two
instances, as there are at least two cores, so that Triton may use both; of the 200 that are alike, each has one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.interop.servers.triton_program import become_server

_SOURCE = Path(__file__).with_name("backend.c")
_COMPILE = ["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra"]
_WAYS = ("input", "output")
_X = {"x": "FP32"}
_IDENTITIES = {
    "identity": _X,
    "default": _X,
    "texts": {"x": "STRING"},
    "four": {f"x{number}": "FP32" for number in range(4)},
    "many": {f"x{number}": "FP32" for number in range(20)},
}


def main(directory: Path, port: int) -> None:
    for name, options in (("identity", []), ("sink", ["-DSINK"])):
        library = directory / "backends" / name / f"libtriton_{name}.so"
        library.parent.mkdir(parents=True)
        subprocess.run([*_COMPILE, *options, str(_SOURCE), "-o", str(library)], check=True)
    models = directory / "models"
    for name, tensors in _IDENTITIES.items():
        _write(models / name, "identity", [_tensor(way, *tensor) for tensor in tensors.items() for way in _WAYS])
    _write(models / "sink", "sink", [_tensor("input", "x", "FP32"), _tensor("output", "COUNT", "INT64", 1)])
    for number in range(200):
        _write(models / f"m{number:03}", "identity", [_tensor(way, "x", "FP32") for way in _WAYS], instances=1)
    become_server(directory, port)


def _tensor(way: str, name: str, datatype: str, dims: int = -1) -> str:
    return f'{way} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{dims}] }}'


def _write(model: Path, backend: str, tensors: list[str], *, instances: int = 2) -> None:
    (model / "1").mkdir(parents=True)
    lines = [f'backend: "{backend}"', *tensors, f"instance_group {{ kind: KIND_CPU count: {instances} }}"]
    (model / "config.pbtxt").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
