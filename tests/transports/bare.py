"""Bare: what Windows' Python does not have is taken away, and then a server and both clients do a round trip.

    python -m tests.transports.bare                    # in this process
    python -m tests.transports.bare serve --port 0     # the command line

It has to run before anything else is imported, so nothing is at the top but what Python needs in any case.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
from functools import partial
from typing import Any


class _Missing:
    """A method that a class does not have, although its base has it."""

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - never
        raise AttributeError


def take_away() -> None:
    """Remove the names of this system that not every system has."""
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX, socket.SOCK_STREAM)  # Windows has its own way
    for module, names in (
        (select, ("poll", "epoll", "devpoll", "kqueue")),
        (select, [name for name in vars(select) if name.startswith("POLL")]),
        (socket, ("AF_UNIX", "SO_REUSEPORT", "SO_PEERCRED")),
        (
            os,
            ("fork", "posix_fallocate", "readv", "pread", "pwrite", "pipe2", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"),
        ),
        (signal, ("SIGALRM", "SIGHUP", "SIGCHLD", "setitimer", "pause")),
    ):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in ("sendmsg", "recvmsg_into"):
        setattr(socket.socket, name, _Missing())
    for name in ("fcntl", "termios", "resource", "uvloop"):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    asyncio.SelectorEventLoop.add_signal_handler = _no_signals  # type: ignore[assignment]  # as of Windows
    assert not hasattr(socket.socket, "sendmsg")


def _no_signals(*_: object) -> None:
    raise NotImplementedError


def main() -> None:
    """Send and receive what takes many calls, and then what is refused."""
    import anyio  # noqa: PLC0415 - only now
    import numpy as np  # noqa: PLC0415

    from streamcodec import LocalProtocolError  # noqa: PLC0415
    from streamcodec.client import AsyncClient, Client  # noqa: PLC0415
    from streamcodec.server import open_unix_listener, run_workers  # noqa: PLC0415
    from streamcodec.service import Service, demo_models  # noqa: PLC0415
    from tests.server.programs import server_here  # noqa: PLC0415

    inputs = {"many": np.arange(1 << 20), **{str(index): np.arange(index) for index in range(100)}}

    async def infer(url: str) -> Any:  # noqa: ANN401 - an InferResult
        async with AsyncClient(url) as client:
            return await client.infer("identity", inputs)

    with server_here(demo_models()) as (_, (host, port)):
        url = f"http://{host}:{port}"
        with Client(url) as client:
            results = [client.infer("identity", inputs), client.infer("identity", inputs), anyio.run(infer, url)]
    for result in results:
        for name, values in inputs.items():
            assert np.array_equal(result[name], values), name
    for refused in (
        lambda: run_workers(lambda: Service(demo_models()), 2),
        lambda: open_unix_listener("x.sock"),
    ):
        try:
            refused()
        except LocalProtocolError as error:
            print(error)  # noqa: T201 - a program
        else:
            raise AssertionError(refused)
    print("everything works")  # noqa: T201


if __name__ == "__main__":
    take_away()
    if len(sys.argv) > 1:
        from streamcodec.cli import program

        program()
    main()
