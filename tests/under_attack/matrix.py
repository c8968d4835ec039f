"""Matrix: each kind of answer, asked for in each way in which a client can keep a server from waiting for it.

Whoever has always sent the next request already, or always reads, is never waited for. So none of these connections
may go on for as long as it likes, whatever it is answered: correctly or not, with a body that was read, dropped or
refused, in one piece or in thousands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tests.under_attack.acts import Act, ask_in_turn, flood, in_single_bytes
from tests.under_attack.messages import get, tensor

MANY: Final = 300
TINY: Final = "/v2/models/tiny/config"
"""The server behind a guard under attack answers it in a hundred thousand chunks of one byte."""

_PIPELINED_BYTES: Final = 512 << 10
_CHUNKS: Final = 200_000
_LARGE_BYTES: Final = 256 << 10


def request(
    body: bytes, *fields: str, model: str = "identity", method: str = "POST", length: int | None = None
) -> bytes:
    """Return a request on a connection that is kept."""
    lines = (f"{method} /v2/models/{model}/infer HTTP/1.1", "Host: x", *fields)
    framing = (
        () if any("Transfer-Encoding" in field for field in fields) else (f"Content-Length: {length or len(body)}",)
    )
    return "\r\n".join((*lines, *framing, "", "")).encode() + body


def _identity(nbytes: int) -> bytes:
    entry = {"name": "x", "datatype": "UINT8", "shape": [nbytes], "parameters": {"binary_data_size": nbytes}}
    header = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return request(header + bytes(nbytes), f"Inference-Header-Content-Length: {len(header)}")


def in_tiny_chunks(count: int, model: str = "sink") -> bytes:
    """Return an upload of a tensor in chunks of one byte."""
    header = tensor("UINT8", count, count)
    body = b"%x\r\n%b\r\n" % (len(header), header) + b"1\r\n\0\r\n" * count + b"0\r\n\r\n"
    return request(body, "Transfer-Encoding: chunked", f"Inference-Header-Content-Length: {len(header)}", model=model)


_JSON: Final = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'

KINDS: Final[dict[str, bytes]] = {
    "a small answer": _identity(64),
    "a large answer": _identity(_LARGE_BYTES),
    "an answer in JSON": request(_JSON),
    "an unknown model, the body unread": request(b"{}", model="nobody"),
    "a wrong field, the body unread": request(b"{}", "Inference-Header-Content-Length: x"),
    "a refused JSON header": request(b"{}"),
    "a refused tensor": _identity(64).replace(b'"shape": [64]', b'"shape": [65]'),
    "a head of 31 KB": request(b"{}", "X: " + "a " * 15_500 + "a"),
    "metadata": get("/v2/models/identity"),
    "404": get("/nowhere"),
    "405": request(b"", method="PUT"),
    "an answer in tiny chunks": get(TINY),
}
"""A request for each kind of answer. The last one is an unknown model's, unless the server behind a guard knows it."""

WAYS: Final[dict[str, tuple[Callable[[bytes], Act], int]]] = {
    "pipelined": (lambda one: flood(one * max(2, _PIPELINED_BYTES // len(one))), 4),
    "again and again": (ask_in_turn, MANY),
    "byte by byte": (in_single_bytes, 16),
}
"""What is made of a request, and by how many connections."""

REFUSED: Final = frozenset(
    {"a wrong field, the body unread", "a refused JSON header", "a refused tensor", "a head of 31 KB"}
)
"""Kinds of which a guard lets nothing through."""

UPLOAD: Final = "an upload in tiny chunks"


def upload() -> Act:
    """Return an upload in chunks of one byte, made when it is wanted."""
    return flood(in_tiny_chunks(_CHUNKS))
