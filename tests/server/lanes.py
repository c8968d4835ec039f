"""Clients of a memory lane, byte for byte as a test wants them, and what is left of them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamcodec import Tensor, encode_request
from streamcodec.transports.sockets.memfd import new_memory, send_descriptors
from tests.server.wire import Answer, Wire

MIB = 1 << 20
OPENING = b"POST /v2/memory-lane HTTP/1.1\r\nHost: x\r\nMemory-Lane: 1\r\n\r\n"


class LaneWire(Wire):
    """One connection, with memory of its own."""

    def __init__(self, path: str, nbytes: int = MIB, *, opening: bytes = OPENING) -> None:
        """Connect, and offer both memories."""
        super().__init__(path)
        self.descriptors, self.requests, self.answers = _both(nbytes)
        try:
            self.opened = self.open(self.descriptors, opening)
        finally:
            for descriptor in self.descriptors:
                os.close(descriptor)

    def open(self, descriptors: Sequence[int], opening: bytes = OPENING) -> Answer:
        return offered(self, descriptors, opening)

    def infer(self, model: str, *arrays: np.ndarray[Any, Any], start: int = 0) -> Answer:
        """Write tensors to the memory, and have them computed."""
        return self.send(self.request(model, *arrays, start=start)).response()

    def request(self, model: str, *arrays: np.ndarray[Any, Any], start: int = 0) -> bytes:
        """Write tensors to the memory, and return the request."""
        message = encode_request(
            [Tensor(name=f"x{index}", array=array) for index, array in enumerate(arrays)],
            parameters={"binary_data_output": True},
        )
        offsets = []
        for part in message.parts[1:]:
            octets = bytes(part)  # type: ignore[arg-type] # no Rows
            self.requests[start : start + len(octets)] = octets
            offsets.append(str(start))
            start += -(-len(octets) // 64) * 64
        return head(model, bytes(message.parts[0]), ", ".join(offsets), f"0, {len(self.answers)}")  # type: ignore[arg-type] # no Rows


def head(model: str, text: bytes, offsets: str, room: str) -> bytes:
    """Return a request of the lane."""
    fields = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\nTensor-Memory: {offsets}\r\nAnswer-Memory: {room}\r\n\r\n"
    )
    return fields.encode() + text


def offered(wire: Wire, descriptors: Sequence[int], opening: bytes = OPENING) -> Answer:
    """Open a lane with these descriptors, whatever they are."""
    assert send_descriptors(wire.sock, opening, descriptors) == len(opening)
    return wire.response()


def _both(nbytes: int) -> tuple[list[int], mmap.mmap, mmap.mmap]:
    first, requests = new_memory(nbytes, seals_writing=True)
    second, answers = new_memory(nbytes, seals_writing=False)
    return [first, second], requests, answers


def open_descriptors(pid: int) -> list[str]:
    """Return what the descriptors of a process refer to."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(path.readlink()))
        except FileNotFoundError:  # the one of this loop
            continue
    return sorted(found)


def mapped_bytes(pid: int) -> int:
    """Return how much of memory files a process has mapped."""
    nbytes = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            nbytes += end - start
    return nbytes


def eventually(test: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
