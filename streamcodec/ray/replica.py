"""Replica: the bundled server in each replica, on a port that all replicas of a node share (`SO_REUSEPORT`).

Ray places, starts, watches, replaces and scales replicas. It sees no request: clients connect to the port of a node,
the system gives each connection to one of the replicas there, and bodies go from the socket into the tensors. Several
nodes need a load balancer in front, as any server does.

What Ray has to know, it is told by the methods that it calls on a replica:

- *Ready*: the constructor returns when models are loaded and connections are accepted.
- *Healthy*: `check_health` raises if the server has ended. If the event loop is stuck, Ray's time for it passes.
- *Draining*: Ray calls `__del__` before it ends a replica, and waits. First the system completes no more connections
  of this replica, and those that are complete are accepted: to close its socket would reset them, and the others on the
  port could not have them. Then the server stops, and requests in progress have `shutdown_timeout` to end.
- *Busy*: `record_autoscaling_stats`, for `LoadPolicy`.

A replica that is killed loses the requests that it has, as their clients see at once. Its port closes with it.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from typing import Final

from streamcodec.ray.autoscaling import Meter
from streamcodec.ray.ownership import own, owner_here
from streamcodec.ray.resources import processors, replica_options
from streamcodec.runtime.uploads.uploading import refuse_uploads
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.server.sockets.accepting import shut_out
from streamcodec.service import Observer, Service

_ACCEPTING_SECONDS: Final = 2.0
"""At most, for the event loop to accept all connections that wait at the socket."""

_BEGINNING_SECONDS: Final = 0.2
"""For it to begin those that it has accepted: it begins some of them in each turn."""

_BEGINNING_TURNS: Final = 50
"""Turns of the event loop for the same, if the machine has stalled for all of that time; 1 ms without work."""


class Replica:
    """Serves a service from within a replica of Ray Serve.

    Give it to `serve.deployment`, and run it without a route:

        deployment = serve.deployment(Replica).options(num_replicas=2, ray_actor_options={"memory": 4 << 30})
        serve.run(deployment.bind(make_service, host="0.0.0.0", port=8000), route_prefix=None)
    """

    def __init__(
        self,
        make_service: Callable[[], Service],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        options: ServerOptions | None = None,
        make_observers: Callable[[Service], Iterable[Observer]] = lambda _: (),
        make_ssl_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Begin to serve, on the running event loop.

        Args:
            make_service: makes what is served, with its models.
            host: address to listen at, on every node.
            port: shared by all replicas of a node; any other program of this user can share it too. 0 picks a free one
                for each replica, see `address`.
            options: how to serve. None to take half of the memory that Ray has reserved for this replica for requests,
                and 15 seconds to end them. `graceful_shutdown_timeout_s` of the deployment has to be at least 5
                seconds longer than `shutdown_timeout`.
            make_observers: makes those who are told about all requests.
            make_ssl_context: makes the TLS context of a server, to serve https; see `server_context`. None to serve
                plain HTTP.

        Raises:
            LocalProtocolError: there are no options, and Ray has reserved no memory; or `resumable_uploads` is on; or
                the port belongs to another application on this node.
            OSError: the address cannot be had.
        """
        options = replica_options(options)
        refuse_uploads(options, "the next connection of a client may reach another replica")
        service = make_service()
        context = None if make_ssl_context is None else make_ssl_context()
        self._server = Server(service, options, observer=make_observers(service), ssl_context=context)
        self._meter = Meter(self._server, options.max_memory_bytes, processors=processors())
        with ExitStack() as ownership:
            if port:  # before it listens, else it would get requests of others
                ownership.enter_context(own(host, port, owner_here()))
            self._listener = open_listener(host, port, reuse_port=True)
            self._ownership = ownership.pop_all()
        self._address: tuple[str, int] = self._listener.getsockname()[:2]
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(self._listener))

    async def address(self) -> tuple[str, int]:
        """Return where this replica listens; to be called by a handle."""
        return self._address

    async def check_health(self) -> None:
        """Tell Ray whether this replica serves.

        Raises:
            RuntimeError: it does not, and Ray has to replace it.
        """
        if self._serving.done() and not self._server.is_stopping:
            msg = "the server of this replica has ended"
            raise RuntimeError(msg) from (None if self._serving.cancelled() else self._serving.exception())

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Ray how busy this replica is."""
        return self._meter.measure()

    async def drain(self) -> None:
        """Let no more connect, serve all who have, and wait until their requests have ended.

        That takes `shutdown_timeout` at most, and a moment before it.
        """
        if not self._server.is_stopping:
            shut_out(self._listener)
            await _wait_until_accepted(self._listener)
            self._server.stop()
        await self._serving
        self._ownership.close()

    def __del__(self) -> Coroutine[None, None, None] | None:
        """Return what Ray waits for before it ends this replica; nothing if there is nothing to wait for."""
        serving: asyncio.Task[None] | None = getattr(self, "_serving", None)  # the constructor may have failed
        return None if serving is None or serving.done() else self.drain()


async def _wait_until_accepted(listener: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    end = time.monotonic() + _ACCEPTING_SECONDS
    while waiting.poll(0) and time.monotonic() < end:  # noqa: ASYNC110 - the server accepts them, and tells nobody
        await asyncio.sleep(0)
    await asyncio.sleep(_BEGINNING_SECONDS)
    for _ in range(_BEGINNING_TURNS):
        await asyncio.sleep(0)
