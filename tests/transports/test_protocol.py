"""Event sources on asyncio transports: plain and uvloop, TCP and TLS."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest
import trustme

from streamcodec import (
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    TensorReceived,
    encode_request,
    request_decoder,
)
from streamcodec.http import ClientConnection, Collector, ConnectionClosed, RequestHead, ResponseHead, ServerConnection
from streamcodec.transports import turns
from streamcodec.transports.protocol import EventProtocol
from streamcodec.transports.source import EventSource
from tests.transports.messages import BODY, Array, check, decoder

LOOPS = {"asyncio": False, "uvloop": True}
Run = Callable[[Callable[[], Awaitable[None]]], None]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=LOOPS if importlib.util.find_spec("uvloop") else ["asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine on each event loop; one that hangs ends after 60 s."""

    async def bounded(main: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(60):
            await main()

    return lambda main: anyio.run(bounded, main, backend_options={"use_uvloop": LOOPS[request.param]})


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


@asynccontextmanager
async def connected(sock: socket.socket, source: EventSource[Any]) -> AsyncIterator[EventProtocol[Any]]:
    protocol = EventProtocol(source)
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    try:
        yield protocol
    finally:
        protocol.transport.abort()
        await asyncio.sleep(0)


async def collect(protocol: EventProtocol[Any]) -> dict[str, Array]:
    arrays = {}
    while not isinstance(event := await protocol.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    return arrays


def test_a_message_into_the_arrays_themselves(run: Run, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        views: list[memoryview] = []
        source: Any = decoder()
        get_buffer = source.get_buffer

        def recording(sizehint: int) -> memoryview:
            views.append(get_buffer(sizehint))
            return views[-1]

        source.get_buffer = recording
        async with connected(right, source) as protocol:
            sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(left, BODY))
            arrays = await collect(protocol)
            await sending
        check(arrays)
        assert any(np.shares_memory(np.frombuffer(view, np.uint8), arrays["values"]) for view in views)

    run(main)


def test_nothing_is_read_while_nobody_waits(run: Run, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        source = decoder()
        async with connected(right, source) as protocol:
            left.send(BODY[:10])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await protocol.next_event()
            left.send(BODY[10:20])
            await asyncio.sleep(0.02)
            assert source.offset == 10
            sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(left, BODY[20:]))
            check(await collect(protocol))  # a wait that is cut short loses nothing
            await sending

    run(main)


def test_a_long_header(run: Run, pair: Pair) -> None:
    left, right = pair
    message = encode_request([Tensor(name="x", array=np.arange(300_000), is_binary=False)])
    body = b"".join(message.buffers)

    async def main() -> None:
        async with connected(right, request_decoder(header_length=None, body_length=len(body))) as protocol:
            sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(left, body))
            assert (await collect(protocol))["x"][-1] == 299_999
            await sending

    run(main)


def test_the_end_of_input_does_not_overtake_an_event(run: Run, pair: Pair) -> None:
    """Over TLS, it may come in one turn with what was before it."""
    message = encode_request([Tensor(name="x", array=np.empty(0))])

    async def main() -> None:
        source = request_decoder(header_length=message.header_length, body_length=message.body_length)
        async with connected(pair[1], source) as protocol:
            protocol.get_buffer(-1)[:] = b"".join(message.buffers)
            protocol.buffer_updated(message.body_length)
            protocol.eof_received()
            events = [type(await protocol.next_event()) for _ in range(3)]
            assert events == [HeaderReceived, TensorReceived, EndOfMessage]

    run(main)


def test_the_end_of_a_connection_within_a_message(run: Run, pair: Pair) -> None:
    left, right = pair
    left.send(BODY[:100])
    left.shutdown(socket.SHUT_WR)

    async def main() -> None:
        async with connected(right, decoder()) as protocol:
            for _ in range(2):
                with pytest.raises(RemoteProtocolError) as caught:
                    await collect(protocol)
                assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, 100)
            await protocol.send([b"an answer"])  # one direction has ended, the other has not
            assert await asyncio.get_running_loop().sock_recv(left, 100) == b"an answer"

    run(main)


def test_a_connection_that_is_lost_ends_all_waiting(run: Run, pair: Pair) -> None:
    async def main() -> None:
        async with connected(pair[1], decoder()) as protocol:
            reading = asyncio.create_task(protocol.next_event())
            sending = asyncio.create_task(protocol.send([bytes(10_000_000)]))
            await asyncio.sleep(0.02)
        for task in (reading, sending, asyncio.create_task(protocol.send([b"x"]))):
            with pytest.raises(ConnectionResetError):
                await task

    run(main)


def test_nothing_is_written_to_a_connection_that_cannot_be_written_to(
    run: Run, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    left, right = pair

    async def main() -> None:
        async with connected(left, decoder()) as protocol:
            right.close()
            with pytest.raises(ConnectionError):
                await protocol.send([bytes(16 << 20)])

    run(main)
    assert caplog.records == []


def _ramps(memory: Array) -> Iterator[Array]:
    """All windows of `RAMPS`, in the same memory."""
    for start in range(0, len(RAMPS), len(memory)):
        memory[:] = RAMPS[start : start + len(memory)]
        yield memory


async def _async_ramps(memory: Array) -> AsyncIterator[Array]:
    for window in _ramps(memory):
        await asyncio.sleep(0)
        yield window


RAMPS = np.arange(1 << 20, dtype="<i4").reshape(64, -1)


@pytest.mark.parametrize("windows", [_ramps, _async_ramps])
def test_windows_in_one_memory_are_sent_one_after_the_other(
    run: Run, pair: Pair, windows: Callable[[Array], Any]
) -> None:
    left, right = pair
    message = encode_request([Tensor(name="x", array=Rows("INT32", RAMPS.shape, windows(np.empty_like(RAMPS[:8]))))])

    async def main() -> None:
        source = request_decoder(header_length=message.header_length, body_length=None)
        async with connected(right, source) as receiving, connected(left, decoder()) as sending:
            task = asyncio.create_task(sending.send(message.parts))
            assert np.array_equal((await collect(receiving))["x"], RAMPS)
            await task

    run(main)


def test_a_row_too_many_leaves_no_whole_message_behind(run: Run, pair: Pair) -> None:
    left, right = pair
    windows = [RAMPS[:2], RAMPS[2:4], RAMPS[:1]]
    message = encode_request([Tensor(name="x", array=Rows("INT32", (4, RAMPS.shape[1]), windows))])

    async def main() -> None:
        source = request_decoder(header_length=message.header_length, body_length=message.body_length)
        async with connected(right, source) as receiving:
            reading = asyncio.create_task(collect(receiving))
            async with connected(left, decoder()) as sending:
                with pytest.raises(LocalProtocolError, match="1 rows where 0"):
                    await sending.send(message.parts)
                sending.transport.close()
            with pytest.raises(RemoteProtocolError) as caught:
                await reading
            assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, message.body_length - 1)

    run(main)


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make TLS contexts for a client and for a server that is called localhost."""
    authority = trustme.CA()
    here, there = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(here)
    authority.issue_cert("localhost").configure_cert(there)
    return here, there


class _Tls:
    """A client's side of TLS whose records are sent when it is told so."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.records = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake_hands(self) -> None:
        while True:
            try:
                self.records.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                self._incoming.write(await asyncio.get_running_loop().sock_recv(self._sock, 1 << 16))
            else:
                return await self.flush()

    async def flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, self._outgoing.read())


def test_the_end_of_tls_does_not_overtake_long_work(run: Run, pair: Pair) -> None:
    left, right = pair
    here, there = _contexts()
    message = encode_request([Tensor(name="x", array=np.arange(300_000), is_binary=False)])
    body = b"".join(message.buffers)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = (body[start : start + 3000] for start in range(0, len(body), 3000))
    request = head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    async def main() -> None:
        source = ServerConnection(paced=True)
        protocol: EventProtocol[Any] = EventProtocol(source)
        accepting = asyncio.create_task(
            asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, right, ssl=there)
        )
        client = _Tls(left, here)
        await client.shake_hands()
        await accepting
        client.records.write(request[:-30_000])
        flushing = asyncio.create_task(client.flush())
        assert isinstance(await protocol.next_event(), RequestHead)
        source.receive_body(request_decoder(header_length=len(body), body_length=None, paced=True))
        reading = asyncio.create_task(collect(protocol))
        while source.incoming.received < len(request) - 30_000:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.001)
        await flushing
        client.records.write(request[-30_000:])
        with pytest.raises(ssl.SSLWantReadError):  # it would wait for the server's good-bye
            client.records.unwrap()
        await client.flush()
        assert (await reading)["x"][-1] == 299_999
        protocol.transport.abort()

    run(main)


async def _echo(protocol: EventProtocol[Any]) -> None:
    """Answer one request with its own body."""
    head = await protocol.next_event()
    assert isinstance(head, RequestHead)
    body = Collector(1 << 30)
    assert isinstance(protocol.source, ServerConnection)
    protocol.source.receive_body(body)
    while not isinstance(await protocol.next_event(), EndOfMessage):
        pass
    await protocol.send(protocol.source.send_response(200, (), [bytes(body.data)]))


async def _ask(protocol: EventProtocol[Any], body: bytes) -> bytes:
    connection = protocol.source
    assert isinstance(connection, ClientConnection)
    fields = [("Host", "x"), ("Content-Length", str(len(body)))]
    await protocol.send(connection.send_request("POST", "/", fields, [body]))
    assert isinstance(await protocol.next_event(), ResponseHead)
    answer = Collector(1 << 30)
    connection.receive_body(answer)
    while not isinstance(await protocol.next_event(), EndOfMessage):
        pass
    return bytes(answer.data)


@pytest.mark.parametrize("has_time", [True, False], ids=["in time", "turns over"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_server_and_client_connections(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool, has_time: bool
) -> None:
    """Where each turn is over, an event comes while the task waits for its turn."""
    left, right = pair
    here, there = _contexts()
    if not has_time:
        monkeypatch.setattr(turns.Turns, "is_over", lambda *_: True)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, client = EventProtocol(ServerConnection()), EventProtocol(ClientConnection())
        accepting = asyncio.create_task(
            loop.connect_accepted_socket(lambda: server, right, ssl=there if is_encrypted else None)
        )
        name = "localhost" if is_encrypted else None
        await loop.create_connection(lambda: client, sock=left, ssl=here if name else None, server_hostname=name)
        await accepting
        for body in (b"", b"x", RAMPS.tobytes(), b"y"):
            echoing = asyncio.create_task(_echo(server))
            assert await _ask(client, body) == body
            await echoing
        client.transport.close()
        assert isinstance(await server.next_event(), ConnectionClosed)
        server.transport.close()
        await asyncio.sleep(0.01)  # TLS says good-bye

    run(main)
