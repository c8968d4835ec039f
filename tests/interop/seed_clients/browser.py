"""A browser: `page.html` in Chromium, served from here, which is another origin than the server under test has.

So whatever the page sends to that server is under CORS as it is for every page in the world. With its own server the
page exchanges answers for jobs: it posts an answer, and the response is the next job.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.seed_clients.programs import ANSWER_SECONDS, HERE, Program, require

_START_SECONDS = 60
_STOP_SECONDS = 10
_FILES = {"/page.html": "text/html; charset=utf-8", "/fetch_client.mjs": "text/javascript; charset=utf-8"}
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # which it refuses to have when run as root, as in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    # It calls nobody but who is under test, and so waits for nobody.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
)


class PageServer(ThreadingHTTPServer):
    """Serves the page, and talks with it."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen at a free port."""
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
        """For the page; None to end it."""
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()

    @property
    def origin(self) -> str:
        """The page's origin, as browsers write it."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the class it is from
        """Say nothing of connections that the browser cuts when it ends."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Let the page do a job."""
        self.jobs.put(job)
        try:
            return self.answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            pytest.fail(f"the page did not answer for {ANSWER_SECONDS} s", pytrace=False)


class _PageHandler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out apart

    def do_GET(self) -> None:
        content_type = _FILES.get(self.path)
        if content_type is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._reply(HTTPStatus.OK, (HERE / self.path[1:]).read_bytes(), content_type)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.answers.put(json.loads(self.rfile.read(length)))
        job = self.server.jobs.get()
        status = HTTPStatus.GONE if job is None else HTTPStatus.OK
        self._reply(status, json.dumps(job).encode(), "application/json")

    def _reply(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parameter of the class it is from
        """Say nothing: standard error is the tests'."""


@contextmanager
def serving_page() -> Iterator[PageServer]:
    """Serve the page until it is no longer needed."""
    with PageServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browsing(server: PageServer, directory: Path) -> Iterator[Program]:
    """Open the page in a Chromium of its own until it is no longer needed.

    Args:
        server: serves the page.
        directory: an empty one, for the browser's own files.
    """
    chromium = require("Chromium", "chromium", "chromium")
    log = directory / "log.txt"
    command = [chromium, *_OPTIONS, f"--user-data-dir={directory / 'profile'}", f"{server.origin}/page.html"]
    with (
        log.open("w") as output,
        # A session of its own: a browser is many processes, which must all be gone in the end.
        subprocess.Popen(
            command,
            env=os.environ | {"HOME": str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Program(_first_words(server, log), server.ask)
        finally:
            server.jobs.put(None)
            _end(process)


def _first_words(server: PageServer, log: Path) -> str:
    try:
        versions: str = server.answers.get(timeout=_START_SECONDS)["versions"]
    except queue.Empty:
        pytest.fail(f"Chromium has not run the page after {_START_SECONDS} s:\n{log.read_text()}", pytrace=False)
    return versions


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
