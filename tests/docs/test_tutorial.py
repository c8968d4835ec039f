"""The Python blocks of the documents run, in order and in one namespace, and print what the documents say they do.

A block fenced as ```text right after a Python block is what that block prints; without one it prints nothing.

The Python blocks have a server at 127.0.0.1:8000, which is one of the test's own. Blocks of commands in docs/howto,
fenced as ```sh, run, too, as in the root of the repository; figures may differ in what those print. A block that begins
with `# needs` and the name of a package is only compiled where that package is not installed.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

from streamcodec.service import Model, demo_models
from tests.server.programs import server_here

_ROOT = Path(__file__).parents[2]
_HOWTO = _ROOT / "docs" / "howto"
_DOCUMENTS = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")), *sorted(_HOWTO.glob("*.md"))]
_DOCUMENTS.append(_ROOT / "docs" / "reference" / "errors.md")
_NEEDED = {"metrics.md": ("prometheus_client", "opentelemetry.sdk.trace")}
"""Packages of extras, by the pages that are about them."""
_IN_EXTRAS = {"fastapi", "flask", "tritonclient"}
"""Packages that scripts in docs/figures import, beside ours."""
_SHELL = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
_ADDRESS = "127.0.0.1:8000"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A Python block of a document."""

    line: int
    """Where its first line stands in the document, counted from 0."""
    source: str
    output: str

    @property
    def needed(self) -> str | None:
        """The package without which it is only compiled."""
        match = re.match(r"# needs (\w+)\n", self.source)
        return match and match[1]


def _blocks(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for match in _BLOCK.finditer(text):
        yield Block(line=text.count("\n", 0, match.start(1)), source=match[1], output=match[2] or "")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the server of a page is, if its Python has one."""
    if not any(_ADDRESS in block.source for block in _blocks(request.getfixturevalue("document"))):
        yield _ADDRESS
        return
    models = demo_models()
    models.add(Model(name="double", predict=lambda given: {"y": 2 * given.inputs["x"]}))
    with server_here(models) as (_, (host, port)):
        yield f"{host}:{port}"


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


@pytest.mark.parametrize("document", _DOCUMENTS, ids=_name)
def test_python_blocks(document: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for package in _NEEDED.get(document.name, ()):
        pytest.importorskip(package, reason=f"{document.name} is about an extra")
    namespace: dict[str, object] = {"__name__": document.stem}
    for block in _blocks(document):
        # Empty lines in front: tracebacks then name the document's own lines.
        code = compile("\n" * block.line + block.source.replace(_ADDRESS, address), document, "exec")
        if block.needed is not None and find_spec(block.needed) is None:
            continue
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)  # noqa: S102 - our own documents
        assert printed.getvalue() == block.output, f"{document.name}, line {block.line + 1}"


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted(_HOWTO.glob("*.md")), ids=_name)
def test_shell_blocks(document: Path, tmp_path: Path) -> None:
    for package in _IN_EXTRAS:
        pytest.importorskip(package, reason="scripts in docs/figures compare with it")
    if "python docs/figures/behind_nginx.py" in document.read_text() and not which("nginx", path=_PATH):
        pytest.skip("nginx is not here: apt-get install nginx")
    (tmp_path / "docs").symlink_to(_ROOT / "docs")
    for block in _blocks(document):  # files that commands read
        if "write_bytes" in block.source:
            subprocess.run([sys.executable, "-c", block.source], cwd=tmp_path, check=True)
    for commands, output in _SHELL.findall(document.read_text()):
        result = subprocess.run(
            ["/bin/bash", "-e", "-c", commands],
            cwd=tmp_path,
            env=os.environ | {"PATH": _PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert _shape(result.stdout) == _shape(output)


def _shape(text: str) -> str:
    """Leave out the figures, whose lengths change the blanks."""
    return " ".join(re.sub(r"[\d.,]+", "0", text).split())


def test_there_is_something_to_run() -> None:
    counts = {document.name: len(list(_blocks(document))) for document in _DOCUMENTS}
    assert counts["README.md"]
    assert counts["tutorial.md"]


def test_no_python_block_is_missed() -> None:
    """A fence that is written in another way would be shown to readers and never run."""
    for document in _DOCUMENTS:
        fences = re.findall(
            r"^\s*[`~]{3,}\s*\{?(?:code-block\}?\s*)?(?:python|py)\b", document.read_text(), re.MULTILINE
        )
        assert len(fences) == len(list(_blocks(document))), document.name
