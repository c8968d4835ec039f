"""Places: where a member stands in the text of a JSON header, which need not be valid.

The parser gives the path of a wrong member, and no offset. So the text is read once more, token by token, until that
path is there. This costs nothing for valid messages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Final

Step = str | int | None
"""Name of a member, number of an item; None before the name has come."""

_MOST_STEPS: Final = 256
"""Values that are nested deeper are passed over. No valid header has them, and their paths take quadratic time."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)
_STEP: Final = re.compile(r"""\.([^.\[\s]+)|\[(\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")


def members(text: bytes) -> Iterator[tuple[tuple[Step, ...], int]]:
    """Yield the path and the offset of each value of a JSON text, as far as it can be read and is not too deep."""
    steps: list[Step] = []
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in {b"]", b"}"}:
            del steps[-1:]
        elif word == b",":
            steps[-1:] = [step + 1 if isinstance(step, int) else None for step in steps[-1:]]
        elif word.startswith(b'"') and steps and steps[-1] is None:
            steps[-1] = _name(word)
        elif word != b":":
            if len(steps) <= _MOST_STEPS:
                yield tuple(steps), token.start()
            if word in {b"{", b"["}:
                steps.append(None if word == b"{" else 0)


def locate(text: bytes, path: str, *, is_last: bool = False) -> int | None:
    """Return where a member stands; if it is missing, where the value begins that should have it.

    Args:
        text: of the header.
        path: as errors have it, `$.inputs[0].shape`.
        is_last: whether the last member of this path is meant, and not the first.
    """
    wanted = _steps(path)
    best, place = -1, None
    for steps, offset in members(text):
        depth = len(steps)
        if steps == wanted[:depth] and (depth > best or (is_last and depth == best)):
            best, place = depth, offset
            if depth == len(wanted) and not is_last:
                break
    return place


def top_names(text: bytes) -> set[str]:
    """Return the names of the members of the root, as far as the text goes."""
    return {steps[0] for steps, _ in members(text) if len(steps) == 1 and isinstance(steps[0], str)}


def _steps(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    position = 1
    while (found := _STEP.match(path, position)) is not None:
        name, number, quoted = found.groups()
        steps.append(name or (int(number) if number else ast.literal_eval(quoted)))
        position = found.end()
    return tuple(steps)


def _name(word: bytes) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word.decode("utf-8", "replace")
