"""Renewal: a server reads its models and its certificate anew while it serves, in a thread.

What is read is the matter of who runs the server. If it cannot be read, everything goes on as before. Renewals that are
asked for while one is on its way are one more renewal together.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final

import anyio
from anyio import to_thread

from streamcodec.engine.errors import ProtocolError
from streamcodec.server.processes.servicemanager import ServiceManager

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
