"""Transfers: malformed chunks, and truncated requests."""

from __future__ import annotations

from collections.abc import Callable

from streamcodec.blackbox.messages import AfterSending, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.http import in_two
from streamcodec.blackbox.probes.sources import CAUTION, MESSAGING
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_CHUNKS = f"{MESSAGING}, section 7.1: a chunk is its size, CRLF, its bytes, CRLF"
_SIZES = f"{MESSAGING}, section 7.1: the size is hexadecimal digits"
_COMPLETE = f"{MESSAGING}, section 8: a request whose connection ends early is incomplete"


def _chunks(frame: Callable[[bytes], bytes]) -> Make:
    """Send the body of a good message in custom chunks."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form())
        return target.reframe(request, "Transfer-Encoding: chunked", body=frame(request.body))

    return make


def _sized(form: str) -> Make:
    """Write the size of the one chunk in another form."""
    return _chunks(lambda body: f"{form.format(n=len(body))}\r\n".encode() + body + b"\r\n0\r\n\r\n")


def _cut(where: Callable[[bytes], int], ending: AfterSending = AfterSending.CUTS) -> Make:
    """Send the first bytes of a good request."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form())
        return target.cut(request, where(request.data), ending)

    return make


def _cut_chunks(nbytes: int) -> Make:
    """Send a good request in chunks, without its last bytes."""

    def make(target: Target) -> RawRequest:
        request = _chunks(in_two)(target)
        return target.cut(request, len(request.data) - nbytes)

    return make


def _body(data: bytes) -> int:
    return data.index(b"\r\n\r\n") + 4


def _middle(data: bytes) -> int:
    return (_body(data) + len(data)) // 2


_INCOMPLETE = Expectation.REFUSE_OR_CLOSE

PROBES = (
    Probe("chunks/size-0x", _REFUSE, "a size with 0x", _SIZES, _sized("{n:#x}")),
    Probe("chunks/size-plus", _REFUSE, "a size with a plus sign", _SIZES, _sized("+{n:x}")),
    Probe("chunks/size-minus", _REFUSE, "a negative size", _SIZES, _sized("-{n:x}")),
    Probe("chunks/size-empty", _REFUSE, "no size", _SIZES, _sized("")),
    Probe("chunks/size-text", _REFUSE, "a size followed by letters", _SIZES, _sized("{n:x}xyz")),
    Probe("chunks/size-blank-before", _REFUSE, "a space before the size", _SIZES, _sized(" {n:x}")),
    Probe("chunks/size-wrapped", _REFUSE, "a size that is 2^64 too large", _SIZES, _sized("1{n:016x}")),
    Probe(
        "chunks/one-more",
        _REFUSE,
        "one byte more than the size",
        _CHUNKS,
        _chunks(lambda body: b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 1, body)),
    ),
    Probe(
        "chunks/no-line-end",
        _REFUSE,
        "two other bytes instead of the line end",
        _CHUNKS,
        _chunks(lambda body: b"%x\r\n%bXX0\r\n\r\n" % (len(body), body)),
    ),
    Probe(
        "chunks/bare-lf",
        _REFUSE,
        "lines that end in LF only",
        _CHUNKS,
        _chunks(lambda body: b"%x\n%b\n0\n\n" % (len(body), body)),
    ),
    Probe(
        "chunks/lf-in-extension",
        _REFUSE,
        "an extension with a bare LF",
        _CHUNKS,
        _chunks(lambda body: b"%x;a\nb\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
    ),
    Probe(
        "chunks/trailer-no-field",
        _REFUSE,
        "a line after the last chunk that is not a field",
        _CHUNKS,
        _chunks(lambda body: b"%x\r\n%b\r\n0\r\nno colon\r\n\r\n" % (len(body), body)),
    ),
    Probe("cuts/in-first-line", _INCOMPLETE, "the end within the first line", _COMPLETE, _cut(lambda _: 9)),
    Probe("cuts/in-head", _INCOMPLETE, "the end within the head", _COMPLETE, _cut(lambda data: _body(data) - 9)),
    Probe("cuts/before-body", _INCOMPLETE, "the end before the body", _COMPLETE, _cut(_body)),
    Probe("cuts/in-body", _INCOMPLETE, "the end in the middle of the body", _COMPLETE, _cut(_middle)),
    Probe("cuts/last-byte", _INCOMPLETE, "the end before the last byte", _COMPLETE, _cut(lambda data: len(data) - 1)),
    Probe("cuts/in-chunk", _INCOMPLETE, "the end within a chunk", _COMPLETE, _cut_chunks(9)),
    Probe("cuts/last-chunk", _INCOMPLETE, "the end before the empty chunk", _COMPLETE, _cut_chunks(5)),
    Probe(
        "cuts/reset-in-head",
        Expectation.SURVIVE,
        "a connection reset within the head",
        CAUTION,
        _cut(lambda data: _body(data) - 9, AfterSending.RESETS),
    ),
    Probe(
        "cuts/reset-in-body",
        Expectation.SURVIVE,
        "a connection reset in the middle of the body",
        CAUTION,
        _cut(_middle, AfterSending.RESETS),
    ),
    Probe(
        "cuts/reset-at-end",
        Expectation.SURVIVE,
        "a connection reset after the whole request",
        CAUTION,
        _cut(len, AfterSending.RESETS),
    ),
)
"""The probes of these groups."""
