"""Running: a server as a program, until a signal.

At the first signal the server stops; a second one ends everything.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from typing import Final

import anyio

from streamcodec.server.options import ServerOptions
from streamcodec.server.serving import Server
from streamcodec.service import Service

_HAS_UVLOOP: Final = find_spec("uvloop") is not None
"""Where it is installed it is used, since it is quicker."""


def run(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    options: ServerOptions | None = None,
    on_listening: Callable[[str, int], None] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        service: what is served.
        host: address to listen at.
        port: port to listen at; 0 picks a free one.
        options: how.
        on_listening: called with address and port once connections are accepted and signals are minded.

    Returns:
        How many calls of models go on, in threads that keep the interpreter from ending: those that had not returned
        after `shutdown_timeout`, or at a second signal.

    Raises:
        OSError: the address cannot be had.
    """
    server = Server(service, options)
    with open_listener(host, port) as listener:

        def announce() -> None:
            if on_listening is not None:
                on_listening(host, listener.getsockname()[1])

        anyio.run(_run_until_signal, server, listener, announce, backend_options={"use_uvloop": _HAS_UVLOOP})
    return server.unfinished_calls


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket.

    Args:
        host: an address or a name; one with a colon is IPv6.
        port: 0 picks a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


async def _run_until_signal(server: Server, listener: socket.socket, announce: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, signals, server, tasks.cancel_scope)
            announce()  # not before the signals are ours, or one that comes at once would kill the process
            await server.serve(listener)
            tasks.cancel_scope.cancel()


async def _watch(signals: AsyncIterator[signal.Signals], server: Server, everything: anyio.CancelScope) -> None:
    async for _ in signals:
        if server.is_stopping:
            everything.cancel()
            return
        server.stop()
