"""UploadService: decides on the requests for uploads. Sans-IO.

The requests are those of draft-ietf-httpbis-resumable-upload: a request for inference with `Upload-Complete` begins an
upload, `HEAD` tells its offset, `PATCH` appends, and `DELETE` cancels it. The answer to the last portion is that of the
model.

The length of an upload is known from its beginning, and that of each portion from its head. So memory is asked for as
for every request, and no portion can bring a byte too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError, shown
from streamcodec.engine.record import replaced
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.replies import Reply, failure_reply
from streamcodec.service.request.inference import ResolvedHead
from streamcodec.service.routes import UPLOADS, Resource, find_route, path_of
from streamcodec.service.service import Service
from streamcodec.service.uploads.fields import INTEROP_VERSION, is_last, is_partial, knows_interim, number
from streamcodec.service.uploads.upload import Fields, Upload, UploadPart, UploadStore

_METHODS: Final = ("HEAD", "PATCH", "DELETE")
_INTERRUPTIONS: Final = frozenset({ErrorCode.TRUNCATED, ErrorCode.CONNECTION_CLOSED, ErrorCode.TOO_SLOW})
"""Errors of a connection. What has come before is right, and the upload can go on."""

_NO_ROOM: Final = failure_reply(
    "the server has the maximum number of uploads; send the request without them, or try again",
    status=503,
    headers=[("Retry-After", "1"), ("Upload-Limit", "max-size=0")],
)
"""`max-size` tells a client that it will do better without an upload (section 4.1.4 of the draft)."""


class UploadService:
    """Decides on the requests for uploads of one server.

    Attributes:
        uploads: those that there are.
    """

    def __init__(self, service: Service, uploads: UploadStore[Any]) -> None:
        """Decide for a service."""
        self._service = service
        self.uploads: UploadStore[Any] = uploads

    def open(self, head: RequestHead) -> Reply | UploadPart | None:
        """Decide on a request by its head.

        Returns:
            A portion that is to be received; or the reply; or None if the request has nothing to do with uploads.

        Raises:
            MessageError: the request is refused.
        """
        try:
            path = path_of(head.target)
        except ValueError:  # which the service refuses
            return None
        if path.startswith(UPLOADS):
            self._service.check_host(head)
            return self._open(head, path.removeprefix(UPLOADS))
        last = is_last(head)
        return None if last is None or head.method != "POST" else self._begin(head, last=last)

    def acknowledgement(self, portion: UploadPart) -> Reply:
        """Reply to a portion that is not the last one, and has come completely."""
        upload = portion.upload
        state = self._state(upload)
        if portion.interim is None:
            return Reply(status=204, headers=state)
        return Reply(status=201, headers=[("Location", UPLOADS + upload.id), *state])

    def may_go_on(self, portion: UploadPart, refusal: MessageError | None) -> bool:
        """Whether an upload goes on although this message of it has failed."""
        return refusal is not None and refusal.code in _INTERRUPTIONS and portion.can_go_on

    def _begin(self, head: RequestHead, *, last: bool) -> Reply | UploadPart | None:
        try:
            is_inference = find_route(head.target).resource is Resource.MODEL_INFER
        except MessageError:
            return None
        if not is_inference:
            return None
        whole = replaced(head, content_length=_length(head, last=last))
        resolved = self._service.open(whole)
        if not isinstance(resolved, ResolvedHead):
            return resolved if isinstance(resolved, Reply) else None
        if resolved.model.windows is not None:
            msg = "this model takes its input while it arrives, so an upload to it cannot be resumed"
            raise RemoteProtocolError(msg, code=ErrorCode.NOT_OFFERED)
        upload: Upload | None = self.uploads.begin(resolved, whole)
        if upload is None:
            return (
                None if last else _NO_ROOM
            )  # with the whole body on its way, a client does as well without resumption
        interim = [("Location", UPLOADS + upload.id), self._limits(upload)]
        fields = [("Upload-Draft-Interop-Version", INTEROP_VERSION), *interim] if knows_interim(head) else []
        return upload.part(head.content_length or 0, is_last=last, interim=fields)

    def _open(self, head: RequestHead, name: str) -> Reply | UploadPart:
        if head.method not in _METHODS:
            msg = f"an upload answers {', '.join(_METHODS)}, not {shown(head.method)}"
            error = RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
            return _refusal(error, [("Allow", ", ".join(_METHODS))])
        if head.method == "PATCH":
            return self._append(head, name)
        upload: Upload | Reply = self.uploads.find(name)
        if isinstance(upload, Reply):
            return upload
        if head.method == "DELETE":
            self.uploads.end(upload)
            return Reply(status=204)
        state = self._state(upload)
        self.uploads.let_be(upload)
        return Reply(status=204, headers=[*state, ("Cache-Control", "no-store")])

    def _append(self, head: RequestHead, name: str) -> Reply | UploadPart:
        last, offset, nbytes = is_last(head), number(head, b"upload-offset"), head.content_length
        if not is_partial(head):
            raise _mismatch("the media type of what is appended is application/partial-upload", 415)
        if head.fields.encoding_of(nbytes) is not None:
            raise _mismatch("a piece of an upload cannot be compressed", 415)
        if last is None or offset is None:
            raise _mismatch("PATCH needs Upload-Offset, a number, and Upload-Complete, which is ?0 or ?1")
        if nbytes is None:
            raise _length_required("a piece of an upload needs Content-Length, and cannot come in chunks")
        upload: Upload | Reply = self.uploads.find(name)
        if isinstance(upload, Reply):
            return upload
        reply = self._go_on(upload)
        if reply is None and offset != upload.offset:
            error = _mismatch(f"the upload goes on at byte {upload.offset}, not at {offset}", 409)
            reply = _refusal(error, self._state(upload))
        end = offset + nbytes
        declared = number(head, b"upload-length")
        ends_wrong = end > upload.length or (last and end < upload.length)
        if reply is None and (ends_wrong or declared not in {None, upload.length}):
            msg = f"the upload has {upload.length} bytes; this piece ends at byte {end}"
            reply = _refusal(_mismatch(msg), self._state(upload))
        if reply is None:
            return upload.part(nbytes, is_last=last)
        self.uploads.let_be(upload)
        return reply

    def _go_on(self, upload: Upload) -> Reply | None:
        """Prepare an upload for more bytes; return the reply if its model cannot take them now.

        Raises:
            RemoteProtocolError: `not-found`, status 404: the model has been replaced meanwhile.
        """
        resolved = self._service.open(upload.head)
        if isinstance(resolved, Reply) and resolved.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return resolved  # it will be ready later
        if isinstance(resolved, ResolvedHead) and upload.go_on(resolved):
            return None
        self.uploads.end(upload)
        if isinstance(resolved, Reply):
            return resolved
        msg = "the model has been replaced since the upload began; send the request again"
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)

    def _state(self, upload: Upload) -> Fields:
        return [
            ("Upload-Offset", str(upload.offset)),
            ("Upload-Complete", "?0"),
            ("Upload-Length", str(upload.length)),
            self._limits(upload),
        ]

    def _limits(self, upload: Upload) -> tuple[str, str]:
        return "Upload-Limit", f"max-size={self.uploads.max_bytes}, max-age={self.uploads.seconds_left(upload)}"


def _length(head: RequestHead, *, last: bool) -> int:
    """Return the length of the upload that a request begins.

    Raises:
        RemoteProtocolError: it is not known, or there are two, or less than what comes at once.
    """
    nbytes, length = head.content_length, number(head, b"upload-length")
    if nbytes is None:
        raise _length_required("an upload that can be resumed needs Content-Length, and cannot come in chunks")
    if head.fields.encoding_of(nbytes or None) is not None:
        raise _mismatch("an upload that can be resumed cannot be compressed", 415)
    if last and length not in {None, nbytes}:
        raise _mismatch(f"Upload-Length is {length}, and the whole upload that comes here has {nbytes} bytes")
    if last:
        return nbytes
    if length is None:
        raise _length_required("an upload that comes in several pieces needs Upload-Length from the beginning")
    if nbytes > length:
        raise _mismatch(f"Upload-Length is {length}, and {nbytes} bytes come at once")
    return length


def _mismatch(message: str, status: int = 400) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.UPLOAD_MISMATCH, status_hint=status)


def _length_required(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)


def _refusal(error: RemoteProtocolError, fields: Sequence[tuple[str, str]]) -> Reply:
    return failure_reply(str(error), status=error.status_hint, headers=fields, refusal=error)
