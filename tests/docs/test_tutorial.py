"""The Python blocks of the documents run, in order and in one namespace, and print what the documents say they do.

A block fenced as ```text right after a Python block is what that block prints; without one it prints nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DOCUMENTS = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")), _ROOT / "docs" / "reference" / "errors.md"]
_NEEDED = {"metrics.md": ("prometheus_client", "opentelemetry.sdk.trace")}
"""Packages of extras, by the pages that are about them."""
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A Python block of a document."""

    line: int
    """Where its first line stands in the document, counted from 0."""
    source: str
    output: str


def _blocks(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for match in _BLOCK.finditer(text):
        yield Block(line=text.count("\n", 0, match.start(1)), source=match[1], output=match[2] or "")


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for package in _NEEDED.get(document.name, ()):
        pytest.importorskip(package, reason=f"{document.name} is about an extra")
    namespace: dict[str, object] = {"__name__": document.stem}
    for block in _blocks(document):
        # Empty lines in front: tracebacks then name the document's own lines.
        code = compile("\n" * block.line + block.source, document, "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)  # noqa: S102 - our own documents
        assert printed.getvalue() == block.output, f"{document.name}, line {block.line + 1}"


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
