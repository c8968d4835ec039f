"""The drawing of the rooms shows what the code is: every room with its line, and every use of one by another."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

import streamcodec

_DOCS = Path(__file__).parents[2] / "docs"
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(_DOCS)
    return importlib.import_module("rooms")


@pytest.mark.slow
def test_every_room_has_a_line(rooms: ModuleType) -> None:
    root = Path(streamcodec.__file__).parent
    folders = {path.parent.name for path in root.glob("*/__init__.py")} - {"formats"}
    formats = {f"formats/{path.stem}" for path in (root / "formats").glob("[a-z]*")}
    assert set(rooms.rooms()) == folders | formats | {"streamcodec"}
    assert all(20 < len(line) < 120 and line.endswith(".") for line in rooms.rooms().values())


@pytest.mark.slow
def test_every_use_is_drawn_from_top_to_bottom(rooms: ModuleType) -> None:
    figure = ET.fromstring(rooms.figure())  # noqa: S314 - our own
    names = [text.text for text in figure.iter(f"{_SVG}text") if text.get("font-weight")]
    lines = [text.text for text in figure.iter(f"{_SVG}text") if not text.get("font-weight")]
    assert dict(zip(names, lines, strict=True)) == rooms.rooms()
    assert names[-1] == "engine"
    arrows = {tuple((title.text or "").split(" uses ")) for title in figure.iterfind(f"{_SVG}path/{_SVG}title")}
    assert arrows == {(room, other) for room, used in rooms.reduced(rooms.uses()).items() for other in used}
    assert all(names.index(room) < names.index(other) for room, other in arrows)
    for path in figure.iterfind(f"{_SVG}path"):
        begin, bend = (int(number) for number in re.findall(r"[MC](\d+|-\d+) ", path.get("d") or ""))
        assert (begin + 3 * bend) / 4 > 0, "an arrow leaves the drawing at its left edge"


def test_what_several_arrows_imply_is_left_out(rooms: ModuleType) -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert rooms.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_the_page_of_the_engine_shows_it_and_has_every_room_in_its_table(rooms: ModuleType) -> None:
    page = (_DOCS / "engine.md").read_text()
    assert "\n{{ rooms }}\n" in page
    named = set(re.findall(r"`streamcodec(?:\.(\w+))?[\w.]*`", page.partition("## Layers")[2].partition("\n## ")[0]))
    assert {name or "streamcodec" for name in named} >= {room.partition("/")[0] for room in rooms.rooms()}
