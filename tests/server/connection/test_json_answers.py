"""JSON answers that are much larger than their tensors: exact lengths, constant memory, and the event loop goes on."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec.server import ServerOptions
from streamcodec.service import Model, ModelRegistry
from streamcodec.service.models.model import InferenceRequest, Outputs
from tests.processes import forget_peak, peak_resident, resident
from tests.server.programs import Program, server_here, serving
from tests.server.wire import GET_LIVE, Wire, head

pytestmark = pytest.mark.slow

COUNT = 32 << 20
PATTERN = b"\x85\x86"
TEXT = b"-123,-122,"
HEADER = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}' % (
    COUNT,
    COUNT,
)


@pytest.fixture
def fresh() -> Iterator[Program]:
    with serving() as program:
        yield program


def _ask(wire: Wire) -> None:
    """Send 33 KB that are a tensor of 32 MiB, and ask for it as JSON, which is 160 MiB."""
    body = gzip.compress(HEADER + PATTERN * (COUNT // 2))
    fields = [
        "Content-Encoding: gzip",
        f"Content-Length: {len(body)}",
        f"Inference-Header-Content-Length: {len(HEADER)}",
    ]
    wire.send(head("/v2/models/identity/infer", *fields), body)


class Reader(threading.Thread):
    """Reads such an answer: some of it, and after a pause the rest."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.start_of_body = b""
        self.end = b""
        self.fields: dict[str, str] = {}
        self.nbytes = 0
        self.values = 0

    def run(self) -> None:
        with Wire(self.program.address) as wire:
            _ask(wire)
            wire.sock.settimeout(60)
            data = bytearray()
            while b"\r\n\r\n" not in data:
                data += wire.sock.recv(1 << 16)
            start, _, rest = bytes(data).partition(b"\r\n\r\n")
            self.fields = dict(line.decode().lower().split(": ", 1) for line in start.split(b"\r\n")[1:])
            time.sleep(1)
            scratch = bytearray(1 << 20)
            self.nbytes, self.values = len(rest), rest.count(b"-12")
            self.start_of_body = rest[:100]
            while self.nbytes < int(self.fields["content-length"]):
                count = wire.sock.recv_into(scratch)
                self.nbytes += count
                self.values += scratch.count(b"-", 0, count)
                self.end = (self.end + scratch[max(count - 100, 0) : count])[-100:]
            assert wire.send(GET_LIVE).response().status == 200


def test_memory_while_an_answer_of_160_mib_is_read(fresh: Program) -> None:
    _read_beside_health_checks(fresh)


@pytest.mark.quiet
def test_health_while_an_answer_of_160_mib_is_read(fresh: Program) -> None:
    assert np.quantile(_read_beside_health_checks(fresh), 0.9) < 0.1


def _read_beside_health_checks(fresh: Program) -> list[float]:
    """Have it read, and see that little memory is taken; return how long each health check took meanwhile."""
    with Wire(fresh.address) as wire:
        assert wire.send(GET_LIVE).response().status == 200
        before = resident(fresh.process.pid)
        forget_peak(fresh.process.pid)
        reader = Reader(fresh)
        reader.start()
        seconds = []
        while reader.is_alive():
            began = time.perf_counter()
            assert wire.send(GET_LIVE).response().status == 200
            seconds.append(time.perf_counter() - began)
            time.sleep(0.005)
    grown = peak_resident(fresh.process.pid) - before
    print(  # noqa: T201 - a figure
        f"grown by {grown / 2**20:.1f} MiB; health: median {np.median(seconds):.4f} s, maximum {max(seconds):.4f} s"
    )
    assert reader.start_of_body.startswith(b'{"model_name"')
    assert reader.end.endswith(b",-123,-122]}]}")
    assert abs(reader.values - COUNT) < 10, "all but what may be cut in two, and the model's name has none"
    assert reader.nbytes == int(reader.fields["content-length"]) > COUNT * len(TEXT) // len(PATTERN)
    assert grown < COUNT + (16 << 20)
    return seconds


def _changing(_: InferenceRequest) -> Outputs:
    """Answer with an array that another thread goes on to write to."""
    array = np.full(4 << 20, 100, np.int32)
    threading.Timer(0.3, array.__setitem__, (slice(-1000, None), 1)).start()
    return {"y": array}


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_an_array_that_changes_meanwhile_ends_the_connection(backend: str) -> None:
    models = ModelRegistry.of([Model(name="changing", predict=_changing)])
    body = b'{"inputs":[]}'
    with server_here(models, ServerOptions(), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(head("/v2/models/changing/infer", f"Content-Length: {len(body)}"), body)
        time.sleep(0.8)
        data = bytearray()
        while chunk := wire.sock.recv(1 << 20):
            data += chunk
    start, _, received = bytes(data).partition(b"\r\n\r\n")
    length = next(int(line[16:]) for line in start.split(b"\r\n") if line.lower().startswith(b"content-length: "))
    assert 0 < len(received) < length


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_an_answer_goes_on_while_models_have_all_threads(backend: str) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(request: InferenceRequest) -> Outputs:
        has_begun.set()
        may_end.wait(30)
        return request.inputs

    array = np.full(3 << 20, -100, np.int8)
    models = ModelRegistry.of([Model(name="large", predict=lambda _: {"y": array}), Model(name="wait", predict=wait)])
    body = b'{"inputs":[]}'
    fields = f"Content-Length: {len(body)}"
    options = ServerOptions(max_workers=1)
    with (
        server_here(models, options, backend=backend) as (_, address),
        Wire(address) as reader,
        Wire(address) as other,
    ):
        reader.send(head("/v2/models/large/infer", fields), body)
        assert reader.sock.recv(1, socket.MSG_PEEK)
        other.send(head("/v2/models/wait/infer", fields), body)
        assert has_begun.wait(60)
        assert reader.response().body.endswith(b",-100,-100]}]}")
        may_end.set()
        assert other.response().status == 200
