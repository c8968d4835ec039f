"""The drawing of the rooms in the docs, made from the code: `python docs/rooms.py > rooms.svg`.

A room is a folder of the package, or one format. Its line is the first sentence of its docstring. An arrow goes from a
room to each room that it imports; one that others imply is left out.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1] / "streamcodec"
FACE = "streamcodec"
"""The room of what `import streamcodec` gives."""

_ROW, _TOP, _BOX = 34, 12, 22
_LEFT, _NAME, _WIDTH = 130, 150, 1000
_REACH = 150
"""How far an arrow may bend. A curve goes three quarters of its way to the point that bends it; the edge is at 0."""

_START = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif"
 font-size="12" fill="currentColor"><title>The rooms of streamcodec, and which of them use which</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>"""


def room_of(parts: tuple[str, ...]) -> str:
    """Return the room of a module, given by the parts of its name behind `streamcodec`."""
    if not parts or parts[0] in {"basics", "codec"}:
        return FACE
    return "/".join(parts[:2]) if parts[0] == "formats" else parts[0]


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Return the room and the source of every module that belongs to one; to parse them all takes a second."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts not in {("__main__",), ("formats",)}:
            found.append((room_of(parts), ast.parse(path.read_text(encoding="utf-8"))))
    return found


def rooms() -> dict[str, str]:
    """Return the first sentence of every room's docstring."""
    lines: dict[str, str] = {}
    for room, tree in modules():  # of a folder, its `__init__` comes first
        lines.setdefault(room, (ast.get_docstring(tree) or "").split("\n\n", maxsplit=1)[0].replace("\n", " "))
    return lines


def uses() -> dict[str, set[str]]:
    """Return what every room imports of the others."""
    found: dict[str, set[str]] = {room: set() for room in rooms()}
    for room, tree in modules():
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = [tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == FACE]
            found[room] |= {room_of(parts) for parts in ours} - {room}
    return found


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each arrow that a way of several arrows implies."""
    reached: dict[str, set[str]] = {}
    for room in TopologicalSorter(graph).static_order():  # raises CycleError
        reached[room] = graph[room].union(*(reached[other] for other in graph[room]))
    return {room: used.difference(*(reached[other] for other in used)) for room, used in graph.items()}


def figure() -> str:
    """Draw the rooms, each above those that it uses."""
    lines, graph = rooms(), reduced(uses())
    order = list(TopologicalSorter(graph).static_order())[::-1]
    middles = {room: _TOP + _ROW * index + _BOX // 2 for index, room in enumerate(order)}
    boxes = [_box(room, lines[room], middles[room]) for room in order]
    arrows = [_arrow(room, other, middles) for room in order for other in sorted(graph[room], key=order.index)]
    return "\n".join([_START.format(width=_WIDTH, height=_TOP + _ROW * len(order)), *boxes, *arrows, "</svg>"])


def _box(room: str, line: str, middle: int) -> str:
    return (
        f'<rect x="{_LEFT}" y="{middle - _BOX // 2}" width="{_NAME}" height="{_BOX}" rx="4" fill="none" '
        f'stroke="currentColor"/><text x="{_LEFT + 8}" y="{middle + 4}" font-weight="bold">{escape(room)}</text>'
        f'<text x="{_LEFT + _NAME + 10}" y="{middle + 4}">{escape(line)}</text>'
    )


def _arrow(room: str, other: str, middles: dict[str, int]) -> str:
    start, end = middles[room] + 4, middles[other] - 4
    bend = _LEFT - 16 - min((end - start) // 3, _REACH)
    return (
        f'<path d="M{_LEFT} {start}C{bend} {start} {bend} {end} {_LEFT} {end}" fill="none" stroke="currentColor" '
        f'opacity=".55" marker-end="url(#tip)"><title>{escape(room)} uses {escape(other)}</title></path>'
    )


if __name__ == "__main__":
    sys.stdout.write(figure())
