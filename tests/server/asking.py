"""Asking: clients that ask a server without a break, while something happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.server.wire import Answer, Wire
from tests.waiting import SECONDS


@dataclass
class Asked:
    """What has become of their requests."""

    answered: list[Answer] = field(default_factory=list)
    lost: list[BaseException] = field(default_factory=list)
    """Why a request was not answered that may have been sent. A refused connection is no request."""


@contextmanager
def asking(connect: Callable[[], Wire], request: bytes, *, is_kept: bool, count: int = 8) -> Iterator[Asked]:
    """Ask until the block ends, or until nobody listens any more.

    Args:
        connect: makes a connection.
        request: that is sent again and again.
        is_kept: whether a client keeps a connection until it is told that it ends; else each request has its own.
        count: of clients.
    """
    asked = Asked()
    is_over = threading.Event()

    def ask() -> None:
        try:
            while not is_over.is_set():
                with connect() as wire:
                    is_last = False
                    while not is_last and not is_over.is_set():
                        answer = wire.send(request).response()
                        asked.answered.append(answer)
                        is_last = answer.is_last or not is_kept
        except ConnectionRefusedError:
            return
        except (OSError, AssertionError) as error:
            asked.lost.append(error)

    clients = [threading.Thread(target=ask) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        yield asked
    finally:
        is_over.set()
        for client in clients:
            client.join(SECONDS)
