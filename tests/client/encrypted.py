"""A front that ends TLS before a server, as deployments have one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from anyio.from_thread import start_blocking_portal

from tests.transports.certificates import server_side


@contextmanager
def encrypted(address: tuple[str, int], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run the front in a thread; yield its URL."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*address)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context or server_side())

    with start_blocking_portal("asyncio") as portal:
        front = portal.call(start)
        try:
            yield f"https://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        finally:
            portal.call(front.close)
