"""HTTP: heads that a proxy and a server may read differently, and bytes that are not a request.

If a proxy and the server behind it disagree about the end of a request, an attacker can hide one request inside another
(request smuggling). So a server must refuse an ambiguous request, or at least close the connection after it. The body
is always a valid message, so that a server that does not check the head answers it.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import CAUTION, MESSAGING, SEMANTICS
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import INJECTED, Expectation

_REFUSE, _EITHER = Expectation.REFUSE, Expectation.EITHER
_LENGTH = f"{MESSAGING}, section 6.3: a length that is not a number is answered 400"
_BOTH = f"{MESSAGING}, section 6.1: Content-Length with Transfer-Encoding is refused, or is the last request"
_CODINGS = f"{MESSAGING}, section 6.1: chunked is the last coding, once; unknown codings are refused"
_NAMES = f"{MESSAGING}, section 5.1: no space between a name and its colon"
_VALUES = f"{SEMANTICS}, section 5.5: control characters are refused or replaced"
_HOST = f"{MESSAGING}, section 3.2: a request has one Host"
_SYNTAX = f"{MESSAGING}, section 2: a request line, fields, an empty line"
_SPLITTING = f"{SEMANTICS}, section 5.5: a field ends where its line ends"

_UNKNOWN = frozenset({501})
_VERSION = frozenset({505})
_TLS_HELLO = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(189))


def chunked(parts: Iterable[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    """Frame the parts of a body in chunks."""
    chunks = (b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts)
    return b"".join((*chunks, b"0\r\n", trailer, b"\r\n"))


def in_two(body: bytes) -> bytes:
    """Frame a body in two chunks."""
    return chunked((body[:5], body[5:]))


def _framed(*fields: str) -> Make:
    """Send a good message under other framing."""
    return lambda target: target.reframe(target.send(target.any_form()), *fields)


def _framed_chunks(*fields: str, version: str = "1.1") -> Make:
    """Send chunks under a head that says so, more or less."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form())
        return target.reframe(request, *fields, body=in_two(request.body), version=version)

    return make


def _smuggling(*fields: str, version: str = "1.1") -> Make:
    """Send chunks and one more request after them, at once. Two answers show that both were read."""

    def make(target: Target) -> RawRequest:
        first = _framed_chunks(*fields, version=version)(target)
        return RawRequest(pieces=(first.data + target.get("/v2/health/live").data,), answers=2)

    return make


def _replaced(old: str, new: str) -> Make:
    """Change the head of a good request, byte for byte; `{host}` is its host."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form())
        before, after = (text.format(host=target.authority).encode("latin-1") for text in (old, new))
        return RawRequest(pieces=(request.head.replace(before, after) + request.body,))

    return make


def _adding(line: str) -> Make:
    """Add a line to the head of a good request."""
    return lambda target: target.send(target.any_form(), line)


def _bytes(data: bytes) -> Make:
    return lambda _: RawRequest(pieces=(data,))


PROBES = (
    Probe(
        "http/length-and-chunks",
        Expectation.ANSWER_ONCE,
        "Content-Length and Transfer-Encoding",
        _BOTH,
        _smuggling("Content-Length: {n}", "Transfer-Encoding: chunked"),
    ),
    Probe(
        "http/short-length-and-chunks",
        Expectation.ANSWER_ONCE,
        "Transfer-Encoding and a Content-Length of 4",
        _BOTH,
        _smuggling("Transfer-Encoding: chunked", "Content-Length: 4"),
    ),
    Probe(
        "http/chunks-in-http-1.0",
        Expectation.ANSWER_ONCE,
        "Transfer-Encoding in HTTP/1.0",
        _BOTH,
        _smuggling("Transfer-Encoding: chunked", "Connection: keep-alive", version="1.0"),
    ),
    Probe(
        "http/two-lengths",
        _REFUSE,
        "two lengths, the first one right",
        _LENGTH,
        _framed("Content-Length: {n}", "Content-Length: 1"),
    ),
    Probe(
        "http/two-lengths-reversed",
        _REFUSE,
        "two lengths, the last one right",
        _LENGTH,
        _framed("Content-Length: 1", "Content-Length: {n}"),
    ),
    Probe(
        "http/length-list",
        _REFUSE,
        "two lengths with a comma, the first one right",
        _LENGTH,
        _framed("Content-Length: {n}, 1"),
    ),
    Probe("http/length-plus", _REFUSE, "a length with a plus sign", _LENGTH, _framed("Content-Length: +{n}")),
    Probe("http/length-minus", _REFUSE, "a negative length", _LENGTH, _framed("Content-Length: -{n}")),
    Probe("http/length-hexadecimal", _REFUSE, "a length in hexadecimal", _LENGTH, _framed("Content-Length: {n:#x}")),
    Probe("http/length-suffix", _REFUSE, "a length followed by letters", _LENGTH, _framed("Content-Length: {n}abc")),
    Probe("http/length-blank-inside", _REFUSE, "a length, a space and a 0", _LENGTH, _framed("Content-Length: {n} 0")),
    Probe("http/length-empty", _REFUSE, "an empty length", _LENGTH, _framed("Content-Length:")),
    Probe(
        "http/length-wrapped",
        _REFUSE,
        "a length above 2^64",
        _LENGTH,
        _framed(f"Content-Length: {(1 << 64) + 200}"),
    ),
    Probe("http/no-length", _REFUSE, "a body without Content-Length or Transfer-Encoding", _LENGTH, _framed()),
    Probe(
        "http/unknown-coding",
        _REFUSE,
        "an unknown transfer coding",
        _CODINGS,
        _framed_chunks("Transfer-Encoding: xchunked"),
        _UNKNOWN,
    ),
    Probe(
        "http/chunked-twice",
        _REFUSE,
        "chunked, chunked",
        _CODINGS,
        _framed_chunks("Transfer-Encoding: chunked, chunked"),
        _UNKNOWN,
    ),
    Probe(
        "http/chunked-not-last",
        _REFUSE,
        "chunked, gzip",
        _CODINGS,
        _framed_chunks("Transfer-Encoding: chunked, gzip"),
        _UNKNOWN,
    ),
    Probe(
        "http/chunked-with-control",
        _REFUSE,
        "chunked after a vertical tab",
        _CODINGS,
        _framed_chunks("Transfer-Encoding: \x0bchunked"),
        _UNKNOWN,
    ),
    Probe(
        "http/chunked-blank-name",
        _REFUSE,
        "Transfer-Encoding, a space and the colon",
        _NAMES,
        _framed_chunks("Transfer-Encoding : chunked"),
    ),
    Probe(
        "http/length-blank-name",
        _REFUSE,
        "Content-Length, a space and the colon",
        _NAMES,
        _framed("Content-Length : {n}"),
    ),
    Probe("http/blank-in-name", _REFUSE, "a field whose name has a space", _NAMES, _adding("x y: 1")),
    Probe("http/control-in-name", _REFUSE, "a field whose name has a control character", _NAMES, _adding("x\x01y: 1")),
    Probe("http/no-colon", _REFUSE, "a line that is not a field", _NAMES, _adding("no colon here")),
    Probe("http/nameless", _REFUSE, "a field without a name", _NAMES, _adding(": 1")),
    Probe("http/nul-in-value", _EITHER, "a field whose value has a NUL", _VALUES, _adding("x: a\0b")),
    Probe("http/bare-cr", _EITHER, "a field whose value has a bare CR", _VALUES, _adding("x: a\rb: c")),
    Probe(
        "http/folded",
        _EITHER,
        "a field that continues in the next line",
        f"{MESSAGING}, section 5.2: it is refused or joined",
        _adding("x: a\r\n b"),
    ),
    Probe(
        "http/bare-lf",
        _EITHER,
        "lines that end in LF only",
        f"{MESSAGING}, section 2.2: a server may read them",
        _replaced("\r\n", "\n"),
    ),
    Probe("http/no-host", _REFUSE, "no Host", _HOST, _replaced("Host: {host}\r\n", "")),
    Probe("http/two-hosts", _REFUSE, "two Host fields", _HOST, _adding("Host: elsewhere.example")),
    Probe(
        "http/version-3.0",
        _EITHER,
        "HTTP/3.0 in the first line",
        f"{MESSAGING}, section 2.3",
        _replaced("HTTP/1.1", "HTTP/3.0"),
        _VERSION,
    ),
    Probe(
        "http/version-text", _REFUSE, "HTTP/one in the first line", _SYNTAX, _replaced("HTTP/1.1", "HTTP/one"), _VERSION
    ),
    Probe(
        "http/unknown-expectation",
        _EITHER,
        "an unknown expectation",
        f"{SEMANTICS}, section 10.1.1: it may be 417",
        _adding("Expect: a-miracle"),
    ),
    Probe(
        "http/not-http",
        Expectation.REFUSE_OR_CLOSE,
        "a line of text",
        _SYNTAX,
        _bytes(b"hello, is somebody there?\r\n\r\n"),
    ),
    Probe("http/tls", Expectation.REFUSE_OR_CLOSE, "the beginning of TLS", _SYNTAX, _bytes(_TLS_HELLO + b"\r\n\r\n")),
    Probe(
        "http/http-2",
        Expectation.SURVIVE,
        "the beginning of HTTP/2, which the server may know",
        CAUTION,
        _bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ),
    Probe(
        "http/field-in-id",
        _EITHER,
        "an id with a line end and a field, escaped in JSON",
        _SPLITTING,
        lambda target: target.send(target.any_form().having(id=f"1\r\n{INJECTED}: 1\r\n\r\n"), checks=True),
    ),
)
"""The probes of this group."""
