"""A Triton server with native models: `python -m tests.benchmarks.triton.program DIRECTORY PORT`.

Runs with the Python of an environment that has nvidia-pytriton (see `tests.interop.servers.triton_program`) and needs a
C compiler. Compiles `backend.c` twice, writes the model repository, and becomes the server. Each model has two
instances, as there are at least two cores, so that Triton may use both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.interop.servers.triton_program import become_server

_SOURCE = Path(__file__).with_name("backend.c")
_COMPILE = ["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra"]
_MODELS = {
    "identity": ([], 'output { name: "x" data_type: TYPE_FP32 dims: [-1] }'),
    "sink": (["-DSINK"], 'output { name: "COUNT" data_type: TYPE_INT64 dims: [1] }'),
}


def main(directory: Path, port: int) -> None:
    for name, (options, output) in _MODELS.items():
        library = directory / "backends" / name / f"libtriton_{name}.so"
        library.parent.mkdir(parents=True)
        subprocess.run([*_COMPILE, *options, str(_SOURCE), "-o", str(library)], check=True)
        model = directory / "models" / name
        (model / "1").mkdir(parents=True)
        lines = [
            f'backend: "{name}"',
            'input { name: "x" data_type: TYPE_FP32 dims: [-1] }',
            output,
            "instance_group { kind: KIND_CPU count: 2 }",
        ]
        (model / "config.pbtxt").write_text("\n".join(lines))
    become_server(directory, port)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
