"""Bombs: compressed bodies a thousand times as large as they seem, and a process that is hit by one of them.

`python -m tests.http.bodies.bombs NAME` brings one to a server's connection, and prints how much memory that took
beyond what was there, at most, and how many bytes came out before it was refused.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable

from streamcodec import NEED_DATA, Limits, RemoteProtocolError, request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import RequestHead, ServerConnection
from tests.http.messages import chunked, length, post
from tests.processes import forget_peak, peak_resident

MIB = 1 << 20
GIGABYTE = 1 << 30
LIMITS = Limits(max_header_bytes=MIB)
_BLOCK = bytes(MIB)
_HEADER = b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[1000],"parameters":{"binary_data_size":1000}}]}'


def _long(start: bytes, block: bytes) -> bytes:
    """Compress a gigabyte or so, without ever having it: a block that is complete in itself, over and over."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    first = stream.compress(start) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(block) + stream.flush(zlib.Z_FULL_FLUSH)
    return first + again * (GIGABYTE // len(block)) + stream.flush()


_DECLARED = b"Inference-Header-Content-Length: %d" % len(_HEADER)
_GZIP = b"Content-Encoding: gzip"
_DEFLATE = b"Content-Encoding: deflate"
_BOMBS: dict[str, tuple[Callable[[], bytes], list[bytes]]] = {
    "white space": (lambda: _long(b"", b" " * MIB), [_DEFLATE]),
    "zeros behind a tensor": (lambda: _long(_HEADER, _BLOCK), [_DEFLATE, _DECLARED]),
    "zeros for a header": (lambda: _long(b"", _BLOCK), [_DEFLATE, b"Inference-Header-Content-Length: 1000000"]),
    "an array that only opens": (lambda: _long(b"", b"[" * MIB), [_DEFLATE]),
    "many members": (lambda: gzip.compress(b" " * MIB, mtime=0) * 1024, [_GZIP]),
    "empty members": (lambda: gzip.compress(b"", mtime=0) * 20_000, [_GZIP]),
    "compressed twice": (lambda: gzip.compress(_long(b"", _BLOCK), mtime=0), [_GZIP]),
}
NAMES = list(_BOMBS)


def bomb(name: str) -> tuple[bytes, list[bytes]]:
    """Return a compressed body and the fields that go with it."""
    make, fields = _BOMBS[name]
    return make(), fields


def explode(message: bytes) -> int:
    """Bring a request to a server's connection until it is refused; return the bytes that came out by then."""
    connection = ServerConnection(LIMITS)
    view = memoryview(message)
    decoder = None
    try:
        while view:
            view = view[connection.feed(view[: 64 << 10]) :]
            while (event := connection.next_event()) is not NEED_DATA:
                if isinstance(event, RequestHead):
                    header_length = header_length_of(event.fields)
                    decoder = request_decoder(header_length=header_length, body_length=None, limits=LIMITS)
                    connection.receive_body(decoder)
    except RemoteProtocolError:
        assert decoder is not None
        return decoder.offset
    raise AssertionError


def main() -> None:
    """See the module."""
    body, fields = bomb(sys.argv[1])
    for message in (post(length(body), *fields) + body, post(b"Transfer-Encoding: chunked", *fields) + chunked(body)):
        forget_peak(os.getpid())
        before = peak_resident(os.getpid())
        given = explode(message)
        sys.stdout.write(f"{peak_resident(os.getpid()) - before} {given}\n")


if __name__ == "__main__":
    main()
