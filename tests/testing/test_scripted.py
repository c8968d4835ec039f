"""Scripted transports do what their scripts say, for every kind of code that uses transports."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    Decoder,
    EndOfMessage,
    ErrorCode,
    RemoteProtocolError,
    RequestHeader,
    Tensor,
    TensorReceived,
    encode_request,
    request_decoder,
)
from streamcodec.http import ClientConnection, Collector, ResponseHead
from streamcodec.testing import ScriptedSocket, ScriptedTransport, bytewise, two_way
from streamcodec.testing.scripted import Incoming
from streamcodec.transports import aio, sync
from streamcodec.transports.protocol import EventProtocol
from streamcodec.transports.source import EventSource

ARRAY = np.arange(12, dtype="<i2").reshape(3, 4)
MESSAGE = encode_request([Tensor(name="x", array=ARRAY), Tensor(name="y", array=ARRAY[0])])
BODY = b"".join(MESSAGE.buffers)


def decoder() -> Decoder[RequestHeader]:
    return request_decoder(header_length=MESSAGE.header_length, body_length=MESSAGE.body_length)


def events(sock: ScriptedSocket) -> list[object]:
    source = decoder()
    received: list[object] = []
    while not source.is_complete or not isinstance(received[-1], EndOfMessage):
        received.append(sync.next_event(sock, source))
    return received


def test_a_socket_brings_what_the_script_says_cut_as_it_says() -> None:
    for chunks in two_way(BODY):
        with ScriptedSocket(chunks) as sock:
            received = events(sock)
            assert sock.is_read
            assert sum(sock.reads) == len(BODY)
        arrays = [event.array for event in received if isinstance(event, TensorReceived)]
        np.testing.assert_array_equal(arrays[0], ARRAY, strict=True)


def test_a_chunk_that_does_not_fit_is_returned_in_several_reads() -> None:
    with ScriptedSocket([b"abcdef"]) as sock:
        first, second = bytearray(2), bytearray(2)
        assert sock.recvmsg_into([first, second])[0] == 4
        assert first + second == b"abcd"
        assert sock.recv_into(first, 1) == 1
        assert first == b"eb"
        assert sock.recv(9) == b"f"
        assert sock.is_read
        assert sock.recv(9) == sock.recv(9) == b""
        assert sock.reads == [4, 1, 1, 0, 0]


def test_the_end_of_the_script_is_the_end_of_input() -> None:
    with ScriptedSocket([BODY[:-1]]) as sock, pytest.raises(RemoteProtocolError) as caught:
        events(sock)
    assert caught.value.code is ErrorCode.TRUNCATED


@pytest.mark.parametrize("failure", [TimeoutError("slow"), ConnectionResetError("gone")])
def test_a_socket_fails_where_the_script_says(failure: OSError) -> None:
    with ScriptedSocket([BODY[:9], failure, BODY[9:]]) as sock:
        with pytest.raises(type(failure), match=str(failure)):
            events(sock)
        assert sock.reads == [9]


def test_writes_are_taken_in_part_recorded_and_broken() -> None:
    with ScriptedSocket([], [3, 0, 5, ConnectionResetError("gone")]) as sock:
        with pytest.raises(ConnectionResetError):
            sync.send(sock, MESSAGE.parts)
        assert sock.sent == BODY[:8]
        assert sock.writes == [3, 0, 5]
        sync.send(sock, [BODY[8:]])
        assert sock.sent == BODY
    with ScriptedSocket([], [1, 2]) as sock:
        sock.sendall(b"abcdef")
        assert (sock.sent, sock.writes) == (b"abcdef", [1, 2, 3])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_serves_anyio_with_false_alarms_on_either_side(backend: str) -> None:
    async def exchange() -> None:
        incoming: list[Incoming] = []
        for byte in bytewise(BODY):
            incoming += [BlockingIOError(), byte]
        source = decoder()
        with ScriptedSocket(incoming, [1, BlockingIOError(), 7]) as sock:
            sock.setblocking(False)
            kinds = [type(await aio.next_event(sock, source, timeout=60)).__name__ for _ in range(4)]
            await aio.send(sock, MESSAGE.parts, timeout=60)
            assert sock.sent == BODY
        assert kinds == ["HeaderReceived", "TensorReceived", "TensorReceived", "EndOfMessage"]

    anyio.run(exchange, backend=backend)


def test_a_socket_leaves_nothing_open() -> None:
    sock = ScriptedSocket([])
    with sock:
        assert sock.fileno() > 0
    assert sock.fileno() == -1  # the other end would be a ResourceWarning, which is an error here


# asyncio


def run_protocol(
    transport: ScriptedTransport,
    act: Callable[[EventProtocol[Any]], Awaitable[None]],
    source: EventSource[Any] | None = None,
) -> None:
    async def main() -> None:
        protocol: EventProtocol[Any] = EventProtocol(source or decoder())
        transport.connect(protocol)
        async with asyncio.timeout(10):
            await act(protocol)
        transport.close()
        await asyncio.sleep(0)

    asyncio.run(main())


async def read_all(protocol: EventProtocol[Any]) -> None:
    received: list[Any] = []
    while not received or not isinstance(received[-1], EndOfMessage):
        received.append(await protocol.next_event())
    np.testing.assert_array_equal(received[1].array, ARRAY, strict=True)
    np.testing.assert_array_equal(received[2].array, ARRAY[0], strict=True)


def test_a_transport_brings_what_the_script_says() -> None:
    for chunks in [[BODY], bytewise(BODY), *[*two_way(BODY)][::9]]:
        incoming: list[Incoming] = [chunks[0], BlockingIOError(), *chunks[1:]]
        run_protocol(ScriptedTransport(incoming), read_all)


def test_a_transport_tells_of_the_end_and_of_a_break() -> None:
    async def truncated(protocol: EventProtocol[Any]) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            await read_all(protocol)
        assert caught.value.code is ErrorCode.TRUNCATED

    async def broken(protocol: EventProtocol[Any]) -> None:
        with pytest.raises(ConnectionResetError, match="gone"):
            await read_all(protocol)
        assert protocol.transport.is_closing()

    run_protocol(ScriptedTransport([BODY[:-1]]), truncated)
    run_protocol(ScriptedTransport([BODY[:-1], ConnectionResetError("gone")]), broken)


@pytest.mark.parametrize("outgoing", [[], [1, 2, 0, 100, 3], [0] * 9, [BlockingIOError()]], ids=str)
def test_what_a_transport_takes_is_recorded_and_the_sender_waits_for_the_rest(outgoing: list[Any]) -> None:
    transport = ScriptedTransport([], outgoing)
    large = np.arange(1 << 16, dtype="<u4")

    async def send(protocol: EventProtocol[Any]) -> None:
        await protocol.send([b"head", large.data.cast("B")])
        assert transport.sent == b"head" + large.tobytes()
        large[:] = 0

    run_protocol(transport, send)


def test_whoever_changes_memory_too_early_is_found_out() -> None:
    transport = ScriptedTransport([], [1])

    async def send(_: EventProtocol[Any]) -> None:
        memory = bytearray(b"abc")
        transport.write(memory)
        assert transport.get_write_buffer_size() == 2
        memory[:] = b"xyz"
        await asyncio.sleep(0)

    run_protocol(transport, send)
    assert transport.sent == b"ayz"


def test_a_break_while_sending_reaches_the_sender() -> None:
    async def send(protocol: EventProtocol[Any]) -> None:
        with pytest.raises(ConnectionResetError, match="gone"):
            await protocol.send([bytes(1000)])

    run_protocol(ScriptedTransport([], [10, ConnectionResetError("gone")]), send)


def test_http_over_a_scripted_transport() -> None:
    text = json.dumps({"live": True}).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text
    connection = ClientConnection()
    transport = ScriptedTransport(bytewise(reply))

    async def ask(protocol: EventProtocol[Any]) -> None:
        await protocol.send(connection.send_request("GET", "/v2/health/live", [("Host", "x")]))
        assert isinstance(await protocol.next_event(), ResponseHead)
        collector = Collector(1000)
        connection.receive_body(collector)
        assert isinstance(await protocol.next_event(), EndOfMessage)
        assert bytes(collector.data) == text

    run_protocol(transport, ask, connection)
    assert transport.sent.startswith(b"GET /v2/health/live HTTP/1.1\r\n")


class Recorder(asyncio.Protocol):
    """A protocol without buffers of its own."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.calls: list[object] = []
        self._keeps_open = keeps_open

    def data_received(self, data: bytes) -> None:
        self.calls.append(data)

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self._keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


def turns(transport: ScriptedTransport, protocol: Recorder, act: Callable[[], None] = lambda: None) -> list[object]:
    async def main() -> None:
        transport.connect(protocol)
        act()
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    return protocol.calls


def test_plain_protocols_get_bytes_and_are_closed_at_the_end() -> None:
    assert turns(ScriptedTransport([b"ab", b"c"]), Recorder()) == [b"ab", b"c", "eof", None]
    assert turns(ScriptedTransport([b"ab"]), Recorder(keeps_open=True)) == [b"ab", "eof"]
    failure = OSError("gone")
    assert turns(ScriptedTransport([b"ab", failure, b"c"]), Recorder()) == [b"ab", failure]


def test_a_fault_of_the_protocol_breaks_its_connection_too() -> None:
    class Faulty(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError(data)

    [failure] = turns(ScriptedTransport([b"ab", b"c"]), Faulty())
    assert isinstance(failure, ValueError)


def test_a_false_alarm_that_the_protocol_raises_breaks_its_connection() -> None:
    class Faulty(Recorder):
        def data_received(self, data: bytes) -> None:
            raise BlockingIOError(data)

        def resume_writing(self) -> None:
            raise BlockingIOError

    def write() -> None:
        transport.set_write_buffer_limits(high=0)
        transport.pause_reading()
        transport.write(b"abc")

    transport = ScriptedTransport([b"ab"])
    assert [type(failure) for failure in turns(transport, Faulty())] == [BlockingIOError]
    transport = ScriptedTransport([], [0])
    assert [type(call) for call in turns(transport, Faulty(), write)] == [str, BlockingIOError]


def test_an_empty_buffer_breaks_the_connection_as_in_asyncio() -> None:
    class Faulty(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.lost = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's
            return bytearray()

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(repr(exc))

    async def main(connect: Callable[[Faulty], Awaitable[object]]) -> str:
        protocol = Faulty()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await connect(protocol)
        return str(await asyncio.wait_for(protocol.lost, 10))

    async def scripted(protocol: Faulty) -> None:
        ScriptedTransport([b"ab"]).connect(protocol)

    async def real(protocol: Faulty) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.send(b"ab")
            await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)

    assert asyncio.run(main(scripted)) == asyncio.run(main(real))


@pytest.mark.parametrize("act", [ScriptedTransport.close, ScriptedTransport.abort])
def test_a_transport_may_be_closed_before_it_is_connected(act: Callable[[ScriptedTransport], None]) -> None:
    transport = ScriptedTransport([b"ab"])
    act(transport)
    assert transport.is_closing()
    assert turns(transport, Recorder()) == [None]


def test_a_transport_that_is_aborted_forgets_what_was_not_taken() -> None:
    def abort() -> None:
        transport.write(b"abc")
        transport.abort()

    transport = ScriptedTransport([b"ab"], [1, 0, 2])
    assert turns(transport, Recorder(), abort) == [None]
    assert transport.sent == b"a"


def test_a_transport_can_be_paused_closed_and_aborted() -> None:
    transport = ScriptedTransport([b"ab"], [0, 0, 2], extra={"peername": "script"})
    assert transport.get_extra_info("peername") == "script"
    assert turns(transport, Recorder(), transport.pause_reading) == []
    assert not transport.is_reading()

    def close() -> None:
        transport.set_write_buffer_limits(high=2)
        assert transport.get_write_buffer_limits() == (0, 2)
        transport.write(b"")
        transport.write(b"abc")
        transport.write_eof()
        transport.close()
        transport.write(b"too late")

    transport = ScriptedTransport([b"ab"], [0, 0, 2])
    assert turns(transport, Recorder(), close) == ["pause", "resume", None]
    assert (transport.sent, transport.has_written_eof, transport.can_write_eof()) == (b"abc", True, True)
    transport = ScriptedTransport([b"ab"])
    transport.set_write_buffer_limits(low=1)
    assert transport.get_write_buffer_limits() == (1, 4)
    assert turns(transport, Recorder(), transport.abort) == [None]
