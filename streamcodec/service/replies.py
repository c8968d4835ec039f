"""Replies: responses before they are written, and the one form of all errors.

An error is always `{"error": "..."}` as JSON with a matching status. It never contains a stack trace or the client's
input. It is never longer than 2 KiB, whatever names the client or the operator has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode, MessageError, shortened
from streamcodec.engine.inflate import ENCODINGS
from streamcodec.engine.message import Part
from streamcodec.engine.record import record
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD, VERTEX_AI_MEDIA_TYPE
from streamcodec.formats.v2.jsonoutput import dump_json

_MAX_ERROR_BYTES: Final = 2 << 10
_MAX_ERROR_CHARS: Final = _MAX_ERROR_BYTES // 6 - len('{"error":""}')
"""Limit for a text that is too long: a character takes at most 6 bytes, as control characters do."""


@record()
class Reply:
    """A response."""

    status: int
    """HTTP status code."""
    headers: Sequence[tuple[str, str]] = ()
    """Fields of the response; the connection adds its own."""
    buffers: tuple[Part, ...] = ()
    """The body. `Rows` in it are made while it is sent, by a thread if that takes long. They are windows of a model, or
    the text of large tensors that are answered as JSON."""
    body_length: int = 0
    """Bytes of the body, including parts that do not exist yet."""
    cause: BaseException | None = None
    """The exception of the model, for the server's log; it is not part of the response."""
    call: str = ""
    """Model, version and request in words, for the same log."""
    refusal: MessageError | None = None
    """The error of the request, for logs and metrics; its text is in the response."""


_BODILESS: Final = {204, 304}


def complete_headers(reply: Reply) -> list[tuple[str, str]]:
    """Return the fields of a reply with its `Content-Length`, for servers that add none."""
    headers = [*reply.headers]
    if reply.status not in _BODILESS and not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("Content-Length", str(reply.body_length)))
    return headers


def message_reply(message: EncodedMessage, media_type: str | None = None) -> Reply:
    """Reply with an inference response.

    Args:
        message: the response.
        media_type: of the request, if it gives the header's length: the reply has the same. Triton answers Vertex AI's
            media type with the usual field, and clients may look for it. So that reply has both.
    """
    headers = message.headers if media_type is None else message.headers_with(media_type)
    if media_type == VERTEX_AI_MEDIA_TYPE and message.header_length is not None:
        headers.append((HEADER_LENGTH_FIELD, str(message.header_length)))
    return Reply(status=200, headers=headers, buffers=message.parts, body_length=message.body_length)


def json_reply(
    value: object,
    *,
    status: int = 200,
    headers: Sequence[tuple[str, str]] = (),
    cause: BaseException | None = None,
    refusal: MessageError | None = None,
) -> Reply:
    """Reply with a JSON document."""
    headers = [("Content-Type", "application/json"), *headers]
    body = dump_json(value)
    return Reply(status=status, headers=headers, buffers=(body,), body_length=len(body), cause=cause, refusal=refusal)


def failure_reply(
    text: str,
    *,
    status: int,
    headers: Sequence[tuple[str, str]] = (),
    cause: BaseException | None = None,
    refusal: MessageError | None = None,
) -> Reply:
    """Reply with an error; a text that is too long is cut."""
    text = text.encode("utf-8", "backslashreplace").decode()  # a model's text may contain lone surrogates
    if len(dump_json({"error": text})) > _MAX_ERROR_BYTES:
        text = shortened(text, _MAX_ERROR_CHARS)
    return json_reply({"error": text}, status=status, headers=headers, cause=cause, refusal=refusal)


def error_reply(error: MessageError, *, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """Reply with the error of the client, and its place in the request."""
    if error.code is ErrorCode.UNSUPPORTED_ENCODING:
        headers = [*headers, ("Accept-Encoding", ", ".join((*ENCODINGS, "identity")))]
    if error.code is ErrorCode.OUT_OF_MEMORY:
        headers = [*headers, ("Retry-After", "1")]
    return failure_reply(str(error), status=error.status_hint, headers=headers, refusal=error)


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of an exception, and of those that it was raised from or contains.

    Their frames keep the memory of a request, and refer to its reply, which refers to the exception. So only the
    garbage collector would free that memory, long after it has ceased to count.
    """
    found, seen = [error], set[int]()
    while found:
        each = found.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        BaseException.with_traceback(each, None)  # the class of an exception may forbid to assign an attribute
        found += [before for before in (each.__cause__, each.__context__) if before is not None]
        if isinstance(each, BaseExceptionGroup):
            found += each.exceptions


def unavailable_reply(message: str, *, retry_after: int) -> Reply:
    """Reply that the server is full or shutting down; `retry_after` is in seconds."""
    return failure_reply(message, status=503, headers=[("Retry-After", str(retry_after))])
