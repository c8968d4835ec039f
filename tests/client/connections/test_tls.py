"""Both clients over TLS: the same as without, and what is said if the two ends do not come together."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from streamcodec import HeaderReceived, LocalProtocolError, RemoteProtocolError, Rows, WindowReceived, Windows
from streamcodec.client import AsyncClient, Client, ServerError
from streamcodec.http.scratch import SCRATCH_BYTES
from tests.client.answers.test_answers import BODY, GOOD, IHCL, INPUTS, VALUES
from tests.client.drivers import KINDS as PLAIN_KINDS
from tests.client.drivers import Kind
from tests.client.encrypted import encrypted
from tests.client.growing import growing
from tests.client.scripted import Scripted, response, scripted
from tests.server.models import models
from tests.server.programs import server_here
from tests.transports.certificates import AUTHORITY, client_side, server_side

KINDS = pytest.mark.parametrize(
    "kind", [Kind(name) for name in ("sync", "asyncio", "uvloop", "trio")], ids=["sync", "asyncio", "uvloop", "trio"]
)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, address), encrypted(address) as url:
        yield url


@pytest.mark.slow
@KINDS
def test_tensors_of_all_sizes_there_and_back(kind: Kind, url: str, ca: Path) -> None:
    inputs: dict[str, Any] = {
        "small": np.arange(3),
        "words": np.array([b"", b"word"], object),
        "none": np.zeros((0, 2), np.float32),
    }
    with kind.client(url, verify=ca) as client:
        for is_binary in (True, True, False):
            inputs["large"] = np.arange(4 << 20 if is_binary else 4 << 12, dtype=np.float32)
            outputs = client.infer("identity", inputs, is_binary=is_binary).outputs
            assert all(np.array_equal(outputs[name], array) for name, array in inputs.items())
        many = {f"t{number}": np.full(2, number) for number in range(300)}
        assert all(np.array_equal(array, many[name]) for name, array in client.infer("identity", many).outputs.items())


@KINDS
def test_a_large_tensor_is_decrypted_into_its_own_memory(kind: Kind, url: str, ca: Path) -> None:
    with kind.client(url, verify=ca) as client:
        client.infer("identity", {"x": np.zeros(16 << 20, np.uint8)})
        assert client.client.received_copied <= SCRATCH_BYTES


@KINDS
def test_one_connection_for_many_calls(kind: Kind, url: str) -> None:
    context = client_side()
    with kind.client(url, ssl_context=context) as client:
        for _ in range(3):
            client.infer("identity", INPUTS)
            with pytest.raises(ServerError, match="404"):
                client.infer("nobody", INPUTS)
    assert context.session_stats()["connect"] == 1


@KINDS
def test_an_answer_that_grows_while_the_request_is_being_sent(kind: Kind, ca: Path) -> None:
    width, count = 1 << 18, 24
    rows = Rows("INT32", (count, width), (np.full((1, width), number, "<i4") for number in range(count)))
    seen: list[int] = []
    with (
        growing(1 << 20) as plain,
        encrypted(_address(plain)) as url,
        kind.client(url, verify=ca) as client,
        client.stream("double", {"x": rows}, place=lambda _: Windows(max_window_bytes=3 << 20)) as events,
    ):
        assert isinstance(next(events), HeaderReceived)
        for event in events:
            if isinstance(event, WindowReceived):
                seen += event.array[:, 0].tolist()
    assert seen == [2 * number for number in range(count)]


@KINDS
def test_a_refusal_ends_the_sending(kind: Kind, url: str, ca: Path) -> None:
    with kind.client(url, verify=ca) as client:
        with pytest.raises(ServerError, match="404"):
            client.infer("nobody", {"x": np.zeros(64 << 20, np.uint8)})
        assert client.infer("identity", {"x": [1]})["x"] == 1


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.partition("//")[2].partition(":")
    return host, int(port)


@contextmanager
def _encrypted(*connections: Sequence[bytes], is_ended: bool = True) -> Iterator[tuple[Scripted, str]]:
    """Run a scripted server under TLS, which says the end of its connections or not."""
    with scripted(*([_follow(answers, is_ended=is_ended)] for answers in connections)) as server:
        yield server, server.url.replace("http", "https")


def _follow(answers: Sequence[bytes], *, is_ended: bool) -> Callable[[socket.socket], None]:

    def follow(sock: socket.socket) -> None:
        with server_side().wrap_socket(sock.dup(), server_side=True) as tls:
            for answer in answers:
                tls.recv(1 << 16)
                tls.sendall(answer)
            if is_ended:
                tls.setblocking(False)
                with suppress(ssl.SSLError):  # the client does not say its own end
                    tls.unwrap()

    return follow


UNTIL_THE_END = response(BODY, IHCL, is_counted=False)


@PLAIN_KINDS
def test_an_answer_that_ends_with_the_connection_ends_with_tls(kind: Kind, ca: Path) -> None:
    with _encrypted([UNTIL_THE_END]) as (_, url), kind.client(url, verify=ca) as client:
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)
    with (
        _encrypted([UNTIL_THE_END], is_ended=False) as (_, url),
        kind.client(url, verify=ca) as client,
        pytest.raises(ConnectionResetError, match="close_notify"),
    ):
        client.infer("m", INPUTS)


@PLAIN_KINDS
@pytest.mark.parametrize("is_ended", [True, False])
def test_a_kept_connection_that_dies_is_replaced(kind: Kind, ca: Path, is_ended: bool) -> None:
    with _encrypted([GOOD, b""], [GOOD], is_ended=is_ended) as (server, url), kind.client(url, verify=ca) as client:
        for _ in range(2):
            assert np.array_equal(client.infer("m", INPUTS, idempotent=True)["y"], VALUES)
    assert server.accepted == 2


# Words that help


def _fails(kind: Kind, url: str, failure: type[Exception], text: str, **options: object) -> None:
    with kind.client(url, **options) as client, pytest.raises(failure, match=text):
        client.infer("m", INPUTS)


@PLAIN_KINDS
def test_a_server_that_is_not_trusted(kind: Kind, url: str, tmp_path: Path) -> None:
    text = rf"certificate of {url[8:]} is refused: .*local issuer certificate; .* verify=PATH"
    _fails(kind, url, ssl.SSLCertVerificationError, text)
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    _fails(kind, url, ssl.SSLCertVerificationError, text, verify=other)
    with kind.client(url, verify=False) as client:
        assert client.infer("identity", {"x": [1]})["x"] == 1


@PLAIN_KINDS
def test_a_server_of_another_name(kind: Kind, ca: Path) -> None:
    with server_here(models()) as (_, address), encrypted(address, server_side("example.org")) as url:
        text = r"IP address mismatch.*; the URL must have the name"
        _fails(kind, url, ssl.SSLCertVerificationError, text, verify=ca)
        text = r"Hostname mismatch.*; the URL must have the name"
        _fails(kind, url.replace("127.0.0.1", "localhost"), ssl.SSLCertVerificationError, text, verify=ca)


def _hang_up(sock: socket.socket) -> None:
    sock.recv(1 << 16)


def _reset(sock: socket.socket) -> None:
    sock.recv(1)  # the rest stays unread


@PLAIN_KINDS
def test_a_certificate_that_is_no_longer_valid(kind: Kind, ca: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    past = datetime.now(UTC) - timedelta(days=1)
    AUTHORITY.issue_cert("127.0.0.1", not_after=past).configure_cert(context)
    with server_here(models()) as (_, address), encrypted(address, context) as url:
        _fails(kind, url, ssl.SSLCertVerificationError, r"127.* is refused: certificate has expired$", verify=ca)


@PLAIN_KINDS
def test_a_server_that_speaks_no_tls(kind: Kind) -> None:
    text = r"127\.0\.0\.1:\d+ does not speak TLS; .* http://"
    with server_here(models()) as (_, (host, port)):
        _fails(kind, f"https://{host}:{port}", ssl.SSLError, text)
    for hang_up in (_hang_up, _reset):
        with scripted([hang_up]) as server:
            _fails(kind, server.url.replace("http", "https"), OSError, "in the handshake: does it speak TLS")


@PLAIN_KINDS
def test_a_plain_request_to_a_server_of_tls(kind: Kind, url: str) -> None:
    _fails(kind, url.replace("https", "http"), RemoteProtocolError, "the server may expect TLS: https://")


@PLAIN_KINDS
def test_versions_that_do_not_meet(kind: Kind) -> None:
    old = server_side()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    new = client_side()
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    with server_here(models()) as (_, address), encrypted(address, old) as url:
        _fails(
            kind,
            url,
            ssl.SSLError,
            r"TLS with 127.* has failed: .*VERSION|in an allowed version",
            ssl_context=new,
        )
        with kind.client(url, ssl_context=client_side()) as client:  # TLS 1.2
            assert client.infer("identity", {"x": [1]})["x"] == 1


@PLAIN_KINDS
def test_a_server_that_chooses_a_protocol_which_the_context_offers_and_the_client_does_not_speak(kind: Kind) -> None:
    """HTTP/1.1 into a connection of HTTP/2 would end in bytes that nobody understands."""
    server, context = server_side(), client_side()
    server.set_alpn_protocols(["h2", "http/1.1"])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        server_here(models()) as (_, address),
        encrypted(address, server) as url,
        kind.client(url, ssl_context=context) as client,
    ):
        text = r"offers 'h2', 127\.0\.0\.1 has chosen it.* HTTP/1\.1 only.*set_alpn_protocols\(\[\"http/1\.1\"\]\)"
        with pytest.raises(LocalProtocolError, match=text):
            client.infer("identity", {"x": [1]})
        context.set_alpn_protocols(["http/1.1"])  # as it was told
        assert client.infer("identity", {"x": [1]})["x"] == 1


@PLAIN_KINDS
def test_a_server_that_asks_for_a_certificate_of_the_client(kind: Kind) -> None:
    strict = server_side()
    strict.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(strict)
    known = client_side()
    AUTHORITY.issue_cert("me@example.org").configure_cert(known)
    with (
        server_here(models()) as (_, address),
        encrypted(address, strict) as url,
        kind.client(url, ssl_context=known) as client,
    ):
        assert client.infer("identity", {"x": [1]})["x"] == 1

    def refuse(sock: socket.socket) -> None:
        with suppress(ssl.SSLError):
            strict.wrap_socket(sock.dup(), server_side=True)
        sock.recv(1 << 16)  # what stays unread would let the system drop the alert

    with scripted([refuse]) as server:
        url = server.url.replace("http", "https")
        _fails(kind, url, ConnectionError, "TLS failed: .*CERTIFICATE_REQUIRED", ssl_context=client_side())


@pytest.mark.slow
@PLAIN_KINDS
def test_a_handshake_in_which_nothing_comes(kind: Kind) -> None:
    def silent(sock: socket.socket) -> None:
        while sock.recv(1 << 16):
            pass

    for options, text in (({"timeout": 0.2}, "within 0.2 seconds"), ({"total_timeout": 0.2}, "total_timeout")):
        with scripted([silent]) as server:
            began = time.monotonic()
            _fails(kind, server.url.replace("http", "https"), TimeoutError, text, **options)
            assert time.monotonic() - began > 0.1


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_who_is_trusted_is_said_once(kind: type[Client | AsyncClient], ca: Path) -> None:
    for verify in (ca, False):
        with pytest.raises(LocalProtocolError, match="give one of them"):
            kind("https://h", verify=verify, ssl_context=client_side())
