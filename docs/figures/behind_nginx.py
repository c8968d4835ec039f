"""A request of 32 MiB for a model that does not exist, through nginx: `python behind_nginx.py`. Needs nginx."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measured import MIB, server, table

NBYTES = 32 * MIB
HEAD = (
    "POST /v2/models/none/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    f"Inference-Header-Content-Length: 128\r\nContent-Length: {NBYTES}\r\n\r\n"
).encode()
CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off; client_max_body_size 0; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {url}; proxy_http_version 1.1; proxy_request_buffering {buffering}; }}
    }}
}}
"""


@contextmanager
def nginx(url: str, buffering: str) -> Iterator[int]:
    """Run nginx in front of a server until the block ends; yield its port."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        sys.exit("nginx is not here: apt-get install nginx")
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        path = Path(folder, "configuration")
        path.write_text(CONFIGURATION.format(folder=folder, port=port, url=url, buffering=buffering), encoding="ascii")
        with subprocess.Popen([program, "-e", f"{folder}/errors", "-c", str(path)]) as process:
            try:
                yield port
            finally:
                process.terminate()


def connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:  # it has not started yet
            time.sleep(0.02)


def send(port: int) -> tuple[float, int]:
    """Send until there is an answer; return when it came, in seconds, and how many bytes were sent by then."""
    sock = connect(port)
    began, sent, piece = time.perf_counter(), 0, bytes(64 << 10)
    with sock:
        sock.sendall(HEAD)
        sock.settimeout(0.001)
        while sent < NBYTES:
            try:
                if sock.recv(1):
                    return time.perf_counter() - began, sent
            except TimeoutError:
                sent += sock.send(piece[: NBYTES - sent])
        sock.settimeout(30)
        sock.recv(1)
    return time.perf_counter() - began, sent


if __name__ == "__main__":
    rows = []
    with server() as url:
        for buffering in ("on", "off"):
            with nginx(url, buffering) as port:
                seconds, sent = send(port)
            rows.append((f"proxy_request_buffering {buffering}", f"{seconds * 1000:.0f} ms", f"{sent / MIB:.1f} MiB"))
    table(("", "until the refusal", "sent by then"), rows)
