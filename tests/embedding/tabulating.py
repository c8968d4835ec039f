"""Tabulating: write `differences.md` anew from what the servers do now.

python -m tests.embedding.tabulating
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Final

from tests.embedding.cases import groups
from tests.embedding.conformance import TABLE, compare
from tests.embedding.servers import HALF_CLOSED, SERVERS, embedded

_APPS: Final = "tests.embedding.apps:"


def main() -> None:
    """Ask all servers, and replace the table in the file."""
    logging.disable(logging.CRITICAL)
    columns: dict[str, dict[str, str]] = {}
    for name, (command, kind) in SERVERS.items():
        with tempfile.TemporaryDirectory() as folder:
            app = f"{_APPS}chosen_{kind}"
            with embedded(command, app, Path(folder, "log")) as embedding:
                columns[name] = compare(embedding, half_closes=name in HALF_CLOSED)
    text = TABLE.read_text(encoding="utf-8")
    start = text.index("| case")
    lines = [["case", *columns], ["---"] * (len(columns) + 1)]
    for case in sorted(case.name for cases in groups() for case in cases):
        letters = [column.get(case, "") for column in columns.values()]
        if any(letters):
            lines.append([case.replace("|", "&#124;"), *letters])
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    TABLE.write_text(text[:start] + table, encoding="utf-8")


if __name__ == "__main__":
    main()
