"""Quick start: runs the Python of README with the package that is installed, and compares what it prints.

    python tests/distributions/quick_start.py README.md

It needs nothing but the package, so that an environment with the wheel alone shows what somebody new gets.
"""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_PROGRAM: Final = '__name__ == "__main__"'
_PORT: Final = "8000"
"""What README says; here it is a free one."""

_START_SECONDS: Final = 60.0


def run(page: str) -> int:
    """Run the blocks of a page in order; return their number. A block that is a server serves those behind it.

    Raises:
        ValueError: a block prints something else than the page says.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    blocks = _BLOCK.findall(page.replace(_PORT, str(port)))
    namespace: dict[str, object] = {"__name__": "quick_start"}
    with ExitStack() as servers:
        for source, output in blocks:
            if _PROGRAM in source:
                servers.enter_context(_serving(source, port))
                continue
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(source, "README", "exec"), namespace)  # noqa: S102 - our own page
            if printed.getvalue() != output:
                raise ValueError(f"README shows {output!r}, and {printed.getvalue()!r} was printed")
    return len(blocks)


@contextmanager
def _serving(source: str, port: int) -> Iterator[None]:
    """Run a program that serves on a port."""
    program = Path("server.py")
    program.write_text(source, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(program)]) as process:
        try:
            _await_port(port)
            yield
        finally:
            process.terminate()


def _await_port(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    msg = "the server of README does not start"
    raise TimeoutError(msg)


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
