"""Both clients and a deployment as there are many: nginx ends TLS, asks for a token and limits bodies."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamcodec import Rows
from streamcodec.client import Client, ServerError
from tests.client.drivers import KINDS, Kind
from tests.server.models import models
from tests.server.programs import server_here
from tests.transports.certificates import AUTHORITY

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not here: apt-get install nginx")
TOKEN = "s3cret"  # noqa: S105 - of this test
_SECONDS = 60

_CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    keepalive_requests 7;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {folder}/certificate; ssl_certificate_key {folder}/key;
        client_max_body_size 4m;
        location / {{
            if ($http_authorization != "Bearer {token}") {{
                add_header WWW-Authenticate 'Bearer realm="models"' always;
                return 401;
            }}
            proxy_pass http://{server}; proxy_http_version 1.1; proxy_set_header Host $host;
            proxy_request_buffering off; proxy_buffering off;
        }}
        location /moved {{ return 308 https://example.org/elsewhere; }}
    }}
}}
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("nginx"), _free_port()
    certificate = AUTHORITY.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "certificate"))
    certificate.private_key_pem.write_to_path(str(folder / "key"))
    with server_here(models()) as (_, (host, inner)):
        text = _CONFIGURATION.format(folder=folder, port=port, token=TOKEN, server=f"{host}:{inner}")
        (folder / "configuration").write_text(text)
        command = [str(NGINX), "-e", str(folder / "errors"), "-c", str(folder / "configuration")]
        with subprocess.Popen(command) as process:
            try:
                _wait_for(port)
                yield f"https://127.0.0.1:{port}"
            finally:
                process.terminate()
                assert process.wait(_SECONDS) == 0, (folder / "errors").read_text()


@pytest.mark.slow
@KINDS
def test_with_the_token_and_the_authority(kind: Kind, url: str, ca: Path) -> None:
    values = np.arange(500_000, dtype=np.float32)
    for options in ({"auth": TOKEN}, {"auth": lambda: TOKEN}, {"headers": {"Authorization": f"Bearer {TOKEN}"}}):
        with kind.client(url, verify=ca, **options) as client:
            assert client.call("is_server_ready")
            for _ in range(5):
                assert np.array_equal(client.infer("identity", {"x": values})["x"], values)
            rows = Rows("FP32", (500, 1000), (values[start : start + 1000][None] for start in range(0, 500_000, 1000)))
            assert np.array_equal(client.infer("identity", {"x": rows})["x"].ravel(), values)
            with pytest.raises(ServerError, match="404: there is no model 'nobody'"):
                client.infer("nobody", {"x": values})


@KINDS
@pytest.mark.parametrize("auth", [None, "wrong", ("user", "password")])
def test_without_the_token(kind: Kind, url: str, ca: Path, auth: tuple[str, str] | str | None) -> None:
    with kind.client(url, verify=ca, auth=auth) as client:
        for _ in range(2):
            with pytest.raises(ServerError, match="401") as caught:
                client.infer("identity", {"x": [1.0]})
            assert (caught.value.status, caught.value.headers["www-authenticate"]) == (401, 'Bearer realm="models"')
            assert "nginx" in caught.value.headers["Server"]
        assert not client.call("is_server_live")
        assert client.infer("identity", {"x": [1.0]}, headers={"Authorization": f"Bearer {TOKEN}"})["x"] == 1


@KINDS
@pytest.mark.parametrize("mib", [5, 64])
def test_a_body_that_is_too_large_for_it(kind: Kind, url: str, ca: Path, mib: int) -> None:
    with kind.client(url, verify=ca, auth=TOKEN) as client:
        with pytest.raises(ServerError, match="413") as caught:
            client.infer("identity", {"x": np.zeros(mib << 20, np.uint8)})
        assert (caught.value.status, str(caught.value)) == (413, "413: 413 Request Entity Too Large")
        assert client.infer("identity", {"x": [1.0]})["x"] == 1


@KINDS
def test_without_the_authority(kind: Kind, url: str) -> None:
    with kind.client(url, auth=TOKEN) as client, pytest.raises(ssl.SSLCertVerificationError) as caught:
        client.infer("identity", {"x": [1.0]})
    assert "verify=PATH names a file with the CA's certificate" in str(caught.value)
    assert TOKEN not in str(caught.value)


@KINDS
def test_without_tls(kind: Kind, url: str) -> None:
    with kind.client(url.replace("https", "http"), auth=TOKEN) as client, pytest.raises(ServerError) as caught:
        client.infer("identity", {"x": [1.0]})
    assert caught.value.status == 400
    assert "plain HTTP request was sent to HTTPS port" in caught.value.text


@KINDS
def test_a_redirection_is_not_followed(kind: Kind, url: str, ca: Path) -> None:
    with kind.client(url + "/moved", verify=ca, auth=TOKEN) as client, pytest.raises(ServerError) as caught:
        client.infer("identity", {"x": [1.0]})
    assert "308: the server redirects to https://example.org/elsewhere" in str(caught.value)


@pytest.mark.slow
def test_sixteen_threads(url: str, ca: Path) -> None:
    def ask(number: int) -> list[float]:
        return [float(client.infer("identity", {"x": 100.0 * number + turn})["x"]) for turn in range(20)]

    with Client(url, verify=ca, auth=TOKEN) as client, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(16)))
    assert answers == [[100.0 * number + turn for turn in range(20)] for number in range(16)]
