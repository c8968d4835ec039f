"""Both clients over Unix sockets: the same as over TCP, what their URLs are, and what is said if nobody is there."""

from __future__ import annotations

import errno
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError
from streamcodec.client import AsyncClient, Client, ServerError, Timeout
from streamcodec.client.connections.address import Address
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.server import open_unix_listener
from streamcodec.transports.sockets.unix import MAX_PATH_BYTES
from tests.client.answers.test_answers import INPUTS
from tests.client.drivers import Kind
from tests.server.models import models
from tests.server.programs import server_here

KINDS = pytest.mark.parametrize(
    "kind", [Kind(name) for name in ("sync", "asyncio", "uvloop", "trio")], ids=["sync", "asyncio", "uvloop", "trio"]
)


def _url(path: Path) -> str:
    return f"http+unix://{quote(str(path), safe='')}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a socket: 100%"
        with server_here(models(), listener=open_unix_listener(path)):
            yield _url(path)


@KINDS
def test_tensors_of_several_sizes(kind: Kind, url: str) -> None:
    inputs: dict[str, Any] = {
        "small": np.arange(3),
        "words": np.array([b"", b"word"], object),
        "large": np.arange(1 << 20, dtype=np.float32),
    }
    with kind.client(url) as client:
        for is_binary in (True, False):
            inputs["large"] = inputs["large"][: None if is_binary else 1000]
            outputs = client.infer("identity", inputs, is_binary=is_binary).outputs
            assert all(np.array_equal(outputs[name], array) for name, array in inputs.items())
        with pytest.raises(ServerError, match="404"):
            client.infer("nobody", INPUTS)
        assert client.call("is_server_ready")


@KINDS
def test_a_large_tensor_comes_into_its_own_memory(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        client.infer("identity", {"x": np.zeros(4 << 20, np.uint8)})
        assert client.client.received_copied <= SCRATCH_BYTES


# URLs


@pytest.mark.parametrize(
    ("url", "path", "prefix", "credentials"),
    [
        ("http+unix://%2Frun%2Fx.sock", "/run/x.sock", "", None),
        ("HTTP+UNIX://%2frun%2fX.sock/", "/run/X.sock", "", None),
        ("http+unix://%2Frun%2Fx.sock/gateway/one/", "/run/x.sock", "/gateway/one", None),
        ("http+unix://me:a%20b@%2Frun%2Fx%40y.sock", "/run/x@y.sock", "", ("me", "a b")),
        ("http+unix://me@%2Fx", "/x", "", ("me", "")),
        ("http+unix://%2F%FF%3A80", os.fsdecode(b"/\xff:80"), "", None),
        (f"http+unix://%2F{'x' * (MAX_PATH_BYTES - 1)}", f"/{'x' * (MAX_PATH_BYTES - 1)}", "", None),
    ],
)
def test_urls(url: str, path: str, prefix: str, credentials: tuple[str, str] | None) -> None:
    address = Address.of(url)
    assert (address.socket_path, address.place, address.prefix) == (path, path, prefix)
    assert (address.authority, address.is_secure, address.credentials) == ("localhost", False, credentials)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http+unix:///run/x.sock", r"percent-encoded, as http\+unix://%2Frun%2Fmodels.sock"),
        ("http+unix://run%2Fx.sock", "absolute path"),
        ("http+unix://", "absolute path"),
        ("http+unix:%2Fx", "absolute path"),
        ("http+unix://%2Fx:80", "percent-encoded"),
        ("http+unix://%2Fx?q", "percent-encoded"),
        ("http+unix://%2Fx#f", "percent-encoded"),
        ("http+unix://%2Fx%zz", "percent-encoded"),
        ("http+unix://%2Fä", "percent-encoded"),
        ("http+unix://[%2Fx]", "percent-encoded"),
        ("http+unix://%2Fx\n", "line end"),
        ("http+unix://%2Fx%00", "NUL"),
        ("http+unix://%00x", "absolute path"),
        (f"http+unix://%2F{'x' * MAX_PATH_BYTES}", f"at most {MAX_PATH_BYTES} bytes here, and .* {MAX_PATH_BYTES + 1}"),
        ("https+unix://%2Fx", "no TLS on a Unix socket"),
        ("unix:///x", "a server's URL looks like"),
    ],
)
def test_urls_that_are_none(url: str, words: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError, match=words):
            client(url)


@pytest.mark.parametrize(
    "url", ["http+unix://me:secret@x", "https+unix://me:secret@%2Fx", "http+unix://me:sec@ret@%2Fx"]
)
def test_credentials_in_a_url_that_is_none_are_not_shown(url: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Client(url)
    assert "sec" not in str(caught.value)


# Nobody is there


@KINDS
@pytest.mark.parametrize(
    ("kept", "number", "words"),
    [
        ("nothing", errno.ENOENT, "No such file or directory"),
        ("left", errno.ECONNREFUSED, "Connection refused"),
        ("file", errno.ENOTSOCK, "the file is not a socket"),
        ("folder", errno.ENOTSOCK, "the file is not a socket"),
    ],
)
def test_nobody_listens(kind: Kind, kept: str, number: int, words: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    path = tmp_path / kept
    with kind.client(_url(path)) as client, pytest.raises(OSError, match=re.escape(words)) as caught:
        client.infer("m", INPUTS)
    assert caught.value.errno == number
    assert f"no connection to {path}: {words}" in str(caught.value)


@KINDS
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_connect(kind: Kind) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        with open_unix_listener(Path(name) / "s") as listener, kind.client(_url(Path(listener.path))) as client:
            os.seteuid(65534)
            try:
                with pytest.raises(PermissionError, match=f"no connection to {name}/s: Permission denied"):
                    client.infer("m", INPUTS)
            finally:
                os.seteuid(0)


@KINDS
def test_a_server_whose_queue_is_full_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = []
        with suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(path))
        with (
            kind.client(_url(path), timeout=Timeout(connect=0.05)) as client,
            pytest.raises(TimeoutError, match=rf"no connection to {path} within 0\.05 seconds"),
        ):
            client.infer("m", INPUTS)
        with kind.client(_url(path), total_timeout=0.05) as client, pytest.raises(TimeoutError, match="total_timeout"):
            client.infer("m", INPUTS)
        for sock in waiting:
            sock.close()

        def serve() -> None:
            time.sleep(0.05)
            with server_here(models(), listener=listener):
                is_over.wait(60)

        is_over = threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        with kind.client(_url(path)) as client:
            assert client.infer("identity", {"x": [1]})["x"] == 1
        is_over.set()
        server.join()


@KINDS
def test_a_server_that_hangs_up_is_not_said_to_expect_tls(kind: Kind, tmp_path: Path) -> None:
    def hang_up() -> None:
        sock, _ = listener.accept()
        sock.recv(1 << 16)
        sock.close()

    with open_unix_listener(tmp_path / "s") as listener, kind.client(_url(tmp_path / "s")) as client:
        server = threading.Thread(target=hang_up)
        server.start()
        with pytest.raises(RemoteProtocolError) as caught:
            client.infer("m", INPUTS)
        server.join()
    assert "TLS" not in str(caught.value)
