"""Rolling: two servers behind nginx or HAProxy, restarted in turn while clients ask without a break: what is lost.

    python -m tests.server.rolling [nginx] [haproxy]

The configurations are those of docs/howto/proxies.md, with other addresses, and variants of them. A server is told to
stop by SIGTERM, and started again at its port when it has ended. 16 connections ask for a tensor and get it back, kept
ones, or a new one for each request. Lost is each request that is not answered 200; the table says what was seen then.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.benchmarks import load
from tests.benchmarks.peers import Running
from tests.ports import free_port
from tests.ray import clients
from tests.server.programs import MODELS, ROOT, Program, serving

PAGE: Final = ROOT / "docs" / "howto" / "proxies.md"
_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
NGINX: Final = shutil.which("nginx", path=_PLACES)
HAPROXY: Final = shutil.which("haproxy", path=_PLACES)
_AROUND: Final = """\
daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{text}
}}
"""
"""What the page leaves out: files that only root may write are elsewhere here."""
_CONNECTIONS: Final = 16
_PAUSE: Final = 5
"""Seconds until the other server is restarted: a proxy has to notice that the first one is back."""
SIZES: Final = {"4 KiB": 4 << 10, "1 MiB": 1 << 20}


def block(language: str) -> str:
    """Return the only block of the page that is in a language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


def replaced(text: str, pairs: dict[str, str]) -> str:
    """Replace texts that are there once."""
    for old, new in pairs.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True, slots=True)
class Way:
    """A proxy, and how it and the servers are set."""

    proxy: str
    name: str
    drain_delay: int
    changes: dict[str, str] = field(default_factory=dict)
    """Of the documented configuration."""


def ways() -> list[Way]:
    """Return what is compared; the first of each proxy is as the page has it."""
    line = "proxy_next_upstream error timeout;"
    new = dict.fromkeys(re.findall(r"    keepalive.*\n", block("nginx")), "")
    busy = {line: "proxy_next_upstream error timeout http_503 non_idempotent;"}
    return [
        *(Way("nginx", "as shown", delay) for delay in (6, 0)),
        *(Way("nginx", "without `keepalive`", delay, new) for delay in (6, 0)),
        *(Way("nginx", "with `http_503 non_idempotent`", delay, busy) for delay in (6, 0)),
        *(Way("haproxy", "as shown", delay) for delay in (6, 0)),
    ]


def nginx(folder: Path, port: int, ports: tuple[int, int], changes: dict[str, str]) -> list[str]:
    """Write the documented configuration, with other addresses; return the command that runs it."""
    addresses = {"listen 80;": f"listen 127.0.0.1:{port};"}
    addresses |= {f"127.0.0.1:{8000 + index}": f"127.0.0.1:{ports[index]}" for index in range(2)}
    text = replaced(block("nginx"), addresses | changes)
    (folder / "configuration").write_text(_AROUND.format(folder=folder, text=text))
    return [str(NGINX), "-e", f"{folder}/errors", "-c", f"{folder}/configuration"]


def haproxy(folder: Path, port: int, ports: tuple[int, int], changes: dict[str, str]) -> list[str]:
    """Do the same for HAProxy; without TLS, which is not what is measured."""
    text = (ROOT / "docs/examples/haproxy.cfg").read_text()
    addresses = {"bind :443 ssl crt /etc/haproxy/models.pem alpn http/1.1": f"bind 127.0.0.1:{port}"}
    addresses |= {f"127.0.0.1:{8000 + index}": f"127.0.0.1:{ports[index]}" for index in range(2)}
    (folder / "configuration").write_text(replaced(text, addresses | changes))
    return [str(HAPROXY), "-db", "-f", f"{folder}/configuration"]


PROXIES: Final[dict[str, Callable[[Path, int, tuple[int, int], dict[str, str]], list[str]]]] = {
    "nginx": nginx,
    "haproxy": haproxy,
}


class Pair:
    """Two servers, each at its own port, that can be restarted."""

    def __init__(self, stack: ExitStack, drain_delay: int) -> None:
        """Start them; they end with the stack."""
        self._stack = stack
        self._delay = str(drain_delay)
        self.ports = free_port(), free_port()
        self._programs = [self._start(port) for port in self.ports]

    def restart(self, index: int) -> None:
        """Stop a server, and start it again when it has ended."""
        self._programs[index].kill(signal.SIGTERM)
        assert self._programs[index].ends() == 0
        self._programs[index] = self._start(self.ports[index])

    def _start(self, port: int) -> Program:
        program = self._stack.enter_context(serving(MODELS, "--drain-delay", self._delay, "--port", str(port)))
        assert program.url
        return program


@contextmanager
def proxied(way: Way) -> Iterator[tuple[Running, Pair]]:
    """Run a proxy and two servers behind it."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        pair, port = Pair(stack, way.drain_delay), free_port()
        with subprocess.Popen(PROXIES[way.proxy](Path(name), port, pair.ports, way.changes)) as process:
            try:
                server = Running(
                    name=way.proxy, version="", url=f"http://127.0.0.1:{port}", pid=process.pid, cpu=time.monotonic
                )
                _wait_for(server)
                yield server, pair
            finally:
                process.terminate()


def _wait_for(server: Running) -> None:
    while True:
        try:
            return load.connect(server).close()
        except ConnectionRefusedError:
            time.sleep(0.02)


def restarted(way: Way, nbytes: int, *, is_kept: bool, pause: float = _PAUSE) -> tuple[int, Counter[str]]:
    """Restart both servers in turn under load; return how many requests were answered, and what the others saw."""
    message = load.message_for(nbytes)
    with proxied(way) as (server, pair):
        request = clients.request_to(server, "identity", message)
        if not is_kept:
            request = load.Request(request.head[:-2] + b"Connection: close\r\n\r\n", request.buffers)
        time.sleep(pause)
        with clients.hammering(server, request, _CONNECTIONS) as outcome:
            for index in range(2):
                time.sleep(1)
                pair.restart(index)
                time.sleep(pause)
        return len(outcome.seconds), outcome.failed


def main(proxies: list[str]) -> None:
    """Print the table."""
    print("| proxy | set to | --drain-delay | tensor | connections | answered | lost | seen then |")
    print("| --- | --- | --: | --- | --- | --: | --: | --- |")
    for way in ways():
        for size, nbytes in SIZES.items() if not proxies or way.proxy in proxies else ():
            for is_kept in (True, False):
                answered, failed = restarted(way, nbytes, is_kept=is_kept)
                seen = ", ".join(f"{count} {what}" for what, count in failed.most_common())
                cells = [way.proxy, way.name, str(way.drain_delay), size, "kept" if is_kept else "new"]
                print("|", " | ".join([*cells, f"{answered:,}", str(failed.total()), seen]), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
