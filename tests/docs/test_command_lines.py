"""The commands on the pages are ones that the program takes; what they do is not run here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli.commands import parse

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"`(?:streamcodec )?(serve|infer|encode|bench|guard|fuzz|inspect) ([^`]*--[^`]*)`")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def _lines(page: Path) -> Iterator[str]:
    """Yield the arguments of each whole command in the blocks of a page, without the programs before and behind it."""
    for block in _FENCE.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"(?:\$ )?streamcodec ([^|&>]+)", line):
                yield match[1]


def _make_files(words: list[str]) -> None:
    """Make what a command opens when it reads its arguments."""
    for path in (Path(word.rpartition("=")[2]) for word in words):
        if path.suffix == ".bin":
            path.touch()
        elif path.suffix == ".npy":
            np.save(path, np.zeros(1))


def test_commands_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [(page, line) for page in _PAGES for line in _lines(page)]
    assert len(lines) > 10
    for page, line in lines:
        words = shlex.split(line, comments=True)
        _make_files(words)
        try:
            parse(words)
        except SystemExit:
            pytest.fail(f"{page.relative_to(_ROOT)}: {line}: {capsys.readouterr().err}")


def test_options_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """In the text, a command may stand with some of its arguments only."""
    named = [(page, *found) for page in _PAGES for found in _NAMED.findall(page.read_text())]
    assert len(named) > 10
    for page, command, arguments in named:
        with pytest.raises(SystemExit):
            parse([command, "--help"])
        offered = set(_OPTION.findall(capsys.readouterr().out))
        assert {*_OPTION.findall(arguments)} <= offered, f"{page.relative_to(_ROOT)}: {command} {arguments}"
