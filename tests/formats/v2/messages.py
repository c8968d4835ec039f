"""Messages for tests: what a peer might send, right or wrong, and the decoder that would be made for it.

The JSON is written here by hand or with `json.dumps`, never with streamcodec's encoder: a test compares two opinions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from streamcodec import (
    DEFAULT_LIMITS,
    Decoder,
    Limits,
    RequestHeader,
    ResponseHeader,
    request_decoder,
    response_decoder,
)

AnyDecoder = Decoder[RequestHeader] | Decoder[ResponseHeader]

Members = dict[str, Any]
"""An object of a JSON header."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A body, and what the HTTP head around it says of its lengths."""

    body: bytes
    header_length: int | None
    body_length: int | None
    is_response: bool = False
    allow_headerless: bool = False
    limits: Limits = DEFAULT_LIMITS

    def decoder(self) -> AnyDecoder:
        """Make a decoder that is ready for the first byte."""
        make = response_decoder if self.is_response else request_decoder
        return make(
            header_length=self.header_length,
            body_length=self.body_length,
            allow_headerless=self.allow_headerless,
            limits=self.limits,
        )

    def under(self, **limits: int) -> Message:
        """Return the message as it meets a receiver with these limits."""
        return replace(self, limits=Limits(**limits))

    def chunked(self) -> Message:
        """Return the message as it comes without `Content-Length`."""
        return replace(self, body_length=None)

    def headerless(self) -> Message:
        """Return the message as it comes without the length of its header, to a receiver that finds it."""
        return replace(self, header_length=None, allow_headerless=True)


def message(header: bytes | Members, payload: bytes = b"", *, is_response: bool = False) -> Message:
    """Put a message with a declared header length together."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = text + payload
    return Message(body=body, header_length=len(text), body_length=len(body), is_response=is_response)


def json_message(header: bytes | Members, *, is_response: bool = False) -> Message:
    """Put a message together that is JSON and nothing else, so that no header length is declared."""
    return replace(message(header, is_response=is_response), header_length=None)


def request(*inputs: Members, payload: bytes = b"", **members: Any) -> Message:  # noqa: ANN401 - any JSON value
    """Put a request together; `members` stand before the `inputs`."""
    return message({**members, "inputs": inputs}, payload)


def response(*outputs: Members, payload: bytes = b"", **members: Any) -> Message:  # noqa: ANN401 - any JSON value
    """Put a response together; `members` stand before the `outputs`."""
    return message({**members, "outputs": outputs}, payload, is_response=True)


def binary(datatype: str, shape: list[int], nbytes: int, *, name: str = "x", **members: Any) -> Members:  # noqa: ANN401
    """Describe a tensor whose bytes follow the header."""
    parameters = {"binary_data_size": nbytes}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters, **members}


def jsonic(datatype: str, shape: list[int], data: Any, *, name: str = "x") -> Members:  # noqa: ANN401 - any JSON value
    """Describe a tensor whose values stand in the header."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}
