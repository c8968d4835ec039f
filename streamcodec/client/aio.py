"""AsyncClient: a client of V2 servers for anyio programs, on asyncio (uvloop included) and trio.

It differs from `Client` in two points. It waits without blocking. It processes an answer in short pieces, in turns with
the other tasks of its event loop, whatever a server sends.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

from streamcodec.client.awaiting import Awaiting
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import SECONDS, Timeout
from streamcodec.client.fields import Auth, Headers
from streamcodec.client.methods import Methods
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits


class AsyncClient(Methods):
    """An asynchronous client. Any number of tasks of one event loop may use it at once.

    Example::

        async with AsyncClient("http://127.0.0.1:8000") as client:
            result = await client.infer("identity", {"x": np.ones((2, 3), np.float32)})
            print(result["x"])
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: Auth | None = None,
        verify: bool | str | Path = True,
        ssl_context: ssl.SSLContext | None = None,
        timeout: float | Timeout | None = SECONDS,
        total_timeout: float | None = 3600.0,
        max_connections: int = 10,
        keepalive_expiry: float | None = 60.0,
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
        media_type: str | None = None,
        retries: int = 0,
    ) -> None:
        """Prepare to talk to a server; the arguments are those of `Client`. A function as `auth` should be quick."""
        common = Common(
            url,
            headers=headers,
            auth=auth,
            verify=verify,
            ssl_context=ssl_context,
            timeout=timeout,
            total_timeout=total_timeout,
            max_connections=max_connections,
            keepalive_expiry=keepalive_expiry,
            limits=limits,
            request_compression=request_compression,
            response_compression=response_compression,
            media_type=media_type,
            retries=retries,
        )
        super().__init__(common, Awaiting(common.context))

    async def __aenter__(self) -> Self:
        """Use the client in an `async with` statement."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()
