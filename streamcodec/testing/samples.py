"""Samples: messages with their expected outcome.

A sample is written by `json.dumps` and `tobytes`, never by this library's encoder, so that a bug in the encoder cannot
hide the same bug in the decoder. A `Draft` is a message that can still be changed, member by member and byte by byte.
`finish` makes an `ExpectedMessage` of it. `strategies` makes drafts with Hypothesis, and other code makes them by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.decoder import request_decoder, response_decoder
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.formats.v2.model import RequestHeader, ResponseHeader

Members = dict[str, Any]
"""An object of a JSON header."""


@dataclass(frozen=True, kw_only=True)
class ExpectedTensor:
    """The expected content of one tensor."""

    name: str
    """Name of the tensor."""
    datatype: str
    """The tensor's datatype, one of the specification's 14."""
    array: np.ndarray[Any, Any]
    """The tensor's values; BF16 as uint16, BYTES as objects."""


@dataclass(frozen=True, kw_only=True)
class ExpectedMessage:
    """A message as it travels, and the verdict on it, under the default limits."""

    body: bytes
    """JSON header and tensors; it may be truncated, or be followed by other bytes."""
    header_length: int | None
    """Value of `Inference-Header-Content-Length`; None if the whole body is JSON."""
    body_length: int | None
    """Value of `Content-Length`; None if the length is not known beforehand."""
    is_response: bool
    """Whether the message is a response."""
    mutation: str = "none"
    """Name of the mutation of a valid message."""
    refusals: frozenset[ErrorCode] = frozenset()
    """The expected error codes, any of them; empty if the message is to be accepted."""
    tensors: tuple[ExpectedTensor, ...] | None = None
    """What is to be read of each tensor; None if that is left to the oracle, or nothing is to be read."""

    @property
    def headers(self) -> dict[str, str]:
        """The fields of an HTTP head that belong to the body."""
        fields = {HEADER_LENGTH_FIELD: self.header_length, "Content-Length": self.body_length}
        kind = "application/json" if self.header_length is None else "application/octet-stream"
        return {"Content-Type": kind} | {name: str(value) for name, value in fields.items() if value is not None}

    def make_decoder(self, limits: Limits | None = None) -> Decoder[RequestHeader] | Decoder[ResponseHeader]:
        """Make the library's own decoder for the message."""
        make = response_decoder if self.is_response else request_decoder
        return make(header_length=self.header_length, body_length=self.body_length, limits=limits)


@dataclass(kw_only=True)
class Draft:
    """A message that can still be changed."""

    members: Members
    """The JSON header; its tensors are `entries`."""
    is_response: bool
    """Whether the tensors are called `outputs`."""
    payloads: list[bytes]
    """The bytes of each tensor; empty for a tensor whose values are in the header."""
    tensors: tuple[ExpectedTensor, ...] | None
    """What is to be read of each tensor; None if that is left to the oracle."""
    padding: int = 0
    """Spaces behind the JSON text."""
    has_header_length: bool = True
    """Whether the length of the JSON is declared; this is necessary if bytes follow it."""
    has_body_length: bool = True
    """Whether the length of the body is declared."""
    is_ascii: bool = False
    """Whether characters that are not ASCII are escaped in the JSON header."""
    indent: int | None = None
    """Indentation of the JSON text; None for a text of one line."""
    insertion: str = ""
    """Text that goes into the JSON header behind the first brace, as it is."""
    header_length: int | None = None
    """A wrong length of the JSON header, to be declared instead of the true one; None for the true one."""
    raw_text: bytes | None = None
    """The JSON header to be sent instead of the members; None to send the members."""

    @property
    def key(self) -> str:
        """The name of the array of tensors."""
        return "outputs" if self.is_response else "inputs"

    @property
    def entries(self) -> list[Members]:
        """The tensors in the JSON header."""
        entries: list[Members] = self.members[self.key]
        return entries

    @property
    def text(self) -> bytes:
        """The JSON header."""
        if self.raw_text is not None:
            return self.raw_text
        text = json.dumps(self.members, ensure_ascii=self.is_ascii, indent=self.indent)
        return f"{{{self.insertion}{text[1:]}{' ' * self.padding}".encode()

    @property
    def payload(self) -> bytes:
        """The bytes of all tensors."""
        return b"".join(self.payloads)

    def finish(self, *, mutation: str = "none", refusals: Iterable[ErrorCode] = ()) -> ExpectedMessage:
        """Put the message together.

        Args:
            mutation: name of the mutation.
            refusals: the possible error codes; empty if the message is valid.

        Returns:
            The message, with the verdict on it.
        """
        text, codes = self.text, frozenset(refusals)
        body = text + self.payload
        header_length = len(text) if self.header_length is None else self.header_length
        return ExpectedMessage(
            body=body,
            header_length=header_length if self.has_header_length else None,
            body_length=len(body) if self.has_body_length else None,
            is_response=self.is_response,
            mutation=mutation,
            refusals=codes,
            tensors=None if codes else self.tensors,
        )
