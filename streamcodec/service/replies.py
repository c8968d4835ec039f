"""Replies: responses before they are written, and the one form of all errors.

An error is always `{"error": "..."}` as JSON with a matching status. It never contains a stack trace or the client's
input. It is never longer than 2 KiB, whatever names the client or the operator has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from streamcodec.engine.compression.inflate import ENCODINGS
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, shortened
from streamcodec.engine.message import Part
from streamcodec.engine.record import constructor, record, replaced
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD, VERTEX_AI_MEDIA_TYPE
from streamcodec.formats.v2.json.output import dump_json, to_json
from streamcodec.http.heads.statuses import checked_status, fields_for, has_content
from streamcodec.http.writing import encoded_fields

_MAX_ERROR_BYTES: Final = 2 << 10
_MAX_ERROR_CHARS: Final = _MAX_ERROR_BYTES // 6 - len('{"error":""}')
"""Limit for a text that is too long: a character takes at most 6 bytes, as control characters do."""


class WrittenFields(tuple[tuple[str, str], ...]):  # noqa: SLOT001 - a tuple can have none that are not empty
    """Fields of a response that are written already.

    Attributes:
        lines: the same fields as a connection writes them, their line ends included.
        has_length: whether `Content-Length` is one of them.
    """

    lines: bytes
    has_length: bool = True


def written_fields(fields: Sequence[tuple[str, str]], *, has_length: bool = True) -> WrittenFields:
    """Write fields that are always the same."""
    written = WrittenFields(fields)
    written.lines = encoded_fields(fields)
    written.has_length = has_length
    return written


_JSON_FIELDS: Final = written_fields([("Content-Type", "application/json")], has_length=False)


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
    lasts: bool = False
    """Whether the same head has the same reply until the `generation` of the registry changes."""


_reply: Final = constructor(Reply)


def complete_headers(reply: Reply) -> list[tuple[str, str]]:
    """Return the fields of a reply with its `Content-Length`, for servers that add none."""
    return cast("list[tuple[str, str]]", fields_for(reply.status, reply.headers, reply.body_length))


def lawful(reply: Reply) -> Reply:
    """Return a reply with nothing that its status does not allow: no body with 204, 205 or 304.

    Raises:
        LocalProtocolError: the status is not 200 to 599.
    """
    if has_content(checked_status(reply.status)):
        return reply
    return replaced(reply, headers=complete_headers(reply), buffers=(), body_length=0)


def sendable(reply: Reply) -> Reply:
    """Return a reply that is `lawful`; a failure instead of one that cannot be sent."""
    try:
        return lawful(reply)
    except LocalProtocolError as error:
        failure = failure_reply(str(error), status=500, cause=error)
        return replaced(failure, call=reply.call or "making an answer")


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
    return _reply(status=200, headers=headers, buffers=message.parts, body_length=message.body_length)


def json_reply(
    value: object,
    *,
    status: int = 200,
    headers: Sequence[tuple[str, str]] = (),
    cause: BaseException | None = None,
    refusal: MessageError | None = None,
) -> Reply:
    """Reply with a JSON document."""
    fields = [*_JSON_FIELDS, *headers] if headers else _JSON_FIELDS
    body = dump_json(value)
    return Reply(status=status, headers=fields, buffers=(body,), body_length=len(body), cause=cause, refusal=refusal)


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
    body = _error_body(text)
    if len(body) > _MAX_ERROR_BYTES:
        body = _error_body(shortened(text, _MAX_ERROR_CHARS))
    fields = [*_JSON_FIELDS, *headers] if headers else _JSON_FIELDS
    return Reply(status=status, headers=fields, buffers=(body,), body_length=len(body), cause=cause, refusal=refusal)


def _error_body(text: str) -> bytes:
    return f'{{"error":{to_json(text)}}}'.encode()  # a text takes a fifth of the time of an object


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
