"""The depth of a text is what reading it byte by byte gives, wherever its blocks end."""

from __future__ import annotations

import random

import pytest

from streamcodec.engine.json import depth as jsondepth

LIMIT = 3


def too_deep_at(text: bytes) -> int | None:
    """Read byte by byte where more than `LIMIT` brackets are open."""
    depth, in_string, is_escaped = 0, False, False
    for index, byte in enumerate(text):
        character = chr(byte)
        if is_escaped or character == "\\":
            is_escaped = not is_escaped
        elif character == '"':
            in_string = not in_string
        elif not in_string:
            depth += (character in "[{") - (character in "]}")
            if depth > LIMIT:
                return index
    return None


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64])
def test_texts_of_many_blocks(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsondepth, "_BLOCK", block_bytes)
    chosen = random.Random(block_bytes)  # noqa: S311 - to be the same again, not to be secret
    verdicts = set()
    for _ in range(400):
        text = bytes(chosen.choices(b'[{]}"\\ a', [4, 4, 3, 3, 3, 2, 2, 1], k=chosen.randrange(60)))
        expected = too_deep_at(text)
        assert jsondepth.too_deep_at(text, LIMIT) == expected, text
        verdicts.add(expected is None)
    assert verdicts == {True, False}


def test_brackets_far_from_each_other_are_counted_together() -> None:
    text = (b"[" + b" " * jsondepth._BLOCK) * (LIMIT + 1)  # noqa: SLF001 - so that each has a block of its own
    assert jsondepth.too_deep_at(text, LIMIT) == LIMIT * (jsondepth._BLOCK + 1)  # noqa: SLF001
    assert jsondepth.too_deep_at(text, LIMIT + 1) is None
