"""Ownership: the replicas of one deployment share a port of a node, and no other application's.

The system shares a port among all sockets of a user that ask for it (`SO_REUSEPORT`). So two applications at one port
would each get a part of the other's requests, and nobody would notice. Each replica holds a lock on a file that says
whose the port is, for as long as its process lives. Whoever finds it locked by others has to be one of them.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

from streamcodec.engine.errors import LocalProtocolError

with suppress(ImportError):  # of Windows, which shares no ports
    import fcntl

_LONGEST: Final = 1 << 10


def own(host: str, port: int, owner: str) -> IO[bytes]:
    """Take a port of this node for an application, or join it there.

    Args:
        host: address at which is listened; a port may belong to others at another one.
        port: not 0.
        owner: the application and deployment, as Ray calls them.

    Returns:
        A file; the port is given back when it is closed.

    Raises:
        LocalProtocolError: the port belongs to another application.
        OSError: the file cannot be had.
    """
    name = f"streamcodec-ray-{os.getuid()}-{host.replace(':', '_').replace('/', '_')}-{port}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(Path(tempfile.gettempdir(), name), flags, 0o600), "r+b", buffering=0)
    with ExitStack() as closing:
        closing.enter_context(file)
        found = _owner_of(file, owner)
        if found == owner:
            closing.pop_all()
            return file
    raise LocalProtocolError(
        f"port {port} of {host} on this node belongs to {found!r}, and would be shared with {owner!r}: each would get "
        "requests of the other; give one of them another port"
    )


def _owner_of(file: IO[bytes], owner: str) -> str:
    """Lock a file together with others, and return whose it is; it is the new owner's if nobody has it."""
    with suppress(BlockingIOError):  # others have it
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate()
        file.write(owner.encode())
    fcntl.flock(file, fcntl.LOCK_SH)
    file.seek(0)
    return file.read(_LONGEST).decode(errors="replace")


def owner_here() -> str:
    """Return the application and deployment of this replica, as Ray calls them; empty outside of Ray."""
    try:
        from ray import serve  # noqa: PLC0415 - everything else works without it, as its tests do

        context = serve.get_replica_context()
    except (ImportError, RuntimeError):
        return ""
    return f"{context.app_name}#{context.deployment}"
