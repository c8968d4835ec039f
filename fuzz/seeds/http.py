"""Seeds of the connections: the framings that there are, and what a smuggler would send."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from targets.case import Face
from targets.connections import Case, Role

_NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
_WAYS: dict[str, dict[str, Any]] = {
    "": {"first_piece": 9, "face": Face.SCATTER},
    "-refused": {"refuses": True, "piece": 40, "face": Face.PUSH},
    "-limited": {"is_limited": True, "piece": 3, "has_eof": False},
}


def seeds() -> Iterator[tuple[str, Case]]:
    """Yield every seed with its name."""
    for name, (lines, body) in _REQUESTS.items():
        start = b"" if lines.startswith(b"GET") else b"POST /v2 HTTP/1.1\r\nHost: x\r\n"
        for suffix, way in _WAYS.items():
            stream = start + lines + b"\r\n" + body + _NEXT
            yield f"request-{name}{suffix}", Case(stream=stream, has_short_chunks=True, **way)
    for name, (head, body) in _RESPONSES.items():
        stream = b"HTTP/1.1 %b\r\n\r\n%b" % (head, body)
        yield f"response-{name}", Case(stream=stream, role=Role.CLIENT, piece=5)
        yield f"response-{name}-head", Case(stream=stream, role=Role.CLIENT, method="HEAD", has_eof=False)


_CHUNKS = b"5\r\n12345\r\n14;a=b\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n"
_TE = b"Transfer-Encoding: chunked\r\n"
_STORED = b"\1\5\0\xfa\xff12345"
"""As deflate writes it without compressing, which is the same with every version of zlib."""
_GZIP = b"\x1f\x8b\x08" + bytes(7) + _STORED + zlib.crc32(b"12345").to_bytes(4, "little") + b"\5\0\0\0"
_SAGEMAKER = b"application/vnd.sagemaker-triton.binary+json"
_VERTEX_AI = b"application/vnd.vertex-ai-triton.binary+json"
_REQUESTS: dict[str, tuple[bytes, bytes]] = {
    "length": (b"Content-Length: 5\r\n", b"12345"),
    "length-zero": (b"Content-Length: 0\r\n", b""),
    "length-none": (b"", b""),
    "length-twice": (b"Content-Length: 5\r\nContent-Length: 5\r\n", b"12345"),
    "length-differs": (b"Content-Length: 5\r\nContent-Length: 6\r\n", b"12345"),
    "length-list": (b"Content-Length: 5, 5\r\n", b"12345"),
    "length-sign": (b"Content-Length: +5\r\n", b"12345"),
    "length-huge": (b"Content-Length: 99999999999999999999999\r\n", b"12345"),
    "length-and-chunked": (b"Content-Length: 5\r\n" + _TE, _CHUNKS),
    "chunked": (_TE, _CHUNKS),
    "chunked-upper": (b"TRANSFER-ENCODING: Chunked\r\n", _CHUNKS),
    "chunked-twice": (_TE + _TE, _CHUNKS),
    "chunked-identity": (b"Transfer-Encoding: identity\r\n", _CHUNKS),
    "chunked-gzip": (b"Transfer-Encoding: gzip, chunked\r\n", _CHUNKS),
    "chunked-space": (b"Transfer-Encoding : chunked\r\n", _CHUNKS),
    "chunked-trailers": (_TE, b"1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n"),
    "chunked-trailing-codings": (_TE, b"1\r\na\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n"),
    "chunked-trailing-codings-twice": (_TE, b"1\r\na\r\n0\r\n" + _TE + _TE + b"\r\n"),
    "chunked-trailing-length": (_TE, b"1\r\na\r\n0\r\nContent-Length: 1\r\n\r\n"),
    "chunked-trailing-length-bad": (_TE, b"1\r\na\r\n0\r\nContent-Length: a\r\n\r\n"),
    "chunked-trailing-lengths": (_TE, b"1\r\na\r\n0\r\nContent-Length: 1, 2\r\n\r\n"),
    "chunked-folded": (_TE, b"1\r\na\r\n0\r\nA: b\r\n c\r\n\r\n"),
    "chunked-bare-lf": (_TE, b"1\na\n0\n\n"),
    "chunked-no-terminator": (_TE, b"5\r\n12345XX0\r\n\r\n"),
    "chunked-quoted": (_TE, b'5;a="\\";b" ; c\r\n12345\r\n0\r\n\r\n'),
    "chunked-space-in-front": (_TE, b"5 ;a\r\n12345\r\n0\r\n\r\n"),
    "chunked-zeros": (_TE, b"0000000000000005\r\n12345\r\n000\r\n\r\n"),
    "chunked-many-digits": (_TE, b"00000000000000005\r\n12345\r\n0\r\n\r\n"),
    "chunked-negative": (_TE, b"-5\r\n12345\r\n0\r\n\r\n"),
    "chunked-1.0": (b"GET / HTTP/1.0\r\n" + _TE, _CHUNKS),
    "continue": (b"Expect: 100-continue\r\nContent-Length: 5\r\n", b"12345"),
    "continue-chunked": (b"Expect: 100-Continue\r\n" + _TE, _CHUNKS),
    "expect-other": (b"Expect: 200-ok\r\nContent-Length: 5\r\n", b"12345"),
    "close": (b"Connection: close\r\n", b""),
    "upgrade": (b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b""),
    "folded": (b"A: b\r\n c\r\nContent-Length: 5\r\n", b"12345"),
    "bare-lf": (b"A: b\nContent-Length: 5\r\n", b"12345"),
    "bare-cr": (b"A: b\rContent-Length: 5\r\n", b"12345"),
    "fields-many": (b"A:\r\n" * 257, b""),
    "nul": (b"A: \0\r\n", b""),
    "no-colon": (b"A\r\n", b""),
    "long": (b"A: " + b"b" * 200 + b"\r\n", b""),
    "gzip": (b"Content-Encoding: gzip\r\nContent-Length: 5\r\n", b"12345"),
    "deflate": (b"Content-Encoding: deflate\r\nContent-Length: 11\r\n", zlib.compress(b"a" * 90)[:11]),
    "gzip-whole": (b"Content-Encoding: x-gzip\r\nContent-Length: %d\r\n" % len(_GZIP), _GZIP),
    "deflate-whole": (b"Content-Encoding: deflate\r\n" + _TE, b"%x\r\n%b\r\n0\r\n\r\n" % (len(_STORED), _STORED)),
    "gzip-empty": (b"Content-Encoding: gzip\r\nContent-Length: 0\r\n", b""),
    "brotli": (b"Content-Encoding: br\r\nContent-Length: 5\r\n", b"12345"),
    "old": (b"GET / HTTP/1.0\r\nContent-Length: 5\r\n", b"12345"),
    "version-2": (b"GET / HTTP/2.0\r\nHost: x\r\n", b""),
    "no-host": (b"GET / HTTP/1.1\r\n", b""),
    "absolute": (b"GET http://y/ HTTP/1.1\r\nHost: x\r\n", b""),
    "header-length": (b"Inference-Header-Content-Length: 5\r\nContent-Length: 5\r\n", b"12345"),
    "header-length-twice": (b"Inference-Header-Content-Length: 5\r\n" * 2, b""),
    "media-type": (b"Content-Type: %b;json-header-size=5\r\nContent-Length: 5\r\n" % _SAGEMAKER, b"12345"),
    "media-type-quoted": (b'content-type: %b ; a=" \\"" ;; JSON-Header-Size="5"\r\n' % _VERTEX_AI.upper(), b""),
    "media-type-and-field": (
        b"Content-Type: %b;json-header-size=5\r\nInference-Header-Content-Length: 6\r\n" % _SAGEMAKER,
        b"",
    ),
    "media-type-twice": (b"Content-Type: %b;json-header-size=5\r\n" % _SAGEMAKER * 2, b""),
    "media-type-without": (b"Content-Type: %b\r\n" % _SAGEMAKER, b""),
    "media-type-behind": (b"Content-Type: a/b, %b;json-header-size=5\r\n" % _SAGEMAKER, b""),
    "media-type-longer": (b"Content-Type: %bx;json-header-size=5\r\n" % _SAGEMAKER, b""),
    "media-type-open": (b'Content-Type: %b;json-header-size="5\\"\r\n' % _SAGEMAKER, b""),
    "empty-line": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"),
}
_RESPONSES: dict[str, tuple[bytes, bytes]] = {
    "length": (b"200 OK\r\nContent-Length: 5", b"12345"),
    "length-more": (b"200 OK\r\nContent-Length: 5", b"12345HTTP/1.1 200 OK\r\n\r\n"),
    "length-less": (b"200 OK\r\nContent-Length: 5", b"1234"),
    "chunked": (b"200\r\nTransfer-Encoding: chunked", _CHUNKS),
    "chunked-short": (b"200\r\nTransfer-Encoding: chunked", _CHUNKS[:-2]),
    "until-close": (b"200 OK\r\nA: b", b"12345"),
    "both": (b"200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", _CHUNKS),
    "continue": (b"100 Continue\r\n\r\nHTTP/1.1 103 \r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1", b"a"),
    "switching": (b"101 \r\nUpgrade: x", b""),
    "no-content": (b"204 No Content", b""),
    "no-content-length": (b"204 \r\nContent-Length: 5", b"12345"),
    "not-modified": (b"304 \r\nContent-Length: 5", b""),
    "close": (b"503 \r\nContent-Length: 0\r\nConnection: close", b""),
    "gzip": (b"200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5", b"12345"),
    "status-large": (b"999 OK", b""),
}
