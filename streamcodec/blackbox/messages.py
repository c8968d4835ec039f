"""Messages: inference requests, in parts that can be changed one at a time.

An `Assembly` begins as a valid request: the JSON document and the bytes of its tensors. Its methods return copies with
one part changed. The other parts are not adjusted, so the result can be invalid on purpose. A `RawRequest` has the
bytes that are sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final, Self

from streamcodec.blackbox.inputs import Input


class _Absent(Enum):
    ABSENT = auto()


ABSENT: Final = _Absent.ABSENT
"""As the value of a member: the member is left out."""


class AfterSending(Enum):
    """What the client does after sending the request."""

    STAYS = auto()
    """It waits for the answer."""
    CUTS = auto()
    """It closes its sending side, and waits for the answer."""
    RESETS = auto()
    """It drops the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    """The bytes of one probe, and how they are sent."""

    pieces: tuple[bytes, ...]
    """The pieces of the request, sent with a pause between them, so that the server reads them separately."""
    ending: AfterSending = AfterSending.STAYS
    answers: int = 1
    """Number of answers to wait for; if the expectation allows it, the connection may end before."""
    tensors: tuple[bytes, ...] | None = None
    """The bytes of the inputs on the wire: the expected outputs of a model that echoes. None if they are not compared.
    """

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    @property
    def head(self) -> bytes:
        """The head, with the empty line at its end."""
        return self.data[: len(self.data) - len(self.body)]

    @property
    def body(self) -> bytes:
        """The bytes after the head."""
        return self.data.partition(b"\r\n\r\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """An inference request, before it is put together."""

    document: dict[str, Any]
    """The JSON header."""
    tensors: tuple[bytes, ...]
    """The bytes of the inputs, in the order of the header; not sent if `is_binary` is false."""
    is_binary: bool
    probed: Input
    """The input that the probe is about, which is the last one."""

    @property
    def text(self) -> bytes:
        """The JSON header as it is sent."""
        return json.dumps(self.document, separators=(",", ":")).encode()

    @property
    def payload(self) -> bytes:
        """The bytes after the JSON header."""
        return b"".join(self.tensors) if self.is_binary else b""

    @property
    def tensor(self) -> bytes:
        """The bytes of the input that the probe is about."""
        return self.tensors[-1]

    @property
    def entry(self) -> dict[str, Any]:
        """The entry in the header of the input that the probe is about."""
        entry: dict[str, Any] = self.document["inputs"][-1]
        return entry

    def having(self, **members: object) -> Self:
        """Return a copy with other members; `ABSENT` leaves one out."""
        document = {key: value for key, value in {**self.document, **members}.items() if value is not ABSENT}
        return replace(self, document=document)

    def with_input(self, **members: object) -> Self:
        """Return a copy with other members in the input that the probe is about; `ABSENT` leaves one out."""
        entry = {key: value for key, value in {**self.entry, **members}.items() if value is not ABSENT}
        return self.having(inputs=[*self.document["inputs"][:-1], entry])

    def sized(self, size: object) -> Self:
        """Return a copy where the input declares another size."""
        return self.with_input(parameters={"binary_data_size": size})

    def carrying(self, tensor: bytes) -> Self:
        """Return a copy with other bytes for the input that the probe is about, and the same header."""
        return replace(self, tensors=(*self.tensors[:-1], tensor))

    def replaced(self, tensor: bytes) -> Self:
        """Return a copy with other bytes for the input that the probe is about, and with their size in the header."""
        return self.carrying(tensor).sized(len(tensor))
