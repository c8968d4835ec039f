"""The security page names a test for each attack; here, that there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "security" / "index.md"

_QUOTED = re.compile(r"`([^`]+)`")


def named_tests() -> Iterator[tuple[str, str]]:
    """Yield file and test (or nothing) from the last column of each row; `::test` belongs to the file before it."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line.startswith(("| Attack", "| Misuse", "| ---")):
            continue
        file = ""
        assert "`" in line.split("|")[-2], f"no test is named: {line}"
        for quoted in _QUOTED.findall(line.split("|")[-2]):
            path, _, test = quoted.partition("::")
            file = path or file
            if "/" in file:  # the rest are words, such as the name of a fuzz target
                yield file, test


def exists(file: str, test: str) -> bool:
    path = TESTS / file
    return path.is_file() and (not test or f"def {test}(" in path.read_text(encoding="utf-8"))


def test_every_test_that_is_named_exists() -> None:
    named = list(named_tests())
    assert len(named) > 50
    assert [f"{file}::{test}" for file, test in named if not exists(file, test)] == []
