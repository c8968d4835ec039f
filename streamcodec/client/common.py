"""Common: the parts that both clients share, which is everything except waiting."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from time import monotonic
from typing import Final

from streamcodec.client.calls import Calls
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.pool import ConnectionPool
from streamcodec.client.connections.timeouts import Timeout, Times, check_seconds
from streamcodec.client.exchange import ClientExchange, Compression
from streamcodec.client.fields import Auth, Headers, RequestFields
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.client.repeating.retries import Retries
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.formats.v2.fields import checked_media_type
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import Socket, client_context

_times: Final = constructor(Times)


class Common:
    """The configuration and state of a client; the arguments are those of `Client`.

    Attributes:
        address: of the server.
        context: for TLS; None for a server without TLS.
        calls: makes exchanges with the server.
        pool: the connections.
        compresses: whether to compress requests.
        memory_lane: the memory to share with the server.
        retries: how calls are made again, unless they say otherwise.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: Auth | None = None,
        verify: bool | str | Path = True,
        ssl_context: ssl.SSLContext | None,
        timeout: float | Timeout | None,
        total_timeout: float | None,
        max_connections: int,
        keepalive_expiry: float | None,
        limits: Limits,
        request_compression: str | None = None,
        response_compression: str | None = None,
        media_type: str | None = None,
        memory_lane: MemoryLane | None = None,
        retries: int = 0,
    ) -> None:
        """Prepare; nothing is sent yet.

        Raises:
            LocalProtocolError: an argument is invalid, or no certificates can be read.
        """
        self.address: Address = Address.of(url)
        if ssl_context is not None and verify is not True:
            raise LocalProtocolError("verify and ssl_context both say who is trusted; give one of them")
        if self.address.is_secure and ssl_context is None:
            ssl_context = client_context(verify=verify)
        self.context: ssl.SSLContext | None = ssl_context if self.address.is_secure else None
        compression = Compression(request=request_compression, response=response_compression)
        fields = RequestFields(self.address, headers, auth)
        checked = None if media_type is None else checked_media_type(media_type)
        self.calls: Calls = Calls(self.address, fields, limits, compression, checked)
        self.pool: ConnectionPool = ConnectionPool(
            max_connections, math.inf if keepalive_expiry is None else keepalive_expiry
        )
        self.compresses: bool = request_compression is not None
        if memory_lane is not None and self.address.socket_path is None:
            raise LocalProtocolError("memory_lane: only the server of a Unix socket shares memory: http+unix://PATH")
        self.memory_lane: MemoryLane | None = memory_lane
        self.retries: Retries = Retries(most=retries)
        self._timeout = Timeout.of(timeout)
        check_seconds("total_timeout", total_timeout)
        self._total_timeout = total_timeout
        self._limits = limits

    def times(self, timeout: float | Timeout | None, total_timeout: float | None) -> Times:
        """Return the times of a call that begins now; None stands for the client's own values.

        Raises:
            LocalProtocolError: a timeout is no number, or not greater than 0.
        """
        if total_timeout is not None:
            check_seconds("total_timeout", total_timeout)
        return _times(
            timeout=self._timeout if timeout is None else Timeout.of(timeout),
            limit=TimeLimit(self._total_timeout if total_timeout is None else total_timeout),
        )

    def take_kept(self) -> Connection | None:
        """Return a connection that was used before and is still alive, if there is one."""
        return self.pool.take(monotonic())

    def connection(self, sock: Socket, *, is_paced: bool) -> Connection:
        """Return a new connection; say whether others wait while it computes."""
        connection = Connection(sock, self._limits, is_paced=is_paced)
        self.pool.add(connection)
        return connection

    def give_back(self, connection: Connection, exchange: ClientExchange, *, is_sent: bool) -> None:
        """Take a connection back after an exchange, which may have ended early."""
        self.pool.give_back(connection, monotonic(), is_good=exchange.is_answered and is_sent)

    def drop(self, connection: Connection) -> None:
        """Close a connection that cannot be used."""
        self.pool.give_back(connection, monotonic(), is_good=False)

    def no_place(self, times: Times) -> TimeoutError:
        """Return the error for a call that has waited too long for a free connection."""
        if times.limit.is_over:
            return times.limit.exceeded()
        return TimeoutError(
            f"no connection was free for {times.timeout.pool} seconds: all {self.pool.max_connections} of "
            "max_connections are in use; a stream() holds one until its `with` block is left"
        )
