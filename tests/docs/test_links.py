"""The links of all texts lead somewhere; `.ci/run` checks those of the built pages, too."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

_DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(_DOCS)
    return importlib.import_module("links")


def test_links_of_the_texts(links: ModuleType) -> None:
    texts = links.texts()
    assert {_DOCS.parent / "README.md", _DOCS / "index.md", _DOCS / "reference" / "errors.md"} <= {*texts}
    assert list(links.broken(texts)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](other.md) [b](other.md#a-heading-with-code) [c](#own) [d](folder) [e](https://x.example/nowhere)", []),
        ("[a](nowhere.md)", ["nowhere.md"]),
        ("[a](other.md#nowhere) [b](#nothing)", ["other.md#nowhere", "#nothing"]),
        ("[a](other.md#a-label) [b](other.md#an-id)", []),
        ("`[a](code.md)`\n\n```text\n[b](fence.md)\n```\n", []),
        ('[a](folder/nowhere.md "title") ![b](nowhere.png)', ["folder/nowhere.md", "nowhere.png"]),
    ],
)
def test_broken_links_of_a_text(text: str, expected: list[str], links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.md").write_text('(a-label)=\n## A *heading*, with `code`\n<b id="an-id">\n')
    page = tmp_path / "page.md"
    page.write_text(f"# Own\n\n{text}\n")
    assert [link for _, link in links.broken([page])] == expected


def test_broken_links_of_a_page(links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("<h1 id='there'>x</h1><a name='here'></a>")
    page = tmp_path / "page.html"
    page.write_text(
        "<a href='other.html#there'></a><a href='other.html#here'><a href='other.html#gone'><img src='x.png'>"
    )
    assert [link for _, link in links.broken([page])] == ["other.html#gone", "x.png"]
