"""Contents: what is in the wheel and in the source distribution, held against what should be.

    python tests/distributions/contents.py FILE...

Each file is a wheel or a source distribution. The status is 1 if something is missing or too much. The wheel has the
package and its metadata, and no tests. The source distribution has what somebody needs who packages the library
elsewhere and runs its tests.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_METADATA: Final = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")

_WHEEL: Final = (
    r"streamcodec/(\w+/)*\w+\.py",
    r"streamcodec/cli/pyinstaller/hook-[\w.]+\.py",
    r"streamcodec/py\.typed",
    rf"streamcodec-[\d.]+\.dist-info/({'|'.join(map(re.escape, _METADATA))})",
)
"""Kinds of files of the wheel."""

_SOURCE: Final = (
    r"(LICENSE|PKG-INFO|README\.md|\.gitignore|pyproject\.toml)",
    r"(CHANGELOG|CODE_OF_CONDUCT|CONTRIBUTING|SECURITY)\.md",
    r"CITATION\.cff",
    r"\.ci/run",
    r"\.(clusterfuzzlite|github)/([\w-]+/)*[\w-]+(\.(sh|ya?ml|md))?",
    r"streamcodec/(\w+/)*\w+\.py",
    r"streamcodec/cli/pyinstaller/hook-[\w.]+\.py",
    r"streamcodec/py\.typed",
    r"docs/(\w+/)*[\w@-]+\.(cfg|css|json|md|png|py|service|yml)",
    r"fuzz/(\w+/)*[\w.-]+\.(dict|md|py|sh)",
    r"fuzz/corpus/\w+/[^/]+",
    r"tests/.+\.(bin|c|go|html|json|lua|md|mjs|py|txt)",
    r"tests/(interop|platforms)/run",
)
"""Kinds of files of the source distribution."""

_NEEDED: Final = {
    "wheel": (
        "streamcodec/__init__.py",
        "streamcodec/py.typed",
        "streamcodec/cli/pyinstaller/hook-streamcodec.cli.commands.py",
        *(f"*.dist-info/{name}" for name in _METADATA),
    ),
    "source": (
        *("LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "CITATION.cff", "CHANGELOG.md", ".ci/run"),
        *("streamcodec/py.typed", "docs/conf.py", "tests/conftest.py", "fuzz/run.py"),
    ),
}
"""Files of each that must be there; `*` is any text."""


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel or a source distribution."""
    is_wheel = path.suffix == ".whl"
    names = _names_of_wheel(path) if is_wheel else _names_of_source(path)
    yield from (
        f"{path.name}: {name} does not belong there" for name in _strange(names, _WHEEL if is_wheel else _SOURCE)
    )
    for needed in _NEEDED["wheel" if is_wheel else "source"]:
        if not any(Path(name).match(needed) for name in names):
            yield f"{path.name}: {needed} is missing"


def _names_of_wheel(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _names_of_source(path: Path) -> list[str]:
    """Return the names without the folder that all of them are in."""
    with tarfile.open(path) as archive:
        return [member.name.partition("/")[2] for member in archive if member.isfile()]


def _strange(names: Iterable[str], kinds: Iterable[str]) -> list[str]:
    known = re.compile("|".join(f"(?:{kind})" for kind in kinds))
    return [name for name in names if not known.fullmatch(name)]


if __name__ == "__main__":
    found = [line for argument in sys.argv[1:] for line in complaints(Path(argument))]
    print(*found or [f"ok: {', '.join(Path(argument).name for argument in sys.argv[1:])}"], sep="\n")  # noqa: T201 - its work
    sys.exit(bool(found))
