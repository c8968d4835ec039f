"""The wall: hosts, names of fields, answers that lie about their bodies, certificates, and the time of a stop."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from streamcodec import LocalProtocolError
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.guard import Guard
from streamcodec.server import ServerOptions, open_listener
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.client.scripted import scripted
from tests.guard.serving import guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request
from tests.transports.certificates import AUTHORITY, client_side, server_side
from tests.waiting import until

GET_READY = head("/v2/health/ready", method="GET")
METADATA = head("/v2/models/m", method="GET")
END = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_methods_of_a_route_are_named() -> None:
    with guarding(nobody()) as guard, Wire(guard) as wire:
        for method, path, methods in (("GET", "/v2/models/m/infer", "POST"), ("PUT", "/v2", "GET, HEAD")):
            answer = wire.send(head(path, method=method)).response()
            assert (answer.status, answer.fields["allow"]) == (405, methods)


def _for(host: str, request: bytes) -> bytes:
    return request.replace(b"Host: x\r\n", f"Host: {host}\r\n".encode())


def test_only_requests_for_allowed_hosts_pass(backend: str) -> None:
    """Whatever a known head has meant before: the host is a part of it."""
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", backend=backend, allowed_hosts=["localhost", "[::1]:8000"]) as guard,
    ):
        for _ in range(2):
            for request in (infer_request(), GET_LIVE, infer_request(count=1 << 17)):
                for name, status in (("LocalHost:1", 200), ("evil.example", 421), ("[::1]:8000", 200), ("[::1]", 421)):
                    with Wire(guard) as wire:
                        answer = wire.send(_for(name, request)).response()
                        assert answer.status == status
            with Wire(guard) as wire:
                assert wire.send(head("http://evil.example/v2", method="GET")).response().status == 400
    with pytest.raises(LocalProtocolError, match="an allowed host must be"):
        Guard(nobody(), allowed_hosts=["http://x"])


@pytest.mark.parametrize(
    "field",
    [
        "content_length: 5",
        "Content_Length: 5",
        "transfer_encoding: chunked",
        "Transfer-Encoding_: x",
        "Inference_Header_Content_Length: 0",
        "inference-header-content_length: 0",
        "X_Forwarded-For: 1.2.3.4",
        "Content_Type: text/plain",
        "X_Request_Id: 7",
    ],
)
def test_fields_that_some_servers_read_with_dashes(field: str) -> None:
    harmless = field.startswith(("X_Request", "Transfer-Encoding_"))
    with guarding(nobody()) as guard:
        for request in (infer_request("identity", field), head("/v2", field, method="GET")):
            for _ in range(2):
                with Wire(guard) as wire:
                    answer = wire.send(request).response()
                    assert answer.status == (502 if harmless else 400)
                    assert ("underscores" in answer.error) is not harmless


@pytest.mark.parametrize(
    "beginning",
    [
        b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n",
        b"HTTP/1.1 200 OK\r\nX\r\n",
        b"HTTP/1.1 200 OK\r\nX : a\r\n",
        b"HTTP/1.1 200 OK\rX: a\r\nY: b\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n",
        b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 099 X\r\n",
        b"HTTP/1.1 1000 X\r\n",
    ],
)
def test_an_answer_cannot_be_split(beginning: bytes, backend: str) -> None:
    """What is no answer is answered by the guard: nothing of its fields comes to the client."""
    for request in (infer_request(), METADATA):
        with (
            scripted([beginning + b"Content-Length: 3\r\n\r\nabc"]) as server,
            guarding(server.url, backend=backend) as (guard),
            Wire(guard) as wire,
        ):
            answer = wire.send(request).response()
            assert answer.status == 502
            assert not {"x", "y", "set-cookie", "upgrade"} & answer.fields.keys()


def test_a_folded_field_of_an_answer_is_unfolded(backend: str) -> None:
    folded = END.replace(b"Content", b"X: a\r\n Set-Cookie: b\r\nContent")
    with scripted([folded]) as server, guarding(server.url, backend=backend) as guard, Wire(guard) as wire:
        answer = wire.send(infer_request()).response()
        assert (answer.status, answer.fields["x"], answer.body) == (200, "a Set-Cookie: b", b"abc")


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize(
    ("rest", "is_wrong"),
    [
        (b"\r\n", False),
        (b"Content-Length: 0\r\n\r\n", False),
        (b"Content-Length: 5\r\n\r\nhello", True),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (b"\r\nhello", True),
    ],
)
def test_an_answer_without_a_body_has_no_length(status: int, rest: bytes, is_wrong: bool, backend: str) -> None:
    """And if it announces one, or sends one, no other request goes over its connection."""
    lying = b"HTTP/1.1 %d X\r\nEtag: 1\r\n%b" % (status, rest)
    script = [[lying], [END]] if is_wrong else [[lying, END]]
    for request in (infer_request(), METADATA):
        with scripted(*script) as server, guarding(server.url, backend=backend) as guard, Wire(guard) as wire:
            answer = wire.send(request).response(has_body=False)
            assert (answer.status, answer.fields.get("etag")) == (status, "1")
            assert not {"content-length", "transfer-encoding"} & answer.fields.keys()
            assert wire.send(request).response().body == b"abc"
        assert server.accepted == len(script)


def test_a_204_that_announces_a_body_is_the_last_answer_and_a_304_may_do_so() -> None:
    """The length in a 304 is that of the answer that it stands for (RFC 9110, section 8.6)."""
    lengthy = b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n"
    for script in ([[lengthy % 204], [END]], [[lengthy % 304, END]]):
        with scripted(*script) as server, guarding(server.url) as guard, Wire(guard) as wire:
            assert "content-length" not in wire.send(METADATA).response(has_body=False).fields
            assert wire.send(METADATA).response().body == b"abc"


def test_a_server_behind_with_a_certificate_of_our_own(tmp_path: Path, backend: str) -> None:
    authority = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(authority))
    with (
        server_here(models(), ssl_context=server_side()) as (_, (_, port)),
        guarding(f"https://localhost:{port}", upstream_ca=authority, backend=backend) as guard,
        Wire(guard) as wire,
    ):
        assert floats(wire.send(infer_request()).response()) == [0.0, 1.0, 2.0, 3.0]


def test_wrong_certificates(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=r"upstream_ca='.*nothing': no certificates"):
        Guard("https://x", upstream_ca=tmp_path / "nothing")
    (tmp_path / "empty").touch()
    with pytest.raises(LocalProtocolError, match="no certificates"):
        Guard("https://x", upstream_ca=tmp_path / "empty")
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca"))
    with pytest.raises(LocalProtocolError, match="does not begin with https"):
        Guard("http://x", upstream_ca=tmp_path / "ca")
    with pytest.raises(LocalProtocolError, match="give one of them"):
        Guard("https://x", upstream_ca=tmp_path / "ca", upstream_ssl_context=client_side())


def _takes_connections(address: tuple[str, int]) -> bool:
    try:
        Wire(address).sock.close()
    except ConnectionError:
        return False
    return True


def test_a_drain_delay(backend: str) -> None:
    """First readiness turns, and everything passes; then only what is in progress ends."""
    begun, end = threading.Semaphore(0), threading.Semaphore(0)

    def predict(request: InferenceRequest) -> Outputs:
        begun.release()
        assert end.acquire(timeout=20)
        return request.inputs

    registry = ModelRegistry.of([*models(), Model(name="m", predict=predict)])
    patient = Timeout(connect=5, read=20, write=5, pool=5)
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with (
        server_here(registry) as (_, (host, port)),
        open_listener("127.0.0.1", 0) as listener,
        start_blocking_portal("asyncio" if settings else backend, settings) as portal,
    ):
        address = listener.getsockname()
        options = ServerOptions(drain_delay=1.0, shutdown_timeout=20)
        guard = portal.call(partial(Guard, f"http://{host}:{port}", options=options, timeout=patient))
        task = portal.start_task_soon(guard.serve, listener)
        with Wire(address) as kept, Wire(address) as busy:
            assert kept.send(GET_READY).response().status == 200
            busy.send(infer_request("m"))
            assert begun.acquire(timeout=20)
            portal.call(guard.stop)
            for request, status in ((GET_READY, 503), (GET_LIVE, 200), (infer_request(), 200)):
                with Wire(address) as new:
                    answer = new.send(request).response()
                    assert (answer.status, answer.is_last) == (status, True)
            answer = kept.send(infer_request()).response()
            assert (answer.status, answer.is_last) == (200, True)
            until(lambda: not _takes_connections(address))
            assert not task.done()
            end.release()
            assert busy.response().status == 200
            task.result(20)
