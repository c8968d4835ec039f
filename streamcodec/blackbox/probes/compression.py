"""Compression: bodies that are damaged, truncated, or too large after decompression.

A server that does not support an encoding must refuse it. For other servers, these probes check whether they read to
the end, where the checksum is.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY, GZIP, SEMANTICS, ZLIB
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_CODINGS = f"{SEMANTICS}, section 8.4: a server refuses codings that it does not know"
_CHECK = f"{GZIP}, section 2.3.1: the checksum is that of the text"
_MEMBERS = f"{GZIP}, section 2.2: members, and nothing else"
_ADLER = f"{ZLIB}, section 2.2: the checksum is that of the text"
_EXACT = f"{BINARY}: only the tensors follow the JSON"

_UNKNOWN = frozenset({501})
_TRAILER_BYTES = 8
_BOMB_BYTES = 4 << 20


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _encoded(encode: Callable[[bytes], bytes], coding: str = "gzip", *, checks: bool = False) -> Make:
    """Send a good message, encoded."""

    def make(target: Target) -> RawRequest:
        plain = target.send(target.any_form(), checks=checks)
        lines = ("Content-Length: {n}", f"Content-Encoding: {coding}")
        return target.reframe(plain, *lines, body=encode(plain.body))

    return make


def _spoiled(position: int) -> Callable[[bytes], bytes]:
    """Compress, and change one byte, counted from the end."""

    def encode(data: bytes) -> bytes:
        packed = bytearray(_gzip(data))
        packed[-position] ^= 0xFF
        return bytes(packed)

    return encode


def _bad_adler(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return packed[:-1] + bytes([packed[-1] ^ 0xFF])


PROBES = (
    Probe("compression/gzip", Expectation.EITHER, "a good message in gzip", _CODINGS, _encoded(_gzip, checks=True)),
    Probe(
        "compression/deflate",
        Expectation.EITHER,
        "a good message in deflate",
        _CODINGS,
        _encoded(zlib.compress, "deflate", checks=True),
    ),
    Probe(
        "compression/unknown",
        _REFUSE,
        "an unknown coding",
        _CODINGS,
        _encoded(_gzip, "x-no-such-coding"),
        _UNKNOWN,
    ),
    Probe(
        "compression/not-gzip",
        _REFUSE,
        "a body that is not compressed, declared as gzip",
        _CODINGS,
        _encoded(lambda data: data),
    ),
    Probe("compression/bad-crc", _REFUSE, "gzip with a wrong checksum", _CHECK, _encoded(_spoiled(_TRAILER_BYTES))),
    Probe("compression/bad-length", _REFUSE, "gzip with a wrong length at its end", _CHECK, _encoded(_spoiled(1))),
    Probe(
        "compression/no-trailer",
        _REFUSE,
        "gzip without checksum and length",
        _CHECK,
        _encoded(lambda data: _gzip(data)[:-_TRAILER_BYTES]),
    ),
    Probe(
        "compression/cut",
        _REFUSE,
        "gzip that ends in the middle",
        _CHECK,
        _encoded(lambda data: _gzip(data)[: len(_gzip(data)) // 2]),
    ),
    Probe(
        "compression/trailing",
        _REFUSE,
        "gzip followed by letters",
        _MEMBERS,
        _encoded(lambda data: _gzip(data) + b"garbage"),
    ),
    Probe("compression/empty", _REFUSE, "an empty body, declared as gzip", _MEMBERS, _encoded(lambda _: b"")),
    Probe("compression/bad-adler", _REFUSE, "deflate with a wrong checksum", _ADLER, _encoded(_bad_adler, "deflate")),
    Probe(
        "compression/trailing-bytes",
        _REFUSE,
        "gzip of a message and one byte after it",
        _EXACT,
        _encoded(lambda data: _gzip(data + b"\1")),
    ),
    Probe(
        "compression/small-bomb",
        _REFUSE,
        f"gzip of a message and {_BOMB_BYTES >> 20} MiB of zeros after it",
        _EXACT,
        _encoded(lambda data: _gzip(data + bytes(_BOMB_BYTES))),
    ),
)
"""The probes of this group."""
