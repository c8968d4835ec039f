"""Request: a whole inference request as bytes, as the clients of this package would send it.

`bench` sends it over and over, and `encode` writes it to a file. The parts are made by the classes of the clients, so
that the request is the same to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcodec.client.calls import Calls
from streamcodec.client.connections.address import Address
from streamcodec.client.exchange import Compression, Placing
from streamcodec.client.fields import RequestFields
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.engine.message import Part, buffers_of
from streamcodec.http.client import ClientConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRequest:
    """A request, head and body."""

    address: Address
    """Of the server."""
    target: str
    """Path of the request."""
    fields: tuple[tuple[str, str], ...]
    """Fields of the head."""
    head: bytes
    """The head as it is sent."""
    parts: tuple[Part, ...]
    """The body."""

    @property
    def body(self) -> Iterable[bytes | memoryview]:
        """The body as buffers."""
        return buffers_of(self.parts)

    @property
    def url(self) -> str:
        """The URL of the request, without credentials."""
        return f"{'https' if self.address.is_secure else 'http'}://{self.address.authority}{self.target}"


def whole_request(
    url: str,
    model: str,
    inputs: Mapping[str, np.ndarray[Any, Any] | Elements],
    *,
    version: str | None = None,
    outputs: Iterable[str] | None = None,
    request_id: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    is_binary: bool = True,
    headers: Sequence[tuple[str, str]] = (),
    compression: Compression | None = None,
    media_type: str | None = None,
) -> WholeRequest:
    """Make a request; the arguments are those of `Client` and `Client.infer`.

    Raises:
        LocalProtocolError: it cannot be sent.
    """
    address = Address.of(url)
    fields = RequestFields(address, headers)
    calls = Calls(address, fields, DEFAULT_LIMITS, compression or Compression(), media_type)
    exchange = calls.infer(
        model,
        inputs,
        outputs=outputs,
        request_id=request_id,
        parameters=parameters,
        version=version,
        is_binary=is_binary,
        placing=Placing(),
        headers=None,
        query_params=None,
    )
    exchange.compress()
    head, *parts = exchange.start(ClientConnection())
    if not isinstance(head, bytes):
        raise TypeError
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    return WholeRequest(
        address=address,
        target=first.split(" ")[1],
        fields=tuple((name, value) for name, _, value in (line.partition(": ") for line in lines)),
        head=head,
        parts=tuple(parts),
    )
