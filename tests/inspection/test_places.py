"""Places in the text of a header: those of a parser, for valid text; the nearest, for text that is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamcodec.inspection.places import locate, members, top_names

TEXT = b'{"inputs": [{"name": "x\\"]", "shape": [1, -2], "parameters": {"odd key.": 5}}], "id": null, "inputs": 7}'


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", b"{"),
        ("$.inputs[0].name", b'"x\\"]"'),
        ("$.inputs[0].shape[1]", b"-2"),
        ("$.inputs[0].parameters['odd key.']", b"5}"),
        ("$.id", b"null"),
        ("$.inputs[0].datatype", b'{"name"'),
        ("$.inputs[1].name", b"[{"),
        ("$.inputs[0].name (a member's name)", b'"x\\"]"'),
    ],
)
def test_paths(path: str, found: bytes) -> None:
    place = locate(TEXT, path)
    assert place is not None
    assert TEXT[place:].startswith(found)


def test_the_last_of_two() -> None:
    place = locate(TEXT, "$.inputs", is_last=True)
    assert place is not None
    assert TEXT[place:] == b"7}"


def test_top_names() -> None:
    assert top_names(TEXT) == {"inputs", "id"}
    assert top_names(TEXT[:4]) == set()


@pytest.mark.parametrize("text", [b"", b"[[[", b"]]}}", b'{"a', b'{"a":', b"\xff{,,:", b'{"\xff": 1}', b"{{{:}}}"])
def test_any_text(text: bytes) -> None:
    list(members(text))
    locate(text, "$.a[0]")


def _walk(value: Any, path: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - any JSON value
    yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _walk(member, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))


def test_every_path_of_a_document() -> None:
    document = {"a": [[1, []], {}, {"b": {"c\n": [None, "x"]}}], "d": "", "e": {"f": [[]]}}
    for separators in ((",", ":"), (" , ", " : ")):
        text = json.dumps(document, separators=separators).encode()
        assert [path for path, _ in members(text)] == list(_walk(document))
