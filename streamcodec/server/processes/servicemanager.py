"""Service manager: what systemd, or who speaks like it, gives to a server, and is told by it.

It may give a listening socket, which then outlives each process that serves (sd_listen_fds(3)). It is told when the
server is ready, reads its files anew, and stops, and again and again that it works (sd_notify(3)). Without such a
manager nothing is given, and nobody is told.

A server reads its models and its certificate anew while it serves, in a thread. What is read is the matter of who runs
the server. If it cannot be read, everything goes on as before. Renewals that are asked for while one is on its way are
one more renewal together.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import anyio
from anyio import to_thread

from streamcodec.engine.errors import LocalProtocolError, ProtocolError

_FIRST_DESCRIPTOR: Final = 3
"""Of the sockets that are given: SD_LISTEN_FDS_START."""

_BEATS_IN_TIMEOUT: Final = 2
"""How often the manager is told within its time limit, as sd_watchdog_enabled(3) recommends."""


class ServiceManager:
    """Who has started this process, and wants to know how it is.

    Attributes:
        beat_seconds: how often it is told that the server works; infinite if it does not ask.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read the environment: `NOTIFY_SOCKET`, and `WATCHDOG_USEC` if `WATCHDOG_PID` is this process or missing."""
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = path if path.startswith("/") else path.replace("@", "\0", 1)
        self.beat_seconds = math.inf
        usec = environment.get("WATCHDOG_USEC", "")
        if path and usec.isdecimal() and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            self.beat_seconds = int(usec) / 1e6 / _BEATS_IN_TIMEOUT or math.inf

    def is_ready(self) -> None:
        """Say that the server serves: at first, or again with what it has read anew."""
        self._tell("READY=1")

    def is_reloading(self) -> None:
        """Say that files are read anew; `is_ready` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def is_stopping(self) -> None:
        """Say that the server has begun to end."""
        self._tell("STOPPING=1")

    def works(self) -> None:
        """Say that the server works; due every `beat_seconds`."""
        self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(state.encode(), self._address)


def given_listener(environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket that the service manager has given to this process; None if there is none.

    Raises:
        LocalProtocolError: there are several, or it is no listening stream socket.
    """
    count = environment.get("LISTEN_FDS", "0")
    if environment.get("LISTEN_PID") != str(os.getpid()) or count == "0":
        return None
    if count != "1":
        raise LocalProtocolError(f"the service manager gives {count} sockets, and a server listens at one (LISTEN_FDS)")
    try:
        listener = socket.socket(fileno=_FIRST_DESCRIPTOR)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError as error:
        raise LocalProtocolError(
            f"what the service manager gives is no socket (LISTEN_FDS): {error.strerror}"
        ) from None
    if not is_listening or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise LocalProtocolError("the socket that the service manager gives is no listening stream socket (LISTEN_FDS)")
    listener.set_inheritable(False)
    return listener


logger: Final = logging.getLogger(__name__)

Reload = Callable[[], ssl.SSLContext | None]
"""Reads anew what a service offers, and returns the TLS context for new connections; None to keep it."""


class Renewal:
    """The renewals of one server."""

    def __init__(self, renew: Callable[[ssl.SSLContext], None], read: Reload, manager: ServiceManager) -> None:
        """Prepare.

        Args:
            renew: uses a certificate for new connections.
            read: called in a thread.
            manager: is told.
        """
        self._renew = renew
        self._read = read
        self._manager = manager
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Renew as soon as possible."""
        self._asked.set()

    async def run(self) -> None:
        """Renew whenever this is asked for, until this is cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            self._manager.is_reloading()
            try:
                context = await to_thread.run_sync(self._read, abandon_on_cancel=True)
            except ProtocolError as error:
                logger.error("nothing is renewed, and the server goes on as before (SIGHUP): %s", error)  # noqa: TRY400 - it says all
            except Exception:  # whatever a model does when it is loaded; the server goes on
                logger.exception("nothing is renewed (SIGHUP); the server goes on as before")
            else:
                if context is not None:
                    self._renew(context)
                logger.info("models and certificates have been read anew (SIGHUP)")
            self._manager.is_ready()
