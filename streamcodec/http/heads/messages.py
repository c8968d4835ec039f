"""Messages: the content of an HTTP head, as events.

The fields of a head are kept as h11 returns them: names in lower case, values without surrounding white space, both as
bytes. This room derives from them what a body needs: its length and its compression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamcodec.engine.compression.inflate import parse_content_encoding
from streamcodec.engine.record import record

if TYPE_CHECKING:
    from streamcodec.engine import events

    Event = events.Event
else:
    Event = object
    """What the receiver of a body reports is passed on. At run time it is any object: decoders, whose events have
    arrays, would import numpy."""

_NOT_PARSED: Final = ""
"""Placeholder for a content coding that has not been parsed yet."""


@record(eq=True, kw_only=False)
class Fields:
    """The fields of one head, in order."""

    items: tuple[tuple[bytes, bytes], ...]
    """Pairs of name (lower case) and value."""

    _by_name: dict[bytes, bytes] | None = None
    """The values, if whoever has made this object knows that no name comes twice."""
    _content_encoding: str | None = _NOT_PARSED

    @classmethod
    def of(cls, items: tuple[tuple[bytes, bytes], ...]) -> Fields:
        """Return the fields of these names (lower case) and values; each is found by its name if none comes twice."""
        by_name = dict(items)
        return cls(items, by_name if len(by_name) == len(items) else None)

    @classmethod
    def of_accepted(cls, head: bytes) -> Fields:
        """Return the fields of a head as it came, which has been accepted: no line of it is folded."""
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:-2]]
        return cls.of(tuple([(name.lower(), value.strip(b" \t")) for name, _, value in lines]))

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all fields of that name (lower case), in order."""
        if self._by_name is None:
            return [value for key, value in self.items if key == name]
        value = self._by_name.get(name)
        return [] if value is None else [value]

    @property
    def closes(self) -> bool:
        """Whether `Connection` has the option `close`: this message is the last one of its sender."""
        values = self.values(b"connection")
        return bool(values) and b"close" in map(bytes.strip, b",".join(values).lower().split(b","))

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks; a head with any other transfer coding is refused earlier."""
        return bool(self.values(b"transfer-encoding"))

    def encoding_of(self, content_length: int | None) -> str | None:
        """Return the compression of a body of `content_length` bytes on the wire, or None; an empty body has none.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        if content_length == 0:
            return None
        if self._content_encoding == _NOT_PARSED:  # several rooms ask once for every request
            values = self.values(b"content-encoding")
            object.__setattr__(self, "_content_encoding", parse_content_encoding(values) if values else None)
        return self._content_encoding

    def decoded_length(self, content_length: int | None) -> int | None:
        """Return the length for the decoder of a body with `content_length` bytes on the wire; None if it is not known.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        return content_length if self.encoding_of(content_length) is None else None


@record(eq=True)
class RequestHead:
    """The head of a request has arrived; the connection waits to be told where its body goes."""

    method: str
    """As sent, in any letter case."""
    target: str
    """The request target: path, and query if any, still percent-encoded."""
    fields: Fields
    """The head's fields."""
    content_length: int | None
    """Bytes of the body on the wire; 0 if there is no body, None if it is chunked."""

    @property
    def body_length(self) -> int | None:
        """Bytes of the body for the decoder; None if chunking or compression hides the number.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        return self.fields.decoded_length(self.content_length)


@record(eq=True)
class ResponseHead:
    """The head of a response has arrived; the connection waits to be told where its body goes."""

    status: int
    """Status code, 200 to 599."""
    fields: Fields
    """The head's fields."""
    content_length: int | None
    """Bytes of the body on the wire; 0 if there is no body, None if it is chunked or ends with the connection."""

    @property
    def body_length(self) -> int | None:
        """Bytes of the body for the decoder; None if chunking or compression hides the number.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
        """
        return self.fields.decoded_length(self.content_length)


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """No further message will come: the peer has closed between two messages, or the last message announced it."""


HttpEvent = RequestHead | ResponseHead | ConnectionClosed | Event
"""Everything that a connection reports; a `Decoder` reports a part of it."""
