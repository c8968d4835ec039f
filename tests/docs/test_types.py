"""Types: what README and the examples show passes the type checkers that users have, at their strictest.

So does the Python of the other pages, but for annotations: they leave them out where those would say less than they
take, and use a name again for something else, as in a notebook.

Neither checker is needed to run the tests; where one is missing, its test is skipped and says so.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import streamcodec
from tests.docs.test_tutorial import _DOCUMENTS, _blocks

_ROOT = Path(__file__).parents[2]
_TRIED = """
import numpy as np

from streamcodec import Elements, Rows, Tensor, encode_request, encode_response
from streamcodec.service import InferenceRequest, Model, ModelRegistry, TensorMetadata

array = np.ones((2, 3), np.float32)
encode_request({"x": array})
encode_request({"x": Elements([b"a"])})
encode_request({"x": Rows("FP32", (2, 3), [array])})
encode_request([Tensor(name="x", array=array)])
encode_response({"x": array}, model_name="m")


def double(request: InferenceRequest) -> dict[str, Rows]:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, x.shape, (2 * window for window in x.windows))}


async def double_later(request: InferenceRequest) -> dict[str, Rows]:
    x = request.rows["x"]
    return {"y": Rows(x.datatype, x.shape, (2 * window async for window in x.windows))}


inputs = (TensorMetadata("x", "FP32", (2, 3), optional=True),)
models = ModelRegistry.of([Model(name="a", predict=double, ready=lambda: True, inputs=inputs)])
models.replace(Model(name="a", predict=double_later))
"""
"""What people try."""

_TORCH = """
from typing import Any

import numpy as np

class device:
    def __init__(self, name: str) -> None: ...

class dtype: ...

uint8: dtype

class cuda:
    @staticmethod
    def is_available() -> bool: ...

class Tensor:
    shape: tuple[int, ...]
    dtype: dtype
    @property
    def device(self) -> object: ...
    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]: ...
    def to(self, place: object, *, non_blocking: bool = ...) -> Tensor: ...

def empty(size: int, *, dtype: dtype, pin_memory: bool) -> Tensor: ...
def from_numpy(array: np.ndarray[Any, Any]) -> Tensor: ...
"""
"""What an example uses of torch, which is too large to be installed for it."""

_KSERVE = """
class InferRequest: ...

class InferResponse: ...

class InferInput: ...

class InferOutput: ...

class Model:
    ready: bool
    def __init__(self, name: str) -> None: ...

class ModelServer:
    def start(self, models: list[Model]) -> None: ...
"""
"""What an example uses of KServe, whose 66 packages would crowd out ours."""

_RAY = """
from typing import Any

def deployment(cls: type[object]) -> Any: ...
def run(application: object, *, route_prefix: str | None, blocking: bool) -> None: ...
"""
_RAY_CONFIG = """
class AutoscalingPolicy:
    def __init__(self, *, policy_function: object, policy_kwargs: dict[str, float]) -> None: ...

class AutoscalingConfig:
    def __init__(self, *, min_replicas: int, max_replicas: int, policy: AutoscalingPolicy) -> None: ...
"""
"""What an example uses of Ray Serve, which is 500 MB."""

_SILENT = """
[mypy]
[mypy-streamcodec.kserve.*]
follow_imports = silent
[mypy-streamcodec.ray.*]
follow_imports = silent
"""
"""Only the example is checked against that, not the package."""

_LENIENT = """\
# pyright: standard
# mypy: allow-redefinition, disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with the code of all pages, the examples, and what people try."""
    for page in _DOCUMENTS:
        (tmp_path / f"page_{page.parent.name}_{page.stem.lower().replace('-', '_')}.py").write_text(_code(page))
    (tmp_path / "tried.py").write_text(_TRIED)
    if importlib.util.find_spec("torch") is None:
        (tmp_path / "torch.pyi").write_text(_TORCH)
    if importlib.util.find_spec("kserve") is None:
        (tmp_path / "kserve.pyi").write_text(_KSERVE)
    if importlib.util.find_spec("ray") is None:
        (tmp_path / "ray" / "serve").mkdir(parents=True)
        (tmp_path / "ray" / "__init__.pyi").write_text("")
        (tmp_path / "ray" / "serve" / "__init__.pyi").write_text(_RAY)
        (tmp_path / "ray" / "serve" / "config.pyi").write_text(_RAY_CONFIG)
    (tmp_path / "mypy.ini").write_text(_SILENT)
    for path in (_ROOT / "docs" / "examples").glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    return tmp_path


def _code(page: Path) -> str:
    """Join the blocks of a page; what the checkers say has the page's own lines."""
    code = "" if page.stem == "README" else _LENIENT
    for block in _blocks(page):
        if block.needed is not None:
            continue
        code += "\n" * (block.line - code.count("\n")) + block.source
    return code


def _check(folder: Path, *command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command, *sorted(path.name for path in folder.glob("*.py"))],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "MYPYPATH": str(_package())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _package() -> Path:
    return Path(streamcodec.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy(sources: Path) -> None:
    _check(sources, "mypy", "--strict", "--cache-dir", str(sources / "cache"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright(sources: Path) -> None:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(_package())]}
    (sources / "pyrightconfig.json").write_text(json.dumps(settings))
    _check(sources, "pyright", "--pythonpath", sys.executable)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_every_public_name_has_a_type_that_all_checkers_agree_on(tmp_path: Path) -> None:
    """As users see the package: installed, beside their own code."""
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--pythonpath", sys.executable),
            *("--verifytypes", "streamcodec", "--ignoreexternal", "--outputjson"),
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONPATH": str(_package())},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(result.stdout)["typeCompleteness"]
    assert report["pyTypedPath"] == str(_package() / "streamcodec" / "py.typed")
    unclear = [symbol for symbol in report["symbols"] if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    said = [f"{symbol['name']}: {note['message']}" for symbol in unclear for note in symbol["diagnostics"]]
    assert not said, "\n".join(said)
    assert report["completenessScore"] == 1
