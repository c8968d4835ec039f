"""HAProxy in front of two servers, with docs/examples/haproxy.cfg: streamed bodies, health checks, draining."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from streamcodec.client import Client
from tests.ports import free_port
from tests.processes import peak_resident
from tests.server.programs import MODELS, ROOT, Program, serving
from tests.server.wire import Wire, floats, head, infer_request
from tests.transports.certificates import AUTHORITY, client_side

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not here: apt-get install haproxy"),
]

MIB = 1 << 20
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Proxied:
    """HAProxy, and the servers behind it."""

    process: subprocess.Popen[bytes]
    port: int
    servers: list[Program]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def wire(self) -> Wire:
        wire = Wire(("127.0.0.1", self.port))
        wire.sock = client_side().wrap_socket(wire.sock, server_hostname="localhost")
        return wire


def _configuration(port: int, certificate: Path, servers: list[Program]) -> str:
    """The documented one, with other addresses."""
    text = (ROOT / "docs/examples/haproxy.cfg").read_text()
    replaced = {
        "bind :443": f"bind 127.0.0.1:{port}",
        "/etc/haproxy/models.pem": str(certificate),
        "127.0.0.1:8000": "{}:{}".format(*servers[0].address),
        "127.0.0.1:8001": "{}:{}".format(*servers[1].address),
    }
    for old, new in replaced.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@contextmanager
def _proxied(folder: Path) -> Iterator[Proxied]:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(MODELS, "--drain-delay", "5")) for _ in range(2)]
        (folder / "both").write_bytes(
            AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.bytes()
        )
        port = free_port()
        (folder / "configuration").write_text(_configuration(port, folder / "both", servers))
        with subprocess.Popen([str(HAPROXY), "-db", "-f", str(folder / "configuration")]) as process:
            try:
                _wait_for(port)
                yield Proxied(process, port, servers)
            finally:
                process.kill()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with _proxied(tmp_path_factory.mktemp("haproxy")) as proxied:
        yield proxied


def test_large_tensors_are_streamed(proxied: Proxied) -> None:
    values = np.arange(16 * MIB, dtype=np.float32)
    with Client(proxied.url, ssl_context=client_side()) as client:
        client.infer("identity", {"x": values[:1000]})
        before = peak_resident(proxied.process.pid)
        assert np.array_equal(client.infer("identity", {"x": values})["x"], values)
    assert peak_resident(proxied.process.pid) - before < 8 * MIB, "64 MiB went both ways"


def test_a_refusal_does_not_wait_for_the_body(proxied: Proxied) -> None:
    with proxied.wire() as wire:
        wire.send(head("/v2/models/nobody/infer", f"Content-Length: {64 * MIB}"), bytes(MIB))
        assert wire.response().status == 404


def test_who_sends_slowly_reaches_the_server_at_once(proxied: Proxied) -> None:
    """The head, and then nothing: the server says that it goes on."""
    request = infer_request("identity", "Expect: 100-continue")
    end_of_head = request.index(b"\r\n\r\n") + 4
    with proxied.wire() as wire:
        assert wire.send(request[:end_of_head]).response(has_body=False).status == 100
        assert floats(wire.send(request[end_of_head:]).response()) == [0, 1, 2, 3]


def test_a_server_that_stops_loses_nothing(tmp_path: Path) -> None:
    """HAProxy looks every 2 s, and the server serves for 5 s."""
    lost: list[object] = []
    answered: list[float] = []
    is_over = threading.Event()
    with _proxied(tmp_path) as proxied:

        def ask() -> None:
            with proxied.wire() as wire:
                while not is_over.is_set():
                    try:
                        assert floats(wire.send(infer_request(count=1000)).response()) == list(range(1000))
                    except (OSError, AssertionError) as error:
                        lost.append(error)
                        return
                    answered.append(time.monotonic())

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        proxied.servers[0].kill(signal.SIGTERM)
        assert proxied.servers[0].ends() == 0
        has_ended = time.monotonic()
        time.sleep(1)
        is_over.set()
        for client in clients:
            client.join()
        assert not lost
        assert max(answered) > has_ended + 0.9, "the other one serves"
        with pytest.raises((OSError, ssl.SSLError)):
            Wire(proxied.servers[0].address)
