"""The reference has a place for every public name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_PAGES = {
    "streamcodec": ("codec.md", "errors.md", "limits.md"),
    "streamcodec.formats.frame": ("frame.md",),
    "streamcodec.http": ("http.md",),
    "streamcodec.service": ("service.md",),
    "streamcodec.client": ("client.md",),
    "streamcodec.testing": ("testing.md",),
}


@pytest.mark.parametrize("name", _PAGES)
def test_public_names(name: str) -> None:
    text = "".join((_REFERENCE / page).read_text() for page in _PAGES[name])
    shown = re.findall(r"^\.\. auto(?:class|exception|function|data):: (\w+)", text, re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert set(shown) == set(importlib.import_module(name).__all__)
