"""Bad requests: the right status, a JSON error, never a 500, never a hang, and the next request is fine."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from streamcodec.transports.sync import input_test
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Answer, Wire, chunked, head, infer_request, post

Address = tuple[str, int]
TARGET = "/v2/models/identity/infer"
IHCL = "Inference-Header-Content-Length"


def _input(**members: object) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]} | members
    return json.dumps({"inputs": [{key: value for key, value in entry.items() if value is not None}]}).encode()


def _json(text: bytes) -> bytes:
    return post(text, model="identity")


def _binary(size: int, body: bytes, *, shape: object = None, datatype: str = "FP32") -> bytes:
    text = _input(data=None, shape=shape or [1], datatype=datatype, parameters={"binary_data_size": size})
    return post(text + body, f"{IHCL}: {len(text)}")


GOOD = _input()

BAD: dict[str, tuple[int, bytes]] = {
    # HTTP
    "not HTTP": (400, b"hello\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x01" * 200),
    "bare line feeds": (400, b"GET /v2 HTTP/1.1\nHost: x\n\n"),
    "no host": (400, b"GET /v2 HTTP/1.1\r\n\r\n"),
    "a blank in a field's name": (400, head("/v2", "a b: c", method="GET")),
    "a head of 40 KB": (431, head("/v2", "x: " + "a" * 40_000, method="GET")),
    "a target of 40 KB": (414, head("/" + "a" * 40_000, method="GET")),
    "Content-Length and Transfer-Encoding": (
        400,
        head(TARGET, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ),
    "two lengths": (400, head(TARGET, "Content-Length: 5", "Content-Length: 6")),
    "a negative length": (400, head(TARGET, "Content-Length: -5")),
    "a length that is text": (400, head(TARGET, "Content-Length: five")),
    "an unknown transfer coding": (501, head(TARGET, "Transfer-Encoding: gzip")),
    "a chunk without size": (400, head(TARGET, "Transfer-Encoding: chunked") + b"zz\r\n"),
    "a chunk without end": (400, head(TARGET, "Transfer-Encoding: chunked") + b"2\r\n{}XX0\r\n\r\n"),
    "an unknown expectation": (417, head(TARGET, "Expect: miracles", "Content-Length: 2") + b"{}"),
    "an unknown encoding": (415, post(GOOD, "Content-Encoding: br")),
    "bad gzip": (400, post(GOOD, "Content-Encoding: gzip")),
    "no body": (400, head(TARGET)),
    # The service
    "unknown route": (404, head("/v2/nothing", method="GET")),
    "unknown model": (404, post(GOOD, model="nobody")),
    "unknown version": (404, post(GOOD, model="identity/versions/9")),
    "wrong method": (405, head("/v2", method="DELETE")),
    "wrong method for inference": (405, head(TARGET, method="GET")),
    "not percent-encoded UTF-8": (400, head("/v2/models/%ff", method="GET")),
    # Framing of the message
    "header length with sign": (400, post(GOOD, f"{IHCL}: +9")),
    "header length in hex": (400, post(GOOD, f"{IHCL}: 0x9")),
    "header length repeated": (400, post(GOOD, f"{IHCL}: 9", f"{IHCL}: 9")),
    "header length empty": (400, post(GOOD, f"{IHCL}:")),
    "header longer than the body": (400, post(GOOD, f"{IHCL}: {len(GOOD) + 1}")),
    "header of 19 digits": (400, post(GOOD, f"{IHCL}: {'9' * 19}")),
    "raw without metadata": (400, post(b"1234", f"{IHCL}: 0")),
    "trailing bytes": (400, _binary(4, bytes(5))),
    "missing bytes": (400, _binary(4, bytes(3))),
    "size in the wrong place": (400, _json(_input(data=None, parameters={"binary_data_size": 4}))),
    "more than any tensor may have": (413, _binary(1 << 40, b"", shape=[1 << 38])),
    "trailing bytes, chunked": (
        400,
        head(TARGET, "Transfer-Encoding: chunked", f"{IHCL}: {len(GOOD)}") + chunked(GOOD + b"xyz", [10] * 20),
    ),
    "missing bytes, chunked": (400, head(TARGET, "Transfer-Encoding: chunked") + chunked(GOOD[:-1], [10] * 20)),
    # JSON
    "not JSON": (400, _json(b"{")),
    "an array": (400, _json(b"[]")),
    "UTF-16": (400, _json(GOOD.decode().encode("utf-16"))),
    "a byte order mark": (400, _json(b"\xef\xbb\xbf" + GOOD)),
    "not UTF-8": (400, _json(GOOD.replace(b"x", b"\xff"))),
    "duplicate key": (400, _json(GOOD.replace(b"{", b'{"id":"a","id":"b",', 1))),
    "NaN in the wrong place": (400, _json(GOOD.replace(b"{", b'{"id":NaN,', 1))),
    "as deep as it gets": (400, _json(b"[" * 100_000)),
    "5000 digits": (400, _json(_input(shape=[1]).replace(b"[1]", b"[" + b"1" * 5000 + b"]"))),
    # Members
    "no inputs": (400, _json(b"{}")),
    "name missing": (400, _json(_input(name=None))),
    "name empty": (400, _json(_input(name=""))),
    "names repeated": (400, _json(json.dumps({"inputs": json.loads(GOOD)["inputs"] * 2}).encode())),
    "unknown datatype": (400, _json(_input(datatype="FLOAT"))),
    "lower case": (400, _json(_input(datatype="fp32"))),
    "negative shape": (400, _json(_input(shape=[-1]))),
    "fraction in shape": (400, _json(_input(shape=[1.0]))),
    "true in shape": (400, _json(_input(shape=[True]))),
    "shape that overflows": (413, _json(_input(shape=[1 << 40, 1 << 40]))),
    "rank 65": (413, _json(_input(shape=[1] * 65))),
    "size mismatch": (400, _binary(8, bytes(8))),
    "negative size": (400, _binary(-4, b"")),
    "both sources": (400, _json(_input(parameters={"binary_data_size": 4}))),
    "no source": (400, _json(_input(data=None))),
    "id that is no string": (400, _json(GOOD.replace(b"{", b'{"id":7,', 1))),
    "binary_data_output that is no boolean": (
        400,
        _json(GOOD.replace(b"{", b'{"parameters":{"binary_data_output":1},', 1)),
    ),
    "unknown output": (400, _json(GOOD.replace(b"{", b'{"outputs":[{"name":"y"}],', 1))),
    # Values
    "too many values": (400, _json(_input(data=[1.0, 2.0]))),
    "text for a number": (400, _json(_input(data=["1"]))),
    "1e39": (400, _json(_input(data=[1e39]))),
    "1.5 as INT8": (400, _json(_input(datatype="INT8", data=[1.5]))),
    "256 as UINT8": (400, _json(_input(datatype="UINT8", data=[256]))),
    "FP16 as JSON": (400, _json(_input(datatype="FP16"))),
    "BOOL of 2": (400, _binary(1, b"\2", datatype="BOOL")),
    "BYTES that overrun": (400, _binary(6, b"\7\0\0\0ab", datatype="BYTES")),
    "FP16 answered as JSON": (400, _binary(2, b"\0\0", datatype="FP16")),
    "BYTES answered as JSON": (400, _binary(5, b"\1\0\0\0\xff", datatype="BYTES")),
    # Sizes
    "a header of 65 MB": (413, head(TARGET, f"Content-Length: {1 << 40}", f"{IHCL}: {65 << 20}")),
    "a body of 8 EB": (413, head(TARGET, f"Content-Length: {1 << 63}")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_request(address: Address, case: str) -> None:
    status, request = BAD[case]
    with Wire(address) as wire:
        wire.send(request)
        answer = wire.response()
        assert answer.status == status, answer
        assert 10 < len(answer.error) < 400
        assert "Traceback" not in answer.error
        assert re.search(r"b'|bytearray|<.*object", answer.error) is None, answer.error
        if answer.is_last:
            assert wire.is_closed()
        else:
            assert wire.send(GET_LIVE).response().status == 200


def test_a_model_that_breaks_is_500_and_says_nothing(address: Address) -> None:
    with Wire(address) as wire:
        for model in ("break", "exit"):
            answer = wire.send(infer_request(model)).response()
            assert answer.status == 500
            assert "swordfish" not in answer.error
        assert wire.send(GET_LIVE).response().status == 200


LARGE = 256 << 20
_TEXT = _input(data=None, shape=[LARGE // 4], parameters={"binary_data_size": LARGE})

EARLY: dict[str, tuple[int, bytes, bytes]] = {
    "unknown model": (404, head("/v2/models/nobody/infer", f"Content-Length: {LARGE}"), b""),
    "bad JSON": (400, head(TARGET, f"Content-Length: {LARGE + 9}", f"{IHCL}: 9"), b'{"inputs"'),
    "wrong size": (
        400,
        head(TARGET, f"Content-Length: {LARGE + len(_TEXT) + 1}", f"{IHCL}: {len(_TEXT)}"),
        _TEXT,
    ),
    "unknown dtype": (
        400,
        head(TARGET, f"Content-Length: {LARGE + len(_TEXT)}", f"{IHCL}: {len(_TEXT)}"),
        _TEXT.replace(b"FP32", b"FP31"),
    ),
    "unknown dtype, chunked": (
        400,
        head(TARGET, "Transfer-Encoding: chunked", f"{IHCL}: {len(_TEXT)}"),
        b"%x\r\n" % LARGE + _TEXT.replace(b"FP32", b"FP31"),
    ),
    "not this model's": (
        400,
        head("/v2/models/declared/infer", f"Content-Length: {LARGE + len(_TEXT)}", f"{IHCL}: {len(_TEXT)}"),
        _TEXT,
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_a_wrong_request_of_256_mib_is_refused_early_although_the_client_goes_on(address: Address, case: str) -> None:
    status, first, start = EARLY[case]
    with Wire(address) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        wire.send(first + start)
        sent, answer = _go_on(wire)
    print(f"{case}: {sent >> 10} KiB on their way")  # noqa: T201 - a figure
    assert (answer.status, answer.is_last) == (status, True)
    assert answer.error
    with Wire(address) as wire:
        assert wire.send(infer_request()).response().status == 200


def _go_on(wire: Wire) -> tuple[int, Answer]:
    """Send on and on until the answer is there, and a little longer; return how much was sent before it was."""
    sent, block = 0, bytes(1 << 16)
    with suppress(ConnectionError):
        while not input_test(wire.sock)():
            sent += wire.sock.send(block)
            assert sent < LARGE
        for _ in range(64):
            wire.sock.send(block)
    return sent, wire.response()


class CountingSocket(socket.socket):
    """Counts what is read from it, until something is sent."""

    nbytes = 0
    read_before_answer = 0

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401 - typeshed's own
        taken = super().recv_into(buffer, nbytes, flags)
        self.nbytes += taken
        return taken

    def send(self, data: Any, flags: int = 0, /) -> int:  # noqa: ANN401 - typeshed's own
        self.read_before_answer = self.nbytes
        return super().send(data, flags)

    def sendmsg(self, buffers: Any, *options: Any) -> int:  # noqa: ANN401 - typeshed's own
        self.read_before_answer = self.nbytes
        return super().sendmsg(buffers, *options)


class CountingListener(socket.socket):
    """Accepts connections as `CountingSocket`, and keeps them."""

    accepted: list[CountingSocket]

    def accept(self) -> tuple[socket.socket, Any]:
        number, address = self._accept()  # type: ignore[attr-defined] # as in the standard library's own accept
        self.accepted.append(CountingSocket(fileno=number))
        return self.accepted[-1], address


@pytest.mark.parametrize("case", EARLY)
def test_a_wrong_request_is_answered_before_256_kib_of_it_are_read(case: str) -> None:
    _, first, start = EARLY[case]
    with CountingListener() as listener:
        listener.accepted = []
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with server_here(models(), listener=listener) as (_, address), Wire(address) as wire:
            wire.send(first + start)
            _go_on(wire)
    (counted,) = listener.accepted
    nbytes = counted.read_before_answer
    print(f"{case}: {nbytes} bytes were read before the answer")  # noqa: T201 - a figure
    assert len(first) <= nbytes <= 256 << 10


@pytest.mark.slow
def test_bad_clients_next_to_good_ones(address: Address) -> None:
    stop = threading.Event()
    failures: list[object] = []

    def misbehave() -> None:
        while not stop.is_set():
            for _, request in list(BAD.values())[:20]:
                with Wire(address) as wire:
                    wire.send(request)
                stop.wait(0.005)  # else threads of this process would leave the server's none of the time

    def behave() -> None:
        with Wire(address) as wire:
            for count in range(200):
                answer = wire.send(infer_request(count=count)).response()
                start = int(answer.fields["inference-header-content-length"])
                if answer.body[start:] != np.arange(count, dtype="<f4").tobytes():
                    failures.append(answer)

    bad = [threading.Thread(target=misbehave) for _ in range(2)]
    good = [threading.Thread(target=behave) for _ in range(4)]
    for thread in (*bad, *good):
        thread.start()
    for thread in good:
        thread.join()
    stop.set()
    for thread in bad:
        thread.join()
    assert failures == []
