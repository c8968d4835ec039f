"""Uploading: what tests ask of a server that keeps uploads, over sockets."""

from __future__ import annotations

import fcntl
import termios

import numpy as np

from streamcodec import encode_request
from streamcodec.server import Server
from tests.server.wire import GET_LIVE, Answer, Wire, floats, head
from tests.waiting import until

X = np.arange(300_000, dtype=np.float32)
MESSAGE = encode_request({"x": X}, parameters={"binary_data_output": True})
BODY = b"".join(MESSAGE.buffers)
FIELDS = [f"{name}: {value}" for name, value in MESSAGE.headers if name != "Content-Length"]
LAST, MORE = "Upload-Complete: ?1", "Upload-Complete: ?0"
Address = tuple[str, int]


def begun(wire: Wire, *fields: str, body: bytes = b"", model: str = "identity") -> str:
    """Begin an upload; return its location."""
    named = fields or (LAST, f"Content-Length: {len(BODY)}")
    wire.send(head(f"/v2/models/{model}/infer", *FIELDS, "Upload-Draft-Interop-Version: 8", *named))
    location = wire.response(has_body=False).fields["location"]
    wire.send(body)
    return location


def patch(location: str, at: int, nbytes: int, *fields: str) -> bytes:
    named = ["Content-Type: application/partial-upload", f"Upload-Offset: {at}", f"Content-Length: {nbytes}"]
    return head(location, *named, *(fields or (LAST,)), method="PATCH")


def asked(address: Address, location: str, method: str = "HEAD") -> Answer:
    with Wire(address) as wire:
        return wire.send(head(location, method=method)).response(has_body=method != "HEAD")


def offset(address: Address, location: str) -> int:
    return int(asked(address, location).fields["upload-offset"])


def finished(address: Address, location: str, at: int) -> None:
    """Bring the rest, and see that the answer is right."""
    with Wire(address) as wire:
        answer = wire.send(patch(location, at, len(BODY) - at), BODY[at:]).response()
        assert answer.fields["upload-complete"] == "?1"
        assert floats(answer) == X.tolist()
        assert wire.send(GET_LIVE).response().status == 200, "the connection goes on"


def settled(server: Server, address: Address, location: str) -> int:
    """Wait until the server has seen the end of all connections, and return the offset."""
    until(lambda: server.requests_in_progress == 0)
    return offset(address, location)


def all_there(wire: Wire) -> None:
    """Wait until the server's system has all that was sent; the server need not have read it."""
    until(lambda: not any(fcntl.ioctl(wire.sock.fileno(), termios.TIOCOUTQ, bytes(4))))
