"""Errors: whose fault, which rule, and where.

The class of an error answers two questions. *Whose fault is it?* `LocalProtocolError`: this program misused the
library. `RemoteProtocolError`: the peer sent something that the protocol forbids. *How should a server answer?* A
remote error has `status_hint`, the HTTP status that fits.

A remote error also says where the problem is. `code` is a stable name of the broken rule, for programs. `offset` counts
bytes from the start of the message body. `path` points into the JSON header. Messages say what was found and what was
expected, and never quote tensor content. If bytes from a peer raise any other exception, that is a bug of this library.
"""

from __future__ import annotations

from enum import StrEnum
from operator import index
from typing import Any, Final, final

ERROR_PAGE: Final = "docs/reference/errors.md"
"""The page that explains the codes. The project has no site of its own yet, so this is its path in the repository and
in the source distribution. A site's address belongs here, and nowhere else."""


@final
class ErrorCode(StrEnum):
    """Stable names of everything a peer can do wrong; `RemoteProtocolError.code` is one of them."""

    # Framing of the message
    INVALID_HEADER_LENGTH = "invalid-header-length"
    """`Inference-Header-Content-Length` or the media type's `json-header-size` is not one plain decimal number, or they
    differ."""
    HEADER_EXCEEDS_BODY = "header-exceeds-body"
    """The declared length of the JSON header is larger than the body."""
    EMPTY_BODY = "empty-body"
    """There is no body where a message was expected."""
    TRUNCATED = "truncated"
    """The bytes end before the message does."""
    TRAILING_BYTES = "trailing-bytes"
    """The body goes on after the message has ended."""
    BODY_LENGTH_MISMATCH = "body-length-mismatch"
    """The header and its tensors do not add up to the length of the body."""
    INVALID_FRAME = "invalid-frame"
    """The head of a frame is missing, damaged, or has a value that this version of the format does not know."""
    INVALID_CHECKSUM = "invalid-checksum"
    """The checksum at the end is not the checksum of the bytes before it."""
    LENGTH_REQUIRED = "length-required"
    """The form of the request needs a `Content-Length`."""

    # JSON text
    INVALID_UTF8 = "invalid-utf8"
    """The header is not strict UTF-8, has a byte order mark, or holds a lone surrogate."""
    INVALID_JSON = "invalid-json"
    """The header is not JSON by RFC 8259."""
    DUPLICATE_KEY = "duplicate-key"
    """An object of the header has a member twice."""
    NON_FINITE_NUMBER = "non-finite-number"
    """NaN or Infinity outside of the data of an FP32 or FP64 tensor."""

    # The header's members
    INVALID_HEADER = "invalid-header"
    """The header is not a JSON object."""
    MISSING_MEMBER = "missing-member"
    """A required member is absent or null."""
    INVALID_MEMBER = "invalid-member"
    """A member has the wrong JSON type or an impossible value."""
    DUPLICATE_NAME = "duplicate-name"
    """Two tensors, or two requested outputs, have one name."""
    UNKNOWN_DATATYPE = "unknown-datatype"
    """`datatype` is none of the 14 of the specification."""
    INVALID_SHAPE = "invalid-shape"
    """`shape` is not an array of integers >= 0."""
    AMBIGUOUS_SOURCE = "ambiguous-source"
    """A tensor has both `data` and `binary_data_size`."""
    BINARY_SIZE_MISMATCH = "binary-size-mismatch"
    """`binary_data_size` is not what shape and datatype need."""

    # Tensor content
    INVALID_DATA = "invalid-data"
    """`data` does not have the shape, or holds a value that is not of the datatype."""
    JSON_NOT_SUPPORTED = "json-not-supported"
    """FP16 and BF16 have no JSON form."""
    INVALID_BOOL = "invalid-bool"
    """A byte of a binary BOOL tensor is neither 0 nor 1."""
    INVALID_ELEMENTS = "invalid-elements"
    """The length prefixes of a BYTES tensor do not fill it exactly."""

    # Compression
    UNSUPPORTED_ENCODING = "unsupported-encoding"
    """`Content-Encoding` is not supported."""
    INVALID_COMPRESSION = "invalid-compression"
    """The compressed body is damaged, cut short or followed by something else."""

    # Resources
    LIMIT_EXCEEDED = "limit-exceeded"
    """Well formed, but larger than the receiver's `Limits` allow."""

    OUT_OF_MEMORY = "out-of-memory"
    """Within the limits, but this machine cannot reserve the memory."""

    # HTTP
    INVALID_HTTP = "invalid-http"
    """The bytes are not HTTP/1.1 as RFC 9112 defines it."""
    AMBIGUOUS_FRAMING = "ambiguous-framing"
    """`Content-Length` together with `Transfer-Encoding`, which is used for request smuggling."""
    CONNECTION_CLOSED = "connection-closed"
    """The peer closed the connection in the middle of a message."""
    TOO_SLOW = "too-slow"
    """The rest of a message did not come in time."""
    UNSUPPORTED_EXPECTATION = "unsupported-expectation"
    """An `Expect` other than `100-continue`."""

    # The V2 service
    NOT_FOUND = "not-found"
    """No such route, model or version."""
    MISDIRECTED = "misdirected"
    """The request is for a host that this server does not answer for."""
    METHOD_NOT_ALLOWED = "method-not-allowed"
    """The route exists, but not for this method."""
    NOT_OFFERED = "not-offered"
    """The request asks for an extension of the protocol that this server does not offer, or does not offer now."""
    UPLOAD_MISMATCH = "upload-mismatch"
    """The request does not fit the upload that it names, or lacks what a request for an upload needs."""
    MODEL_MISMATCH = "model-mismatch"
    """The request is well formed, but not for this model: its tensors have other names, datatypes or shapes."""
    ERROR_RESPONSE = "error-response"
    """The server answered with an error status."""

    @property
    def link(self) -> str:
        """The section of the documentation about this code: meaning, example, remedy, and who sends such messages."""
        return f"{ERROR_PAGE}#{self}"


class ProtocolError(Exception):
    """Base class of everything this library raises on purpose."""


class LocalProtocolError(ProtocolError):
    """This program misused the library; the peer has done nothing wrong."""


class NotRepresentableError(LocalProtocolError):
    """A tensor was to be written in a form that cannot hold it, such as FP16 as JSON."""


FINAL_STATUSES: Final = range(200, 600)
"""Statuses with which a request can be answered. Others are interim, or have no meaning."""


class MessageError(ProtocolError):
    """A message is refused: it breaks a rule (`RemoteProtocolError`), or there is no memory (`OutOfMemoryError`).

    Attributes:
        code: stable slug of the rule that was broken.
        message: what was found and what was expected, for people.
        offset: byte of the message body where the problem is, counted from 0; None if there is no such byte.
        path: member of the JSON header, as `$.inputs[0].shape`; None if the error is not about a member.
        status_hint: suitable HTTP status for the answer, 200 to 599.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode,
        offset: int | None = None,
        path: str | None = None,
        status_hint: int = 400,
    ) -> None:
        """Describe what the peer did; see the class for the meaning of each argument.

        Raises:
            LocalProtocolError: no answer can have the `status_hint`.
        """
        if not hasattr(status_hint, "__index__") or status_hint not in FINAL_STATUSES:  # 404.0 would be one of them
            msg = f"status_hint is {status_hint!r}, and the status of an answer is 200 to 599, as an int"
            raise LocalProtocolError(msg)
        super().__init__(message)
        self.message = message
        self.code = code
        self.offset = offset
        self.path = path
        self.status_hint = index(status_hint)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make errors copyable and picklable; the default would call the class with the message alone."""
        return _restore, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        """Return the message, followed by the place where there is one."""
        place = [part for part in (self.path, None if self.offset is None else f"byte {self.offset}") if part]
        return f"{self.message} ({', '.join(place)})" if place else self.message


class RemoteProtocolError(MessageError):
    """The peer sent something that the protocol forbids."""


class OutOfMemoryError(MessageError):
    """The message is within the limits, but this machine has no memory for it now. Not the peer's fault: try again."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        """Say what there is no memory for."""
        super().__init__(message, code=ErrorCode.OUT_OF_MEMORY, offset=offset, status_hint=503)


def _restore(kind: type[MessageError], arguments: tuple[Any, ...], state: dict[str, Any]) -> MessageError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class LimitExceededError(RemoteProtocolError):
    """The message may be well formed, but it is larger than this receiver allows.

    Attributes:
        limit: name of the field of `Limits` that was exceeded.
    """

    def __init__(
        self,
        message: str,
        *,
        limit: str,
        offset: int | None = None,
        path: str | None = None,
        status_hint: int = 413,
    ) -> None:
        """Describe the excess; `limit` is the field's name."""
        super().__init__(message, code=ErrorCode.LIMIT_EXCEEDED, offset=offset, path=path, status_hint=status_hint)
        self.limit = limit


def kind_of(value: object) -> str:
    """Return the name of a value's type, for an error message."""
    return "None" if value is None else f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def shown(text: str) -> str:
    """Quote a name from the peer for a message: escaped, and cut so that the peer cannot choose our log volume."""
    longest = 60
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."


def printable(text: str) -> str:
    """Return a text from the peer in a form that is safe for a log or a terminal, on one line.

    Control characters, marks that change the direction of writing, and lone surrogates are escaped as in a Python
    string. Control characters could otherwise change the state of a terminal.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, longest: int) -> str:
    """Shorten a text within its second half. Its end is kept: it often says what the message is about."""
    gap = "..."
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - len(gap) - end]}{gap}{text[-end:]}"
