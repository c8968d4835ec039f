"""Quick start: runs the Python of README with the package that is installed, and compares what it prints.

    python tests/distributions/quick_start.py README.md

It needs nothing but the package, so that an environment with the wheel alone shows what somebody new gets.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def run(page: str) -> int:
    """Run the blocks of a page in order; return their number.

    Raises:
        ValueError: a block prints something else than the page says.
    """
    blocks = _BLOCK.findall(page)
    namespace: dict[str, object] = {"__name__": "quick_start"}
    for source, output in blocks:
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, "README", "exec"), namespace)  # noqa: S102 - our own page
        if printed.getvalue() != output:
            raise ValueError(f"README shows {output!r}, and {printed.getvalue()!r} was printed")
    return len(blocks)


if __name__ == "__main__":
    import streamcodec

    place = Path(streamcodec.__file__)
    if Path(sys.prefix) not in place.parents:
        sys.exit(f"{place} is not of this environment")
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        count = run(text)
    if not count:
        sys.exit("README has no Python")
    print(f"ok: {count} blocks of README with Python {sys.version.partition(' ')[0]}")  # noqa: T201 - its work
