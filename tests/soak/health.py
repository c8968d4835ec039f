"""Health: how long a health check takes while everything else goes on, asked for over a connection of its own."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from types import TracebackType
from typing import Self

from tests.soak.wire import Address

_REQUEST = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
_LIVE = b'{"live":true}'
_PERIOD = 0.02
_PATIENCE = 10.0


class HealthChecks:
    """Asks again and again, in a thread, while the block runs.

    Attributes:
        seconds: how long each answer took.
        late: how much later than asked this thread woke up, each time: what the machine adds to every answer's time.
        failures: what came instead of one.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []
        self.late: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._ask_on_one_connection()
            except OSError as error:
                self.failures.append(repr(error))
                self._over.wait(_PERIOD)

    def _ask_on_one_connection(self) -> None:
        with closing(socket.create_connection(self._address, _PATIENCE)) as sock:
            is_kept = True
            while is_kept and not self._over.is_set():
                began = time.perf_counter()
                time.sleep(_PERIOD)
                self.late.append(time.perf_counter() - began - _PERIOD)
                began = time.perf_counter()
                sock.sendall(_REQUEST)
                answer = b""
                while not answer.endswith(_LIVE):
                    if not (chunk := sock.recv(4096)):
                        raise ConnectionResetError(repr(answer))
                    answer += chunk
                self.seconds.append(time.perf_counter() - began)
                is_kept = b"Connection: close" not in answer


def quantile(values: list[float], share: float) -> float:
    """Return what so many of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
