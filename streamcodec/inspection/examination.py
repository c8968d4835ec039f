"""Examination: reads one message with the decoder of its form, and puts the report together.

All forms go the same way: bytes are read from the source, kept on a tape, and fed to a decoder whose tensors pass
through a window. An HTTP connection has the same interface, and the tape then has the decoded body. So offsets in a
report are those of the decoders: bytes of the body, of the frame or of the file.

Limits of the length of tensors and messages do not apply here: a report may well be about a message that is too large
for a server. All other limits are the defaults.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, HeaderReceived, TensorReceived
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.frame import request_frame_decoder, response_frame_decoder
from streamcodec.formats.npy import Archive
from streamcodec.formats.npy import decoder as npy_decoder
from streamcodec.formats.safetensors import decoder as safetensors_decoder
from streamcodec.formats.v2.decoder import raw_request_decoder, request_decoder, response_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http.heads.messages import RequestHead, ResponseHead
from streamcodec.inspection.collecting import TensorCollector
from streamcodec.inspection.forms import Form, body_form, is_inference, recognise
from streamcodec.inspection.headers import (
    FRAME_HEAD_BYTES,
    LIMITS,
    declared_header,
    found_header_length,
    header_bytes,
    header_extent,
    header_text,
)
from streamcodec.inspection.places import locate
from streamcodec.inspection.report import Failure, Head, HexView, Report, Segment
from streamcodec.inspection.tape import Tape
from streamcodec.inspection.watching import HttpMessage

_READ_BYTES: Final = 1 << 20
_BEGINNING_BYTES: Final = 64 << 10
_LINE_BYTES: Final = 16
_LINES_AROUND: Final = 4
_RESPONSE_FRAME: Final = 1
_OK: Final = 200

_INTERIM: Final = re.compile(rb"(?:\r\n|HTTP/1\.[01] 1[0-9]{2}[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n)*")
_HTTP: Final = {Form.HTTP_REQUEST, Form.HTTP_RESPONSE}
_RESPONSES: Final = {Form.HTTP_RESPONSE, Form.RESPONSE}
_SEVERAL: Final = {*_HTTP, Form.FRAME}
"""Forms of which several messages may follow each other."""
_V2: Final = {*_HTTP, Form.FRAME, Form.REQUEST, Form.RESPONSE}
_BEFORE_HEADER: Final = {Form.FRAME: "frame head", Form.SAFETENSORS: "length of the header", Form.NPY: "magic, version"}
_BETWEEN: Final = {Form.FRAME: "checksum", Form.NPZ: "zip and npy headers"}


class Source(Protocol):
    """Where the bytes of a message come from."""

    @property
    def name(self) -> str:
        """For the report."""
        ...

    @property
    def nbytes(self) -> int | None:
        """Length of the file; None if it is a pipe."""
        ...

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        ...

    def read_at(self, start: int, size: int) -> bytes:
        """Return bytes from anywhere, without effect on `read`; none if that is not possible."""
        ...


def examine(source: Source, *, form: Form | None = None, header_length: int | None = None) -> Report:
    """Read one message, and report what it holds.

    Args:
        source: its bytes.
        form: what it is; None to recognise it by its first bytes.
        header_length: bytes of the JSON header of a body; None to find its end, as `allow_headerless` does.

    Raises:
        OSError: the source cannot be read.
        LocalProtocolError: the form or the length of the header does not suit such a source.
    """
    examination = _Examination(source, form, header_length)
    try:
        examination.read()
    except MessageError as error:
        return examination.report(error)
    return examination.report(None)


class _Examination:
    """The state of one examination."""

    def __init__(self, source: Source, form: Form | None, header_length: int | None) -> None:
        self._source = source
        start = b""
        while len(start) < _BEGINNING_BYTES and (part := source.read(_BEGINNING_BYTES - len(start))):
            start += part
        self._beginning = start
        if form is None:
            form = recognise(self._beginning, source.name) if header_length is None else body_form(self._beginning)
        self._form = form
        self._header_length = header_length
        self._tape = Tape()
        self._collector = TensorCollector()
        self._chunk = memoryview(self._beginning)
        self._read_bytes = len(self._beginning)
        self._base = self._end = 0  # of the current message; an archive has one for each array
        self._has_header = self._is_document = False
        self._is_identity = form not in _HTTP  # whether the body stands in the file as it is
        self._notes: list[str] = []
        if self._is_identity:
            self._tape.add(self._chunk)

    # Reading

    def read(self) -> None:
        """Read the message.

        Raises:
            MessageError: it is refused.
        """
        if self._form is Form.NPZ:
            archive = Archive(LIMITS)
            while not archive.is_complete:
                self._drive(archive.decoder(place=self._collector.place))
                self._base = self._end
            return
        kept = 0
        if self._form in _HTTP:
            message = HttpMessage(self._choose, self._tape, LIMITS, is_response=self._form is Form.HTTP_RESPONSE)
            self._drive(message)
            kept = message.kept
        else:
            self._drive(self._decoder())
        self._check_rest(kept)

    def _decoder(self) -> Decoder[Any]:
        length, place = self._source.nbytes, self._collector.place
        if self._form is Form.SAFETENSORS:
            return safetensors_decoder(length=length, limits=LIMITS, place=place)
        if self._form is Form.NPY:
            return npy_decoder(length=length, limits=LIMITS, place=place)
        if self._form is Form.FRAME:
            is_response = self._beginning[9:10] == bytes([_RESPONSE_FRAME])
            return (response_frame_decoder if is_response else request_frame_decoder)(limits=LIMITS, place=place)
        if self._header_length == 0:
            return self._raw_decoder(length)
        if self._header_length is None:
            self._header_length = found_header_length(self._beginning, length, is_response=self._form in _RESPONSES)
            if self._header_length is not None:
                self._notes.append(f"the length of the JSON header is not declared; {self._header_length} was found")
        return self._body_decoder(self._header_length, length)

    def _body_decoder(self, header_length: int | None, body_length: int | None) -> Decoder[Any]:
        make = response_decoder if self._form in _RESPONSES else request_decoder
        return make(
            header_length=header_length,
            body_length=body_length,
            allow_headerless=True,
            limits=LIMITS,
            place=self._collector.place,
        )

    def _raw_decoder(self, length: int | None) -> Decoder[Any]:
        if length is None:
            msg = "the length of a raw body must be known: a file, or an HTTP message with Content-Length"
            raise LocalProtocolError(msg)
        self._notes.append("raw binary request: the model's metadata give its datatype and shape; shown as UINT8")
        spec = TensorSpec(name="(raw)", datatype=DATATYPES["UINT8"], shape=(length,), nbytes=length, offset=0)
        return raw_request_decoder(spec, limits=LIMITS, place=self._collector.place)

    def _choose(self, head: RequestHead | ResponseHead) -> Decoder[Any] | None:
        """Return the decoder for the body of an HTTP message; None if it is no inference message."""
        encoding = head.fields.encoding_of(head.content_length)
        self._is_identity = head.content_length is not None and encoding is None
        coding = " and ".join(["chunked"] * head.fields.is_chunked + ([f"compressed ({encoding})"] if encoding else []))
        if coding:
            self._notes.append(f"the body is {coding}; its offsets and sizes are those of the decoded bytes")
        self._header_length = header_length_of(head.fields)
        if not self._holds_inference(head):
            self._notes.append("the body is no inference message; it is shown and not checked")
            self._is_document = True
            return None
        if self._header_length == 0 and isinstance(head, RequestHead):
            return self._raw_decoder(head.body_length)
        return self._body_decoder(self._header_length, head.body_length)

    def _holds_inference(self, head: RequestHead | ResponseHead) -> bool:
        if isinstance(head, RequestHead):
            return head.method == "POST"
        if head.status != _OK or self._header_length is not None or not self._is_identity:
            return head.status == _OK
        return is_inference(self._beginning[self._head_end :])

    def _drive(self, decoder: Decoder[Any] | HttpMessage) -> None:
        """Read one message to its end."""
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            if event is NEED_DATA:
                self._feed(decoder)
            elif isinstance(event, HeaderReceived):
                self._has_header = True
                before = FRAME_HEAD_BYTES if self._form is Form.FRAME else self._base
                self._collector.expect(event.header.tensors, before)
            elif isinstance(event, TensorReceived):
                self._collector.add(event)
        self._end += event.nbytes

    def _feed(self, decoder: Decoder[Any] | HttpMessage) -> None:
        if not self._chunk:
            self._chunk = memoryview(self._source.read(_READ_BYTES))
            self._read_bytes += len(self._chunk)
            if self._form not in _HTTP:
                self._tape.add(self._chunk)
        if self._chunk:
            self._chunk = self._chunk[decoder.feed(self._chunk) :]
        else:
            decoder.receive_eof()

    def _check_rest(self, kept: int) -> None:
        """Refuse bytes after the message, or note them where another message may follow."""
        rest = len(self._chunk) + kept
        if self._source.nbytes is not None:
            rest += max(0, self._source.nbytes - self._read_bytes)
        elif not rest:
            rest = len(self._source.read(1))
        if not rest:
            return
        if self._form not in _SEVERAL:
            msg = "the input goes on after the message has ended"
            raise RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self._end)
        count = f"{rest} bytes" if self._source.nbytes is not None else "bytes"
        self._notes.append(f"{count} follow the message, such as the next one; only the first message is inspected")

    # The report

    def report(self, error: MessageError | None) -> Report:
        """Put the report together.

        Args:
            error: why the message was refused; None if it is valid.
        """
        head = self._head()
        extent = self._extent()
        text = header_bytes(self._tape, extent)
        if error is not None and not self._has_header and extent is not None and self._form in _V2:
            self._expect_what_was_declared(text, extent)
        tensors = self._collector.reports
        end = self._source.nbytes if self._form not in _HTTP else None
        known = [(each.offset, each.nbytes, each.name) for each in tensors if each.offset is not None]
        return Report(
            source=self._source.name,
            form=self._form.value,
            nbytes=self._source.nbytes,
            head=head,
            header=header_text(self._form, self._tape, extent),
            segments=_segments(self._form, head, extent, known, end or self._tape.count),
            tensors=tensors,
            failure=None if error is None else self._failure(error, text, extent),
            notes=tuple(self._notes),
        )

    @property
    def _head_start(self) -> int:
        """Bytes before the head: interim responses, such as `100 Continue`, or an empty line."""
        found = _INTERIM.match(self._beginning)
        return found.end() if found else 0

    @property
    def _head_end(self) -> int:
        end = self._beginning.find(b"\r\n\r\n", self._head_start)
        return end + 4 if end >= 0 else len(self._beginning)

    def _head(self) -> Head | None:
        if self._form not in _HTTP:
            return None
        lines = self._beginning[self._head_start : self._head_end].decode("latin-1").strip("\r\n").split("\r\n")
        fields = [line.partition(":") for line in lines[1 : 1 + LIMITS.max_head_fields]]
        return Head(
            start_line=lines[0][: LIMITS.max_document_bytes],
            fields=tuple((name, value.strip(" \t")) for name, _, value in fields),
            nbytes=self._head_end,
        )

    def _extent(self) -> tuple[int, int] | None:
        """Return begin and end of the header; None if its end is not known."""
        if self._is_document:
            return 0, self._tape.count
        offsets = [each.offset for each in self._collector.reports if each.offset is not None]
        if self._has_header and self._form in _V2 and self._form is not Form.FRAME and self._header_length is None:
            return 0, min(offsets, default=self._tape.count)
        return header_extent(self._form, self._tape, self._header_length)

    def _expect_what_was_declared(self, text: bytes, extent: tuple[int, int]) -> None:
        """List the tensors of a header that is valid by itself, though the message is not."""
        is_response = self._form in _RESPONSES or self._beginning[9:10] == bytes([_RESPONSE_FRAME])
        header = declared_header(text, is_response=is_response)
        if header is not None:
            self._collector.expect(header.tensors, extent[0])

    def _failure(self, error: MessageError, text: bytes, extent: tuple[int, int] | None) -> Failure:
        begin = 0 if extent is None else extent[0]
        offset = None if error.offset is None else self._base + error.offset
        if offset is None and error.path is not None and text:
            place = text.find(error.path.encode()) if self._form is Form.NPY else None
            if self._form is not Form.NPY:
                place = locate(text, error.path, is_last=error.code is ErrorCode.DUPLICATE_KEY)
            offset = None if place is None or place < 0 else begin + place
        return Failure(
            code=error.code.value,
            link=error.code.link,
            message=error.message,
            path=error.path,
            offset=offset,
            view=None if offset is None else self._view(offset),
        )

    def _view(self, offset: int) -> HexView:
        """Return the lines around a byte, from the tape or from the file."""
        start = max(0, offset // _LINE_BYTES - _LINES_AROUND) * _LINE_BYTES
        size = (2 * _LINES_AROUND + 1) * _LINE_BYTES
        data = self._tape.between(start, start + size)
        if start + len(data) <= offset + 1 and self._is_identity:
            before = self._head_end if self._form in _HTTP else 0
            data = self._source.read_at(before + start, size) or data
        return HexView(start=start, data=data, marked=offset)


def _segments(
    form: Form, head: Head | None, extent: tuple[int, int] | None, known: list[tuple[int, int, str]], end: int
) -> tuple[Segment, ...]:
    """Return the parts of a message, with the gaps between them; tensors may be declared beyond its end."""
    shift = 0 if head is None else head.nbytes
    parts = [] if head is None else [Segment(name="HTTP head", kind="head", start=0, nbytes=shift)]
    position = 0
    if extent is not None:
        position = _add_gap(parts, shift, 0, extent[0], _BEFORE_HEADER.get(form, "other bytes"))
        nbytes = max(0, min(extent[1], end) - position)
        parts.append(Segment(name="header", kind="header", start=shift + position, nbytes=nbytes))
        position += nbytes
    gap = _BETWEEN.get(form, "other bytes")
    for offset, nbytes, name in known:
        position = _add_gap(parts, shift, position, offset, gap)
        parts.append(Segment(name=name, kind="tensor", start=shift + offset, nbytes=nbytes))
        position = offset + nbytes
    _add_gap(parts, shift, position, end, gap)
    return tuple(parts)


def _add_gap(parts: list[Segment], shift: int, position: int, end: int, name: str) -> int:
    if end > position:
        parts.append(Segment(name=name, kind="other", start=shift + position, nbytes=end - position))
    return max(position, end)
