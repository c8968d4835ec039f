"""Guards in this process, for the tests."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.limits import Limits
from streamcodec.guard import GUARD_LIMITS, Guard
from streamcodec.server import ServerOptions, open_listener
from streamcodec.service.observing import Observer
from streamcodec.service.replies import Reply

_SECONDS = 60
PATIENT = Timeout(connect=60, read=60, write=60, pool=60)
"""For a machine that is busy with other things: a test of a time limit sets its own."""


@contextmanager
def guarding(
    upstream: str,
    *,
    options: ServerOptions | None = None,
    limits: Limits = GUARD_LIMITS,
    timeout: Timeout = PATIENT,
    backend: str = "asyncio",
    ssl_context: ssl.SSLContext | None = None,
    upstream_ssl_context: ssl.SSLContext | None = None,
    listener: socket.socket | None = None,
    observer: Observer | Iterable[Observer] = (),
    pages: Mapping[str, Callable[[], Reply]] | None = None,
    allowed: Iterable[str] = (),
    allowed_hosts: Iterable[str] = (),
    upstream_ca: Path | None = None,
    null_is_nan: bool = False,
) -> Iterator[tuple[str, int]]:
    """Run a guard in a thread of this process; stop it, and wait for it, when the block ends.

    The backend is anyio's, or "uvloop".
    """
    listener = listener or open_listener("127.0.0.1", 0)
    address = listener.getsockname()
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with start_blocking_portal("asyncio" if settings else backend, settings) as portal:
        make = partial(Guard, upstream, options=options, limits=limits, timeout=timeout, observer=observer, pages=pages)
        guard = portal.call(
            partial(
                make,
                allowed=allowed,
                allowed_hosts=allowed_hosts,
                upstream_ca=upstream_ca,
                null_is_nan=null_is_nan,
                ssl_context=ssl_context,
                upstream_ssl_context=upstream_ssl_context,
            )
        )
        task = portal.start_task_soon(guard.serve, listener)
        try:
            yield address
        finally:
            portal.call(guard.stop)
            task.result(_SECONDS)


def nobody() -> str:
    """The URL of a port at which nobody listens, so that a request that is passed on is answered 502."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
