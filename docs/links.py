"""Links: checks every link of the texts within the project, and asks nothing of the network.

    python docs/links.py [BUILT]

In each Markdown file of the checkout, a relative link leads to a file or folder; an anchor behind it is a heading or a
target of that file. With BUILT, the folder that `sphinx-build` made, the same holds for the pages that readers see.
The status is 1 if a link leads nowhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).resolve().parents[1]
_NOT_OURS: Final = {".git", ".venv", "_build", "node_modules", "mutants"}
_TEMPLATE: Final = ROOT / "tests" / "interop" / "page.md"
"""A page of `docs` is made of it, so its links start there."""
_FENCE: Final = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING: Final = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_TARGET: Final = re.compile(r"^\(([\w-]+)\)=$|\bid=\"([\w-]+)\"", re.MULTILINE)


class Page(HTMLParser):
    """The anchors of an HTML page, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the anchor and the link of an element."""
        for name, value in attrs:
            if value is not None and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)
            elif value is not None and name in {"href", "src"}:
                self.links.append(value)


@cache
def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a Markdown file or an HTML page."""
    if path.suffix == ".html":
        return page_of(path).anchors
    text = _FENCE.sub("", path.read_text("utf-8"))
    slugs = {_slug(heading) for heading in _HEADING.findall(text)}
    return slugs | {name for names in _TARGET.findall(text) for name in names if name}


@cache
def page_of(path: Path) -> Page:
    """Read an HTML page once."""
    return Page(path.read_text("utf-8"))


def links_of(path: Path) -> list[str]:
    """Return the links of a Markdown file or an HTML page."""
    if path.suffix == ".html":
        return page_of(path).links
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", path.read_text("utf-8"))))


def broken(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each link that leads nowhere, with the file that has it."""
    for path in paths:
        for link in links_of(path):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and not _has(target, unquote(parts.fragment))):
                yield path, link


def texts() -> list[Path]:
    """Return the Markdown files of the checkout."""
    found = [path for path in sorted(ROOT.rglob("*.md")) if not _NOT_OURS & {*path.relative_to(ROOT).parts}]
    return [path for path in found if path != _TEMPLATE]


def _has(target: Path, anchor: str) -> bool:
    return target.suffix not in {".html", ".md"} or anchor in anchors_of(target)


def _slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


if __name__ == "__main__":
    pages = [*texts(), *(path for folder in sys.argv[1:] for path in sorted(Path(folder).resolve().rglob("*.html")))]
    found = [f"{path}: {link}" for path, link in broken(pages)]
    print(*found or [f"ok: the links of {len(pages)} files"], sep="\n")  # noqa: T201 - printing is its work
    sys.exit(bool(found))
