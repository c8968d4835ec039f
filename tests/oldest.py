"""Oldest: the requirements of `pyproject.toml`, each at the oldest release that it allows.

    python tests/oldest.py bf16 speed testing test

prints what pip is to install for these extras and the package itself, one requirement a line. What has no lower bound
is left as it is.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?P<extras>\[[^]]*\])?(?:>=(?P<oldest>[\w.]+))?[^;]*(?P<marker>;.*)?"
)


def oldest(extras: Iterable[str]) -> Iterator[str]:
    """Yield the requirements of the package and of these extras."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *(each for extra in extras for each in optional[extra])]:
        found = _REQUIREMENT.fullmatch(requirement)
        if found is None:
            raise ValueError(f"{requirement!r} is no requirement of the form NAME>=VERSION")
        if found["name"] != project["name"]:
            version = f"=={found['oldest']}" if found["oldest"] else ""
            yield f"{found['name']}{found['extras'] or ''}{version}{found['marker'] or ''}"


if __name__ == "__main__":
    print(*oldest(sys.argv[1:]), sep="\n")  # noqa: T201 - printing is its work
