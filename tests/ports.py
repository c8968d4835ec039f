"""Ports: where a server of another program can listen."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_LEAST, _MOST = 10_000, 32_000
"""The system gives higher ports to connections, so one of those could be taken before the server begins."""


def free_port() -> int:
    """Return a port at which nobody listens, and neither at the next two: Triton has three."""
    while True:
        port = random.randrange(_LEAST, _MOST)  # noqa: S311 - nobody has to be unable to guess it
        with suppress(OSError), ExitStack() as stack:
            for number in range(port, port + 3):
                stack.enter_context(socket.create_server(("127.0.0.1", number)))
            return port
