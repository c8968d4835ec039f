"""Heavy: requests that are large, or that have crashed servers. They are sent only if the user asks for them.

They come last, the most dangerous ones at the very end: after a crash, no other probe can be sent.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import replace

from streamcodec.blackbox.inputs import prefixed
from streamcodec.blackbox.messages import AfterSending, RawRequest
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes.sources import CAUTION, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD

_REFUSE, _EITHER = Expectation.REFUSE, Expectation.EITHER
_COUNT = f"{V2}, tensor: data has as many elements as shape says"
_FULL = frozenset({503, 507})
"""A server may also answer that it has no memory for the request."""

_DEPTH = 100_000
_BOMB_BYTES = 128 << 20
_GZIP_HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
_HEAD_BYTES = 16 << 20
_DIGITS = 1_000_000
_INPUTS = 30_000
_TIB = 1 << 40
_ELEMENTS = 1 << 20


def _long_head(target: Target) -> RawRequest:
    """Begin a field that does not end."""
    piece = b"a" * (1 << 20)
    head = target.head().removesuffix(b"\r\n") + b"x: "
    return RawRequest(pieces=(head, *[piece] * (_HEAD_BYTES // len(piece))), ending=AfterSending.CUTS)


def _promised_header(target: Target) -> RawRequest:
    """Announce a JSON header of 2 GiB, and end after a few bytes of it."""
    data = target.head(f"Content-Length: {_TIB}", f"{HEADER_LENGTH_FIELD}: {1 << 31}") + b'{"inputs":'
    return RawRequest(pieces=(data,), ending=AfterSending.CUTS)


def _promised_tensor(target: Target) -> RawRequest:
    """Announce a tensor of 1 TiB, in a body to match, and end with the JSON."""
    message = target.binary(target.open())
    itemsize = message.probed.datatype.itemsize
    text = message.with_input(shape=[_TIB // itemsize]).sized(_TIB).text
    lines = (f"Content-Length: {len(text) + _TIB}", f"{HEADER_LENGTH_FIELD}: {len(text)}")
    return RawRequest(pieces=(target.head(*lines) + text,), ending=AfterSending.CUTS)


def _promised_chunk(target: Target) -> RawRequest:
    """Announce a chunk of 2^60 bytes, and end."""
    request = target.send(target.any_form())
    data = target.reframe(request, "Transfer-Encoding: chunked", body=b"fffffffffffffff\r\n{").data
    return RawRequest(pieces=(data,), ending=AfterSending.CUTS)


def _bomb(target: Target) -> RawRequest:
    """Send a good message and 128 MiB of zeros after it, compressed to 128 KiB."""
    request = target.send(target.any_form())
    bomb = _gzip_with_zeros(request.body)
    return target.reframe(request, "Content-Length: {n}", "Content-Encoding: gzip", body=bomb)


def _gzip_with_zeros(data: bytes) -> bytes:
    """Compress data and many zeros. One block of zeros is compressed and then repeated, which takes no time."""
    block, count = bytes(1 << 20), _BOMB_BYTES >> 20
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    start = packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(data)
    for _ in range(count):
        checksum = zlib.crc32(block, checksum)
    trailer = struct.pack("<II", checksum, len(data) + _BOMB_BYTES)
    return _GZIP_HEADER + start + zeros * count + packer.flush() + trailer


def _deep_data(target: Target) -> RawRequest:
    """Nest data deeper than any shape is."""
    message = target.json()
    text = message.with_input(data="here").text.replace(b'"here"', b"[" * _DEPTH + b"]" * _DEPTH)
    return target.send(message, text=text)


def _deep_objects(target: Target) -> RawRequest:
    text = target.any_form().text
    nested = b'{"a":' * _DEPTH + b"1" + b"}" * _DEPTH
    return target.send(target.any_form(), text=b'{"unknown":' + nested + b"," + text[1:])


def _long_number(target: Target) -> RawRequest:
    message = target.any_form()
    text = message.with_input(shape="here").text.replace(b'"here"', b"[" + b"9" * _DIGITS + b"]")
    return target.send(message, text=text)


def _many_inputs(target: Target) -> RawRequest:
    message = target.any_form()
    entry = {"name": "x", "datatype": "FP32", "shape": [0], "parameters": {"binary_data_size": 0}}
    inputs = [{**entry, "name": f"x{number}"} for number in range(_INPUTS)]
    return target.send(message.having(inputs=[*message.document["inputs"], *inputs]))


def _many_elements(target: Target) -> RawRequest:
    """Send a million elements of no bytes, and a last one that overruns."""
    probed = target.open("BYTES")
    shape = probed.shape_of(_ELEMENTS)
    tensor = prefixed(b"") * (math.prod(shape) - 1) + prefixed(b"", 1)
    return target.send(target.binary(probed).with_input(shape=shape).replaced(tensor))


def _huge_claim(target: Target) -> RawRequest:
    """Claim 2^40 elements, as JSON data with one value."""
    message = target.json(target.open())
    data = message.entry["data"][:1]
    shape = message.probed.shape_of(_TIB)
    return target.send(message.with_input(shape=shape, data=data))


_NAMED = (
    Probe(
        "heavy/head-without-end", Expectation.REFUSE_OR_CLOSE, "a head of 16 MiB that does not end", CAUTION, _long_head
    ),
    Probe(
        "heavy/many-fields",
        _EITHER,
        "a head of 20,000 fields",
        CAUTION,
        lambda target: target.send(target.any_form(), *(f"x{number}: 1" for number in range(20_000))),
    ),
    Probe(
        "heavy/promised-header",
        Expectation.REFUSE_OR_CLOSE,
        "a declared JSON header of 2 GiB, not sent",
        CAUTION,
        _promised_header,
        _FULL,
    ),
    Probe(
        "heavy/promised-tensor",
        Expectation.REFUSE_OR_CLOSE,
        "a declared tensor of 1 TiB, not sent",
        CAUTION,
        _promised_tensor,
        _FULL,
    ),
    Probe(
        "heavy/promised-chunk",
        Expectation.REFUSE_OR_CLOSE,
        "a declared chunk of 2^60 bytes, not sent",
        CAUTION,
        _promised_chunk,
        _FULL,
    ),
    Probe("heavy/many-inputs", _EITHER, f"{_INPUTS:,} inputs more than the model has", CAUTION, _many_inputs),
    Probe(
        "heavy/many-elements", _REFUSE, "about a million elements; the last one is too long", CAUTION, _many_elements
    ),
    Probe("heavy/long-number", _REFUSE, f"a size of {_DIGITS:,} digits", CAUTION, _long_number),
    Probe("heavy/bomb", _REFUSE, f"gzip of {_BOMB_BYTES >> 20} MiB of zeros", CAUTION, _bomb, _FULL),
    Probe("heavy/deep-data", _REFUSE, f"data nested to a depth of {_DEPTH:,}", _COUNT, _deep_data),
    Probe("heavy/deep-objects", _EITHER, f"{_DEPTH:,} nested objects", CAUTION, _deep_objects),
    Probe("heavy/2^40-elements", _REFUSE, "one value for a shape of about 2^40 elements, as JSON", _COUNT, _huge_claim),
)

PROBES = tuple(replace(probe, is_heavy=True) for probe in _NAMED)
"""The probes of this group."""
