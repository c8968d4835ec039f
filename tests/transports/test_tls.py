"""TLS below the drivers: the same as a plain socket, whatever records are; and its end is not to be forged."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from streamcodec import (
    Decoder,
    EndOfMessage,
    LocalProtocolError,
    RemoteProtocolError,
    RequestHeader,
    Tensor,
    TensorReceived,
    encode_request,
    request_decoder,
)
from streamcodec.transports import aio, sync
from streamcodec.transports.duplex import AsyncDuplex, Duplex
from streamcodec.transports.sockets.vectors import SendQueue
from streamcodec.transports.tls.sockets import TlsSocket, client_context, has_pending
from tests.transports.certificates import AUTHORITY, client_side, server_side, tls_pair, wrapped
from tests.transports.messages import BODY, Array, check, decoder
from tests.transports.test_aio import Run, run

__all__ = ["run"]  # a fixture

Pair = tuple[TlsSocket, TlsSocket]
RECORD = 16 << 10


@pytest.fixture
def pair() -> Iterator[Pair]:
    client, server = tls_pair()
    yield client, server
    client.close()
    server.close()


def _send(sock: TlsSocket, data: bytes, piece: int = 1 << 20) -> None:
    """Send from a thread, in records of at most so many bytes."""
    sock._socket.settimeout(60)  # noqa: SLF001 - the test's own end
    with suppress(ConnectionError):
        sync.send(sock, (memoryview(data)[start : start + piece] for start in range(0, len(data), piece)))


def _sending(sock: TlsSocket, data: bytes, piece: int = 1 << 20) -> threading.Thread:
    thread = threading.Thread(target=_send, args=(sock, data, piece))
    thread.start()
    return thread


def _collect(next_event: Callable[[], object]) -> dict[str, Array]:
    arrays = {}
    while not isinstance(event := next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    return arrays


@pytest.mark.parametrize("piece", [1 << 20, RECORD, 997])
def test_records_of_any_size_are_read_by_both_drivers(run: Run, piece: int) -> None:
    for is_asynchronous in (False, True):
        client, server = tls_pair()
        thread = _sending(server, BODY, piece)

        async def main(client: TlsSocket = client) -> None:
            duplex: AsyncDuplex[object] = AsyncDuplex(client, decoder(), [b"a question"], read_timeout=60)
            arrays = {}
            async with duplex.sending():
                while not isinstance(event := await duplex.next_event(), EndOfMessage):
                    if isinstance(event, TensorReceived):
                        arrays[event.spec.name] = event.array
            check(arrays)

        if is_asynchronous:
            run(main)
        else:
            check(_collect(Duplex(client, decoder(), [b"a question"], read_timeout=60).next_event))
        thread.join()
        client.close()
        server.close()


def _small() -> tuple[bytes, Callable[[], Decoder[RequestHeader]]]:
    """A message of very many small tensors, in less than one record."""
    tensors = [Tensor(name=f"t{number}", array=np.full(3, number, np.int8)) for number in range(60)]
    message = encode_request(tensors)
    body = b"".join(message.buffers)
    assert len(body) < RECORD
    return body, lambda: request_decoder(header_length=message.header_length, body_length=message.body_length)


def test_what_is_decrypted_already_is_not_waited_for(run: Run, pair: Pair) -> None:
    """One record, of which a read takes a part; the peer says nothing more, so whoever waits for it waits for ever."""
    client, server = pair
    body, make = _small()
    server.sendmsg([memoryview(body)])
    decode = make()
    client.recv_into(decode.get_buffer()[:10], 10)
    assert has_pending(client)
    decode.buffer_updated(10)
    arrays = _collect(Duplex(client, decode, [], read_timeout=1).next_event)
    assert len(arrays) == 60

    async def main() -> None:
        server.sendmsg([memoryview(body)])
        decode = make()
        client.recv_into(decode.get_buffer()[:10], 10)
        decode.buffer_updated(10)
        while not isinstance(await aio.next_event(client, decode, timeout=1), EndOfMessage):
            pass

    run(main)


def test_several_buffers_are_filled_by_one_record_and_no_more(pair: Pair) -> None:
    client, server = pair
    server.sendmsg([memoryview(b"abcdefg")])
    server.sendmsg([memoryview(b"hij")])
    blocks = [bytearray(3), bytearray(2), bytearray(9)]
    assert client.recvmsg_into([memoryview(block) for block in blocks]) == (7,)
    assert blocks == [b"abc", b"de", b"fg" + bytes(7)]
    assert client.recvmsg_into([memoryview(block) for block in blocks[:1]]) == (3,)
    with pytest.raises(BlockingIOError):
        client.recvmsg_into([memoryview(block) for block in blocks])
    server.sendmsg([memoryview(b"a longer one than the buffers hold")])
    assert client.recvmsg_into([memoryview(block) for block in blocks]) == (14,)
    assert client.has_pending


@pytest.mark.parametrize(
    ("sizes", "sent"),
    [
        ([3], 3),
        ([3, 4, 5], 12),
        ([3, RECORD, 7], RECORD),
        ([RECORD, 5], RECORD),
        ([100] * 500, RECORD),
        ([9 * RECORD], 4 * RECORD),
        ([3 * RECORD, 7], 3 * RECORD),
    ],
)
def test_short_buffers_are_joined_and_long_ones_go_out_in_pieces(pair: Pair, sizes: list[int], sent: int) -> None:
    client, server = pair
    data = np.random.default_rng(5).bytes(sum(sizes))
    ends = np.cumsum([0, *sizes])
    assert client.sendmsg([memoryview(data)[a:b] for a, b in pairwise(ends)]) == sent
    block = memoryview(bytearray(4 * RECORD))
    first = server.recv_into(block, len(block))
    assert first == min(sent, RECORD)
    assert block[:first] == data[:first]


def _end(server: TlsSocket, how: str) -> None:
    sock = server._socket  # noqa: SLF001 - the test's own end
    if how == "said":
        with suppress(ssl.SSLWantReadError):
            sock.unwrap()
    elif how == "damaged":
        with socket.socket(fileno=sock.detach()) as plain:
            plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    server.close()


ENDS: dict[str, tuple[type[Exception], str]] = {
    "said": (RemoteProtocolError, "end"),
    "cut": (ConnectionResetError, "close_notify"),
    "damaged": (ConnectionAbortedError, "TLS failed: .*(MAC|RECORD_LAYER_FAILURE)"),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_in_the_middle_of_a_message(run: Run, how: str) -> None:
    failure, text = ENDS[how]
    for is_asynchronous in (False, True):
        client, server = tls_pair()
        server.sendmsg([memoryview(BODY)[:5000]])
        _end(server, how)

        async def main(client: TlsSocket = client) -> None:
            source = decoder()
            await aio.next_event(client, source, timeout=1)
            with pytest.raises(failure, match=text):
                await aio.next_event(client, source, timeout=1)

        if is_asynchronous:
            run(main)
        else:
            duplex: Duplex[object] = Duplex(client, decoder(), [], read_timeout=1)
            with pytest.raises(failure, match=text):
                _collect(duplex.next_event)
        client.close()


@pytest.mark.skipif(not hasattr(ssl, "OP_IGNORE_UNEXPECTED_EOF"), reason="this OpenSSL has no such option")
def test_a_cut_is_no_end_whatever_the_context_says() -> None:
    """Python 3.11.3 and older set this option in every context."""
    context = client_side()
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    client, server = TlsSocket.over(left, context, "localhost"), wrapped(right, server_side())
    while client.handshake() | server.handshake():
        pass
    server.close()
    with pytest.raises(ConnectionResetError, match="close_notify"):
        _read_some_times(client)
    client.close()


def _read_some_times(client: TlsSocket) -> None:
    for _ in range(10):
        with suppress(BlockingIOError):  # a message of TLS itself
            client.recv_into(memoryview(bytearray(1)), 1)


def test_between_two_messages_nothing_may_come(pair: Pair) -> None:
    client, server = pair
    assert not sync.input_test(client)()
    server.sendmsg([memoryview(b"x")])
    assert sync.input_test(client)()


@pytest.mark.parametrize("how", ENDS)
def test_an_end_between_two_messages_is_noticed(how: str) -> None:
    client, server = tls_pair()
    _end(server, how)
    assert sync.input_test(client)()
    client.close()


def test_to_send_to_somebody_who_has_gone(pair: Pair) -> None:
    client, server = pair
    server.close()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            client.sendmsg([memoryview(bytes(RECORD))])
    with pytest.raises(ConnectionError):
        client.recv_into(memoryview(bytearray(1)), 1)


def test_a_system_that_takes_no_more_is_waited_for(pair: Pair) -> None:
    """What could not be sent is offered again from the same bytes on, with more behind it or not."""
    client, server = pair
    data = np.random.default_rng(5).bytes(8 << 20)
    queue = SendQueue([data[:1000], data[1000:5000], memoryview(data)[5000:]])
    with suppress(BlockingIOError):
        while queue:
            queue.sent(client.sendmsg(queue.vectors()))
    taken = bytearray()

    def read() -> None:
        server._socket.settimeout(60)  # noqa: SLF001 - the test's own end
        block = memoryview(bytearray(1 << 16))
        while len(taken) < len(data):
            taken.extend(block[: server.recv_into(block, len(block))])

    thread = threading.Thread(target=read)
    thread.start()

    async def main() -> None:
        with anyio.fail_after(60):
            await aio.send(client, queue.rest())

    anyio.run(main)
    thread.join()
    assert taken == data


class _AlwaysTaken(TlsSocket):
    """A client whose peer takes what was sent at once, so that the system always takes more."""

    peer: socket.socket

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        nbytes = super().sendmsg(buffers)
        self.peer.recv(1 << 20)  # one write is 64 KiB at most
        return nbytes


def test_others_have_their_turn_while_a_fast_reader_takes_all(run: Run, pair: Pair) -> None:
    client, server = pair
    taken = _AlwaysTaken(client._socket)  # noqa: SLF001 - the same connection
    taken.peer = server.detach()
    beats = 0

    async def beat(sending: anyio.CancelScope) -> None:
        nonlocal beats
        while beats <= 16:
            beats += 1
            await checkpoint()
        sending.cancel()

    async def main() -> None:
        with anyio.CancelScope() as sending:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(beat, sending)
                await aio.send(taken, [bytes(64 << 20)] * 32)  # takes longer than 16 turns on any machine
                sending.cancel()

    with taken.peer:
        run(main)
    assert beats > 16, f"a turn is over after some milliseconds: {beats}"


def _handshake(context: ssl.SSLContext, *names: str, asked: str = "localhost") -> None:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    client, server = TlsSocket.over(left, context, asked), wrapped(right, server_side(*names))
    try:
        while client.handshake() | server.handshake():
            pass
    finally:
        client.close()
        server.close()


def test_a_handshake_that_cannot_send_waits_for_that() -> None:
    left, right = socket.socketpair()
    left.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            left.send(bytes(1 << 16))
    client = TlsSocket.over(left, client_side(), "localhost")
    assert client.handshake() == select.POLLOUT
    client.close()
    right.close()


def test_who_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(file))
    for path in (file, str(file)):
        _handshake(client_context(verify=path))
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            _handshake(client_context(verify=path), "example.org")
    for verify in (True, tmp_path):
        with pytest.raises(ssl.SSLCertVerificationError, match="local issuer"):
            _handshake(client_context(verify=verify))
    _handshake(client_context(verify=False), "example.org")
    file.write_text("none")
    for path in (tmp_path / "nobody.pem", file):
        with pytest.raises(LocalProtocolError, match=rf"{path.name}.*no certificates can be read there: \S"):
            client_context(verify=path)


def test_a_name_that_cannot_be_asked_for_leaves_no_socket() -> None:
    left, right = socket.socketpair()
    with right, pytest.raises(ValueError, match="server_hostname"):
        TlsSocket.over(left, client_side(), "")
    assert left.fileno() == -1
