"""Batches: what clients of a model with batches do to each other, or to the server."""

from __future__ import annotations

import json
import socket
import struct
from itertools import cycle

from tests.under_attack.acts import Act, ask, send_and_go, trickle
from tests.under_attack.messages import declared, post

_LARGE_VALUES = 64 << 10
"""Of a row that is received in the block of its batch."""


def row(values: int, value: float = 1.0) -> bytes:
    """Return a request with one row."""
    entry = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, values],
        "parameters": {"binary_data_size": 4 * values},
    }
    header = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return post(header + struct.pack("<f", value) * values, declared(len(header)), model="batched")


SMALL_ROW = row(4)


def of_every_size() -> list[Act]:
    """Send rows of 16 bytes to 4 MiB."""
    return [ask(row(4**power)) for power in range(1, 11)]


def trickling() -> list[Act]:
    """Take a place in a block, and fill it so slowly that no batch can wait for it."""
    large = row(_LARGE_VALUES)
    return [trickle(large[: len(large) // 2], b"\0" * 64, 0.05)]


def leaving() -> list[Act]:
    """Leave before the whole row has come, and after it."""
    large = row(_LARGE_VALUES)
    return [send_and_go(SMALL_ROW), send_and_go(large), send_and_go(large[: len(large) // 2])]


def refused() -> list[Act]:
    """Send what the model refuses."""
    return [ask(row(4, float("nan")))]


def unlike() -> list[Act]:
    """Send each row with another shape, so that none goes together with another one."""
    return [_unlike(start) for start in range(16)]


def _unlike(start: int) -> Act:
    widths = cycle(range(5 + start, 5000, 16))

    async def act(sock: socket.socket) -> None:
        await ask(row(next(widths)))(sock)

    return act
