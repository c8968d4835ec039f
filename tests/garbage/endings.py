"""Endings: each way in which a client can bring a request to its end. Each does it once."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Final
from urllib.parse import quote

from tests.embedding.faults import leave_abruptly
from tests.garbage.models import BATCHED, MODEL_SECONDS, PREDICTING, WINDOWED
from tests.server.tlswire import TlsWire
from tests.server.wire import Wire, head

Address = tuple[str, int]


class TlsAddress(Address):
    """The address of a server with TLS."""


Ending = Callable[[Address], None]

NBYTES: Final = 4 << 20
WRITE_SECONDS: Final = 0.2
"""The servers' `write_timeout`."""

_HALF: Final = NBYTES // 2
_LENGTH: Final = "Inference-Header-Content-Length"


@cache
def _body(datatype: str = "UINT8", last: bytes = b"\0", shape: tuple[int, ...] = (NBYTES,)) -> tuple[bytes, bytes]:
    """Return the JSON header, and a tensor with this last part."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": NBYTES}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return text, bytes(NBYTES - len(last)) + last


@cache
def _request(model: str, datatype: str = "UINT8", last: bytes = b"\0", shape: tuple[int, ...] = (NBYTES,)) -> bytes:
    text, tensor = _body(datatype, last, shape)
    return _post(model, text + tensor, f"{_LENGTH}: {len(text)}")


def _row(model: str) -> bytes:
    return _request(f"batched, {model}", shape=(1, NBYTES))


def _post(model: str, body: bytes, *fields: str, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return head(f"/v2/models/{quote(model)}/infer", f"Content-Length: {length}", *fields) + body


def _connect(address: Address) -> Wire:
    return TlsWire(address) if isinstance(address, TlsAddress) else Wire(address)


def _send(wire: Wire, data: bytes) -> None:
    with suppress(OSError):  # refused before the end
        wire.send(data)


def _ask(make: Callable[[], bytes], address: Address) -> None:
    """Send everything, and read the answer, whatever it is; then once more, because its head is known now."""
    for _ in range(2):
        with _connect(address) as wire:
            _send(wire, make())
            with suppress(OSError, ConnectionError):
                wire.response()


def _leave(make: Callable[[], bytes], address: Address, *, after: Callable[[Wire], object] = id) -> None:
    """Send something, wait for something, and reset the connection."""
    with _connect(address) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        _send(wire, make())
        with suppress(OSError):
            after(wire)
        leave_abruptly(wire.sock)


def _pause(wire: Wire) -> None:
    wire.sock.settimeout(0.05)
    wire.sock.recv(1 << 10)


def _half_close(wire: Wire) -> None:
    wire.sock.shutdown(socket.SHUT_WR)
    wire.response()


def _wait(wire: Wire) -> None:
    wire.response()


def _wait_for_end(_: Wire) -> None:
    """Read nothing until the server has given up."""
    time.sleep(2.5 * WRITE_SECONDS)


def _outlast(wire: Wire) -> None:
    """Wait until a thread of a model has ended that does not count, because the model has made it."""
    with suppress(TimeoutError):
        _pause(wire)
    time.sleep(2 * MODEL_SECONDS)


def _close(address: Address) -> None:
    with _connect(address) as wire:
        _send(wire, _request("ok")[:_HALF])


@cache
def _compressed(kind: str) -> bytes:
    text, tensor = _body()
    whole = gzip.compress(text + tensor, 1)
    bodies = {
        "is whole": whole,
        "is cut": whole[:-20],
        "has a wrong sum": whole[:-8] + bytes(8),
        "is damaged": whole[:-100] + b"\xff" * 100,
        "has bytes behind": whole + b"x",
        "is a bomb": zlib.compress(text + tensor, 9, 31)[:-30] + gzip.compress(bytes(8 * NBYTES), 9),
    }
    return _post("ok", bodies[kind], "Content-Encoding: gzip", f"{_LENGTH}: {len(text)}")


@cache
def _chunked(end: bytes, *, cut: int = 0) -> bytes:
    text, tensor = _body()
    whole = text + tensor[: NBYTES - cut]
    target = head("/v2/models/ok/infer", "Transfer-Encoding: chunked", f"{_LENGTH}: {len(text)}")
    return target + b"%x\r\n" % len(whole) + whole + end


@cache
def _json(element: str, end: str = "]}]}", *, has_field: bool = False) -> bytes:
    count = NBYTES // 4
    values = "1," * (count - 1) + element
    body = f'{{"inputs":[{{"name":"x","datatype":"INT32","shape":[{count}],"data":[{values}{end}'.encode()
    return _post("ok", body, *([f"{_LENGTH}: {len(body)}"] * has_field))


def _crowd(address: Address) -> None:
    """Have some requests hold all memory, until another one is refused."""
    wires = [_connect(address) for _ in range(6)]
    for wire in wires:
        _send(wire, _request("ok")[:_HALF])
    with _connect(address) as wire:
        _send(wire, _request("ok")[:_HALF])
        with suppress(OSError):
            wire.response()
    for wire in wires:
        wire.sock.close()


def _pipeline(address: Address) -> None:
    with _connect(address) as wire:
        _send(wire, _request("ok") + _request("fails") + _request("ok") + _request("ok", "BOOL", b"\2"))
        with suppress(OSError):
            for _ in range(4):
                wire.response()


def _too_large() -> bytes:
    text = _body()[0].replace(str(NBYTES).encode(), str(NBYTES * 1000).encode())
    return _post("ok", text + bytes(_HALF), f"{_LENGTH}: {len(text)}", length=len(text) + NBYTES * 1000)


ENDINGS: Final[dict[str, Ending]] = {
    **{f"model {name}": partial(_ask, partial(_request, name)) for name in PREDICTING},
    **{f"model {name}": partial(_ask, partial(_request, name)) for name in WINDOWED},
    "model inline, ok": partial(_ask, partial(_request, "inline, ok")),
    "model inline, fails": partial(_ask, partial(_request, "inline, fails")),
    **{f"model batched, {name}": partial(_ask, partial(_row, name)) for name in BATCHED},
    "wrong names of outputs": partial(_ask, partial(_request, "declared")),
    "raw": partial(_ask, lambda: _post("raw", _body()[1], f"{_LENGTH}: 0")),
    "wrong BOOL": partial(_ask, partial(_request, "ok", "BOOL", b"\2")),
    "wrong BOOL inline": partial(_ask, partial(_request, "inline, ok", "BOOL", b"\2")),
    "wrong BOOL windows": partial(_ask, partial(_request, "windows", "BOOL", b"\2")),
    "wrong BOOL windows async": partial(_ask, partial(_request, "windows, async", "BOOL", b"\2")),
    "wrong BOOL windows echoed": partial(_ask, partial(_request, "windows, echoed", "BOOL", b"\2")),
    "wrong BYTES": partial(_ask, partial(_request, "ok", "BYTES", b"\1\0\0\0", (NBYTES // 4,))),
    "too few BYTES": partial(_ask, partial(_request, "ok", "BYTES", b"\0\0\0\0", (NBYTES // 4 + 1,))),
    "BYTES": partial(_ask, partial(_request, "ok", "BYTES", b"\0\0\0\0", (NBYTES // 4,))),
    "no such model": partial(_ask, partial(_request, "nobody")),
    "too large": partial(_ask, _too_large),
    "no memory": _crowd,
    "pipelined": _pipeline,
    "chunks": partial(_ask, partial(_chunked, b"\r\n0\r\n\r\n")),
    "chunks that are damaged": partial(_ask, partial(_chunked, b"xx0\r\n\r\n")),
    "chunks that are too few": partial(_ask, partial(_chunked, b"\r\n0\r\n\r\n", cut=100)),
    "chunks that are too many": partial(_ask, partial(_chunked, b"\r\n4\r\nabcd\r\n0\r\n\r\n")),
    **{
        f"gzip that {kind}": partial(_ask, partial(_compressed, kind))
        for kind in ("is whole", "is cut", "has a wrong sum", "is damaged", "has bytes behind", "is a bomb")
    },
    "JSON": partial(_ask, partial(_json, "1")),
    "JSON with a wrong value": partial(_ask, partial(_json, "1.5")),
    "JSON with a large value": partial(_ask, partial(_json, "4294967296")),
    "JSON that is damaged": partial(_ask, partial(_json, "1", "]}}")),
    "JSON that is damaged, with its length": partial(_ask, partial(_json, "1", "]}}", has_field=True)),
    "JSON that is damaged early": partial(_ask, partial(_json, "x" + "1," * 10 + "1")),
    "left in the body": partial(_leave, lambda: _request("ok")[:_HALF], after=_pause),
    "closed in the body": _close,
    "left in JSON": partial(_leave, lambda: _json("1")[:_HALF], after=_pause),
    "left in gzip": partial(_leave, lambda: _compressed("is whole")[:-50], after=_pause),
    "ended in the body": partial(_leave, lambda: _request("ok")[:_HALF], after=_half_close),
    "stopped in the body": partial(_leave, lambda: _request("ok")[:_HALF], after=_wait),
    "stopped in JSON": partial(_leave, lambda: _json("1")[:_HALF], after=_wait),
    **{
        f"{end} in {model}": partial(_leave, partial(lambda model: _request(model)[:_HALF], model), after=after)
        for model in ("windows", "windows, async", "windows, echoed", "windows, is too late")
        for end, after in {"left": _pause, "ended": _half_close, "stopped": _wait}.items()
    },
    **{
        f"left while the model {model}": partial(_leave, partial(_request, model), after=_outlast)
        for model in (
            "is late",
            "is too late",
            "fails too late",
            "async, is late",
            "async, is too late",
            "async, is too late in a thread",
            "async, fails too late in a thread",
            "async, fails while cancelled",
        )
    },
    **{
        f"left while the model batched, {model}": partial(_leave, partial(_row, model), after=_outlast)
        for model in ("is late", "is too late", "async, is late", "async, is too late")
    },
    **{
        f"left in the answer of {model}": partial(_leave, partial(_request, model), after=_pause)
        for model in (
            "ok",
            "inline, ok",
            "rows",
            "async rows",
            "rows fail",
            "rows stall",
            "rows stall and fail",
            "windows, echoed",
        )
    },
    **{
        f"reads no answer of {model}": partial(_leave, partial(_request, model), after=_wait_for_end)
        for model in ("ok", "inline, ok", "rows", "async rows", "windows, echoed")
    },
}
