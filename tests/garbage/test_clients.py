"""Clients: an answer that fails leaves nothing to the garbage collector when its exception has been dropped."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
import numpy as np
import pytest

from streamcodec import Rows, encode_response
from streamcodec.client import AsyncClient, Client
from streamcodec.client.connections import connecting
from streamcodec.transports import aio
from streamcodec.transports.timelimit import TimeLimit
from tests.garbage.leftovers import Left, left_of, no_collector
from tests.ports import free_port

_NBYTES: Final = 4 << 20
_HALF: Final = _NBYTES // 2
_SECONDS: Final = 0.5
_X: Final = np.zeros(_NBYTES, np.uint8)


def _answer(*fields: str, body: bytes, length: int | None = None, status: str = "200 OK") -> bytes:
    length = len(body) if length is None else length
    return "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {length}", *fields, "", "")).encode() + body


def _encoded(datatype: str = "UINT8") -> tuple[str, bytes]:
    message = encode_response({"y": _X.astype(bool) if datatype == "BOOL" else _X}, model_name="m")
    return f"Inference-Header-Content-Length: {message.header_length}", b"".join(message.buffers)


def _answers() -> dict[str, bytes]:
    field, body = _encoded()
    of_bool, wrong = _encoded("BOOL")
    squeezed = gzip.compress(body, 1)
    chunks = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{field}\r\n\r\n{len(body):x}\r\n".encode() + body
    text = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[500000],"data":[' + b"1," * 500_000
    return {
        "whole": _answer(field, body=body),
        "cut": _answer(field, body=body[:-10], length=len(body)),
        "wrong": _answer(of_bool, body=wrong[:-1] + b"\2"),
        "too long": _answer(field, body=body + b"x"),
        "chunks": chunks + b"\r\n0\r\n\r\n",
        "damaged chunks": chunks + b"x",
        "gzip": _answer(field, "Content-Encoding: gzip", body=squeezed),
        "cut gzip": _answer(field, "Content-Encoding: gzip", body=squeezed[:-20]),
        "wrong gzip": _answer(field, "Content-Encoding: gzip", body=squeezed[:-8] + bytes(8)),
        "wrong JSON": _answer(body=text + b"x]}]}"),
        "refusal": _answer(body=b'{"error":"no"}', status="400 Bad Request"),
        "stalling": _answer(field, body=body[:_HALF], length=len(body)),
        "long refusal": _answer(body=b'{"error":"' + bytes(_HALF), status="500 Internal Server Error"),
    }


@contextmanager
def _server(answer: bytes, *, stalls: bool = False, reads: bool = True) -> Iterator[str]:
    """Answer each request, or its first bytes, in this way; close the connection when the client has."""
    take = _drain if reads else _drain_late

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, suppress(OSError):
                    sock.settimeout(60)
                    sock.recv(1 << 16, socket.MSG_PEEK)
                    reading = threading.Thread(target=take, args=(sock,))
                    reading.start()
                    sock.sendall(answer)
                    if not stalls:
                        sock.shutdown(socket.SHUT_WR)
                    reading.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _drain(sock: socket.socket) -> None:
    with suppress(OSError):
        while sock.recv(1 << 16):
            pass


def _drain_late(sock: socket.socket) -> None:
    """Read nothing while the client reads its answer, so it is still sending then."""
    time.sleep(0.1)
    _drain(sock)


def _infer(url: str, shape: str) -> None:
    with Client(url, timeout=_SECONDS) as client, suppress(Exception):
        if shape == "stream":
            with client.stream("m", {"x": _X.copy()}) as events:
                for _ in events:
                    pass
        else:
            client.infer("m", {"x": _rows() if shape == "rows" else _X.copy()}, **_options(shape))


async def _infer_async(url: str, shape: str) -> None:
    async with AsyncClient(url, timeout=_SECONDS) as client:
        with suppress(Exception):
            if shape == "stream":
                async with client.stream("m", {"x": _X.copy()}) as events:
                    async for _ in events:
                        pass
            else:
                await client.infer("m", {"x": _rows() if shape == "rows" else _X.copy()}, **_options(shape))


def _options(shape: str) -> dict[str, Any]:
    return {"out": {"y": np.zeros_like(_X)}} if shape == "out" else {}


def _rows() -> Rows:
    """Return an input that fails after its first rows."""

    def windows() -> Iterator[np.ndarray[Any, Any]]:
        yield _X.reshape(4, -1)[:1].copy()
        raise ValueError

    return Rows("UINT8", (4, _X.size // 4), windows())


def _left(kind: str, shape: str, url: str) -> Left:
    def do() -> None:
        if kind == "sync":
            _infer(url, shape)
        else:
            anyio.run(_infer_async, url, shape, backend=kind)

    with no_collector():
        return left_of(do, 3)


def test_nothing_of_an_answer_that_is_cut_waits_for_the_garbage_collector() -> None:
    with _server(_answers()["cut"]) as url:
        left = _left("sync", "plain", url)
        assert left.is_little, left


@pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("shape", ["plain", "rows"])
@pytest.mark.parametrize("name", ["whole", "too long", "refusal"])
def test_nothing_of_a_request_that_is_still_sent_waits_for_the_garbage_collector(
    name: str, shape: str, kind: str
) -> None:
    with _server(_answers()[name], reads=False) as url:
        left = _left(kind, shape, url)
        assert left.is_little, left


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("shape", ["plain", "out", "stream", "rows"])
def test_nothing_of_any_answer_waits_for_the_garbage_collector(kind: str, shape: str) -> None:
    for name, answer in _answers().items():
        with _server(answer, stalls=name == "stalling") as url:
            left = _left(kind, shape, url)
            assert left.is_little, (name, left)


@pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])
def test_nothing_of_those_who_reach_no_server_waits_for_the_garbage_collector(kind: str) -> None:
    arrays: list[weakref.ref[object]] = []
    port = free_port()

    def ask() -> None:
        arrays.append(weakref.ref(x := np.zeros(10)))
        with suppress(OSError):
            connecting.connect("127.0.0.1", port, timeout=x.size, limit=TimeLimit(None))

    async def ask_async() -> None:
        arrays.append(weakref.ref(x := np.zeros(10)))
        with suppress(OSError):
            await aio.connect("127.0.0.1", port, timeout=x.size)

    with no_collector():
        ask() if kind == "sync" else anyio.run(ask_async, backend=kind)
        assert arrays[0]() is None
