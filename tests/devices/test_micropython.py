"""The sender for MicroPython: under CPython, under MicroPython with a small heap, and under MicroPython in node.

For the second, `micropython` has to be on the path, as Debian 13's package brings it. For the third,
`npm install @micropython/micropython-webassembly-pyscript` somewhere, and name its folder `node_modules` in
STREAMCODEC_NODE_MODULES. That build has no sockets and takes more heap as it needs it, so node carries the bytes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from streamcodec.server import Server
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here

SENDER = Path(__file__).parents[2] / "docs" / "examples" / "micropython_sender.py"
MODULES = "STREAMCODEC_NODE_MODULES"
X = np.arange(1000, dtype=np.float32)
Address = tuple[str, int]


@pytest.fixture(scope="module")
def sender() -> ModuleType:
    spec = importlib.util.spec_from_file_location("micropython_sender", SENDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with server_here(models()) as (server, address):
        assert isinstance(server, Server)
        yield address


def asked(sender: ModuleType, address: Address, inputs: list[Any], model: str = "identity", most: int = 16384) -> Any:  # noqa: ANN401 - what the sender returns
    with socket.create_connection(address) as sock, sock.makefile("rwb", buffering=0) as stream:
        return sender.infer(_Buffered(stream), "localhost", model, inputs, most)


class _Buffered:
    """Lines of a stream without a buffer, byte by byte, as MicroPython's sockets read them."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - a file
        self.write, self.readinto, self.readline = stream.write, stream.readinto, stream.readline


def test_tensors_are_sent_in_pieces_and_come_back(sender: ModuleType, address: Address) -> None:
    data = X.tobytes()
    inputs = [
        ("x", "FP32", [2, 500], [data[:7], memoryview(data)[7:3000], bytearray(data[3000:])]),
        ("flag", "BOOL", [3], [b"\1\0\1"]),
        ("none", "INT64", [0], []),
    ]
    outputs = asked(sender, address, inputs)
    assert outputs["x"] == ("FP32", [2, 500], bytearray(data))
    assert outputs["flag"] == ("BOOL", [3], bytearray(b"\1\0\1"))
    assert outputs["none"] == ("INT64", [0], bytearray())


def test_refusals_say_why(sender: ModuleType, address: Address) -> None:
    with pytest.raises(sender.ServerError) as caught:
        asked(sender, address, [("x", "FP32", [1], [bytes(4)])], model="no")
    assert caught.value.args[0] == 404
    assert "no" in json.loads(caught.value.args[1])["error"]
    for pieces, words in (([bytes(3)], "lacks 1 bytes"), ([bytes(5)], "more bytes")):
        with pytest.raises(ValueError, match=words):
            asked(sender, address, [("x", "FP32", [1], pieces)])
    with pytest.raises(ValueError, match="more than max_bytes"):
        asked(sender, address, [("x", "FP32", [1000], [X.tobytes()])], most=100)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", OSError),
        (b"\x16\x03\x01\n", OSError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100, ValueError),
        (response(b"{}")[:-1], OSError),
        (response(b"{}", "Inference-Header-Content-Length: 3"), ValueError),
        (response(b'{"outputs": [{"name": "y", "parameters": {"binary_data_size": 9}}]}'), ValueError),
        (response(b'{"outputs": [{"name": "y", "parameters": {"binary_data_size": -9}}]}'), ValueError),
    ],
)
def test_bad_answers_are_errors(sender: ModuleType, answer: bytes, error: type[Exception]) -> None:
    with scripted([answer]) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with pytest.raises(error):
            asked(sender, (host, int(port)), [("x", "FP32", [1], [bytes(4)])])


def test_values_that_come_as_json_are_left_as_they_are(sender: ModuleType) -> None:
    answer = response(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}]}')
    with scripted([answer]) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        outputs = asked(sender, (host, int(port)), [("x", "FP32", [1], [bytes(4)])])
    assert outputs == {"y": ("FP32", [2], [1, 2.5])}


_PROGRAM = """
import binascii, struct, sys, wire
import sender

class Stream:
    def write(self, data):
        wire.write(binascii.hexlify(data).decode())

def values():
    for number in range(COUNT // 100):
        yield struct.pack("<100f", *range(100 * number, 100 * number + 100))

def sends():
    sender.send(Stream(), "localhost", "identity", [("x", "FP32", [COUNT], values())])

def receives():
    with open("answer", "rb") as stream:
        outputs = sender.receive(stream, 100000)
    datatype, shape, data = outputs["x"]
    right = all(struct.unpack_from("<f", data, 4 * n)[0] == n for n in range(COUNT))
    print(sys.implementation.name, datatype, shape, right)
"""


@pytest.mark.skipif(MODULES not in os.environ or shutil.which("node") is None, reason=f"{MODULES}: see this module")
def test_micropython_runs_it(address: Address) -> None:
    command = [
        "node",
        str(Path(__file__).with_name("micropython.mjs")),
        os.environ[MODULES],
        str(SENDER),
        address[0],
        str(address[1]),
    ]
    program = _PROGRAM.replace("COUNT", "4000")
    result = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr[-1000:]
    assert result.stdout.strip() == "micropython FP32 [4000] True"


_ON_SOCKETS = """
import socket, struct, sys
import micropython_sender as sender

host, port, nbytes, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
piece = bytearray(struct.pack("<100f", *[5] * 100))

def values():
    for _ in range(nbytes // len(piece)):
        yield piece

sock = socket.socket()
sock.connect(socket.getaddrinfo(host, port)[0][-1])
outputs = sender.infer(sock, host, "large", [("x", "FP32", [nbytes // 4], values())], most)
print(outputs["y"])
"""


@pytest.mark.skipif(shutil.which("micropython") is None, reason="micropython of Debian 13 is not installed")
def test_what_is_sent_is_a_thousand_times_the_heap(address: Address, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_ON_SOCKETS)
    nbytes, heap = 32_000_000, 32_000
    sizes = [str(nbytes), "1000"]
    command = ["micropython", "-X", f"heapsize={heap}", str(program), address[0], str(address[1]), *sizes]
    settings = os.environ | {"MICROPYPATH": str(SENDER.parent)}
    result = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == repr(("UINT8", [5], bytearray(5)))
