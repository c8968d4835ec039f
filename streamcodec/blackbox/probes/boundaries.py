"""Boundaries: valid requests that a server may handle wrongly.

If the model echoes its inputs, the answer must have exactly their bytes. Any other model may refuse values and sizes
that it has not had before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from streamcodec.blackbox.inputs import prefixed
from streamcodec.blackbox.messages import Assembly, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.http import chunked
from streamcodec.blackbox.probes.sources import BINARY, JSON, MESSAGING, SEMANTICS, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_ACCEPT, _EITHER = Expectation.ACCEPT, Expectation.EITHER
_MESSAGE = f"{BINARY}: the JSON, then the tensors"
_SHAPES = f"{V2}, tensor: any shape that the model takes"
_NESTED = f"{V2}, tensor data: flat, or nested as the shape"
_BYTES = f"{V2}, tensor data types: BYTES are any bytes"
_BITS = f"{BINARY}: a tensor's bytes are its values"
_STREAM = f"{MESSAGING}, section 2.2: a message is a sequence of octets; its pieces have no meaning"
_CHUNKS = f"{MESSAGING}, section 7.1: chunks must be understood"
_FIELDS = f"{SEMANTICS}, section 5.1: the letter case of field names has no meaning"
_SPACE = f"{JSON}, section 2: white space is allowed around values"

_ELEMENTS = 10_000
_PIECE_BYTES = 997
_MAX_PIECES = 250
"""Each piece takes time, because there is a pause between any two."""


def _text(change: Callable[[bytes], bytes]) -> Make:
    """Write the JSON in another way."""

    def make(target: Target) -> RawRequest:
        message = target.any_form()
        return target.send(message, text=change(message.text), checks=True)

    return make


def _having(**members: object) -> Make:
    return lambda target: target.send(target.any_form().having(**members), checks=True)


def _with_parameter(target: Target) -> RawRequest:
    """Add an unknown parameter to an input."""
    message = target.any_form()
    parameters = message.entry.get("parameters", {}) | {"no-such-parameter": 1}
    return target.send(message.with_input(parameters=parameters), checks=True)


def _head(change: Callable[[bytes], bytes]) -> Make:
    """Write the head in another way."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form(), checks=True)
        return RawRequest(pieces=(change(request.head) + request.body,), tensors=request.tensors)

    return make


def _letter_case(change: Callable[[bytes], bytes]) -> Make:
    """Write the names of the fields in another letter case."""

    def changed(head: bytes) -> bytes:
        first, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return b"\r\n".join([first, *(change(name) + colon + value for name, colon, value in pairs)])

    return _head(changed)


def _cut_in_head(target: Target) -> RawRequest:
    """Send the head in four pieces; the body comes with the last one."""
    request = target.send(target.any_form(), checks=True)
    size = len(request.head) // 4
    places = (0, size, 2 * size, 3 * size, len(request.data))
    pieces = (request.data[start:end] for start, end in pairwise(places))
    return RawRequest(pieces=tuple(pieces), tensors=request.tensors)


def _cut(size: int, start: int = 0) -> Make:
    """Send a good request in pieces of a size, from a place on, counted from the end of the head."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form(), checks=True)
        return _in_pieces(request, len(request.head) + start, size)

    return make


def _in_pieces(request: RawRequest, first: int, size: int) -> RawRequest:
    """Cut a request from a place on; after many pieces, the rest is sent at once."""
    data = request.data
    places = [*range(first, len(data), size)][:_MAX_PIECES]
    pieces = (data[start:end] for start, end in pairwise((0, *places, len(data))))
    return RawRequest(pieces=tuple(pieces), tensors=request.tensors)


def _chunked(size: int, *, extension: bytes = b"", trailer: bytes = b"") -> Make:
    """Send a good message in chunks of a size."""

    def make(target: Target) -> RawRequest:
        return _in_chunks(target, target.send(target.any_form(), checks=True), size, extension, trailer)

    return make


def _in_chunks(
    target: Target, request: RawRequest, size: int, extension: bytes = b"", trailer: bytes = b""
) -> RawRequest:
    parts = (request.body[place : place + size] for place in range(0, len(request.body), size))
    body = chunked(parts, extension=extension, trailer=trailer)
    return target.reframe(request, "Transfer-Encoding: chunked", body=body)


def _pipelined(target: Target) -> RawRequest:
    request = target.send(target.any_form(), checks=True)
    return RawRequest(pieces=(request.data * 2,), answers=2, tensors=request.tensors)


def _nested(target: Target) -> RawRequest:
    """Nest data as the shape says."""
    message = target.json(target.find(lambda each: len(each.shape) > 1, "of more than one dimension"))
    data: Any = np.array(message.entry["data"], object).reshape(message.entry["shape"]).tolist()
    return target.send(message.with_input(data=data), checks=True)


def _empty(target: Target) -> Assembly:
    probed = target.open()
    return target.binary(probed, shape=probed.sample_shape(0))


def _empty_json(target: Target) -> RawRequest:
    probed = target.open()
    return target.send(target.json(probed, shape=probed.sample_shape(0)), checks=True)


def _scalar(target: Target) -> RawRequest:
    probed = target.find(lambda each: not each.shape, "without dimensions")
    return target.send(target.binary(probed), checks=True)


def _elements(make: Callable[[int], list[bytes]]) -> Make:
    """Send BYTES elements, made by a function of their number."""

    def make_request(target: Target) -> RawRequest:
        probed = target.of("BYTES")
        elements = make(math.prod(probed.sample_shape()))
        return target.send(target.binary(probed).replaced(b"".join(map(prefixed, elements))), checks=True)

    return make_request


def _many_elements(target: Target, count: int) -> RawRequest:
    """Make a request of many short elements, so that each cut is within a length prefix."""
    probed = target.open("BYTES")
    return target.send(target.binary(probed, shape=probed.shape_of(count)), checks=True)


def _elements_cut(target: Target) -> RawRequest:
    request = _many_elements(target, _ELEMENTS)
    return _in_pieces(request, len(request.head), _PIECE_BYTES)


def _bits(patterns: dict[str, int]) -> Make:
    """Send a float of given bits."""

    def make(target: Target) -> RawRequest:
        probed = target.of(*patterns)
        datatype = probed.datatype
        message = target.binary(probed)
        pattern = patterns[datatype.name].to_bytes(datatype.itemsize, "little")
        return target.send(message.carrying(pattern * (len(message.tensor) // datatype.itemsize)), checks=True)

    return make


def _extremes(target: Target) -> RawRequest:
    """Send the largest 64-bit integers as JSON; a reader that makes floats of them loses their last digits."""
    probed = target.of("INT64", "UINT64")
    dtype = probed.datatype.dtype
    values = np.full(math.prod(probed.sample_shape()), np.iinfo(dtype).max, dtype)
    message = target.json(probed).with_input(data=values.tolist()).carrying(values.tobytes())
    return target.send(message, checks=True)


_QUIET = {"FP32": 0x7FC12345, "FP64": 0x7FF8123456789ABC, "FP16": 0x7E12}
_SIGNALLING = {"FP32": 0x7F812345, "FP64": 0x7FF0123456789ABC, "FP16": 0x7C12}

PROBES = (
    Probe(
        "boundaries/binary",
        _ACCEPT,
        "a good request in binary",
        _MESSAGE,
        lambda target: target.send(target.binary(), checks=True),
    ),
    Probe(
        "boundaries/json",
        _ACCEPT,
        "a good request in JSON",
        _NESTED,
        lambda target: target.send(target.json(), checks=True),
    ),
    Probe("boundaries/nested", _ACCEPT, "JSON data nested as the shape says", _NESTED, _nested),
    Probe(
        "boundaries/padded",
        _ACCEPT,
        "spaces after the JSON, up to a multiple of 64",
        _SPACE,
        _text(lambda text: text.ljust(-(-len(text) // 64) * 64)),
    ),
    Probe(
        "boundaries/padded-64-KiB",
        _ACCEPT,
        "64 KiB of spaces after the JSON",
        _SPACE,
        _text(lambda text: text + b" " * (64 << 10)),
    ),
    Probe(
        "boundaries/spread",
        _ACCEPT,
        "JSON with tabs and line ends",
        _SPACE,
        _text(lambda text: b"\r\n\t" + json.dumps(json.loads(text), indent=3).encode() + b" \r\n\t\n"),
    ),
    Probe(
        "boundaries/escaped-names",
        _ACCEPT,
        "JSON whose names are escaped",
        f"{JSON}, section 7: any character may be escaped",
        _text(lambda text: text.replace(b'"inputs"', b'"\\u0069nput\\u0073"').replace(b'"shape"', b'"\\u0073hape"')),
    ),
    Probe(
        "boundaries/id",
        _ACCEPT,
        "an id with quotation marks and characters outside ASCII",
        f"{V2}, inference request: id is a string",
        _having(id='"größer" \\ 🦊 \u2028'),
    ),
    Probe(
        "boundaries/null-members",
        _EITHER,
        "optional members that are null",
        f"{V2}: optional members",
        _having(id=None, outputs=None),
    ),
    Probe(
        "boundaries/unknown-member",
        _EITHER,
        "an unknown member",
        f"{V2}: nothing is said",
        _having(**{"no-such-member": {"a": [1, None]}}),
    ),
    Probe("boundaries/unknown-parameter", _EITHER, "an unknown parameter", f"{V2}, parameters", _with_parameter),
    Probe("boundaries/small-fields", _ACCEPT, "names of fields in lower case", _FIELDS, _letter_case(bytes.lower)),
    Probe("boundaries/capital-fields", _ACCEPT, "names of fields in upper case", _FIELDS, _letter_case(bytes.upper)),
    Probe(
        "boundaries/absolute-target",
        _ACCEPT,
        "the whole URL in the first line",
        f"{MESSAGING}, section 3.2.2: it must be accepted",
        lambda target: _head(lambda head: head.replace(b" /", f" http://{target.authority}/".encode(), 1))(target),
    ),
    Probe(
        "boundaries/no-type",
        _EITHER,
        "no Content-Type",
        f"{SEMANTICS}, section 8.3: it may be absent",
        _head(lambda head: b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Type"))),
    ),
    Probe(
        "boundaries/http-1.0",
        _ACCEPT,
        "HTTP/1.0",
        f"{SEMANTICS}, section 2.5: a server answers lower versions",
        _head(lambda head: head.replace(b"HTTP/1.1", b"HTTP/1.0")),
    ),
    Probe(
        "boundaries/expect-continue",
        _ACCEPT,
        "Expect: 100-continue, and the body at once",
        f"{SEMANTICS}, section 10.1.1",
        lambda target: target.send(target.any_form(), "Expect: 100-continue", checks=True),
    ),
    Probe(
        "boundaries/pipelined", _ACCEPT, "two requests at once", f"{MESSAGING}, section 9.3.2: pipelining", _pipelined
    ),
    Probe("boundaries/chunked", _ACCEPT, "chunks of 50 bytes", _CHUNKS, _chunked(50)),
    Probe("boundaries/chunks-of-one", _ACCEPT, "chunks of one byte", _CHUNKS, _chunked(1)),
    Probe(
        "boundaries/chunks-extended",
        _ACCEPT,
        "chunks with an extension and a trailer",
        _CHUNKS,
        _chunked(60, extension=b';a="b"', trailer=b"x: 1\r\n"),
    ),
    Probe("boundaries/cut-in-head", _ACCEPT, "a head in four pieces", _STREAM, _cut_in_head),
    Probe("boundaries/cut-in-json", _ACCEPT, "a body in pieces of 11 bytes", _STREAM, _cut(11)),
    Probe("boundaries/cut-anywhere", _ACCEPT, "a request in pieces of 3 bytes", _STREAM, _cut(3, -30)),
    Probe(
        "boundaries/empty",
        _ACCEPT,
        "a tensor without elements, in binary",
        _SHAPES,
        lambda target: target.send(_empty(target), checks=True),
    ),
    Probe("boundaries/empty-json", _ACCEPT, "a tensor without elements, in JSON", _SHAPES, _empty_json),
    Probe("boundaries/scalar", _ACCEPT, "a tensor without dimensions", _SHAPES, _scalar),
    Probe(
        "boundaries/bytes-not-utf-8",
        _ACCEPT,
        "elements of BYTES that are not text",
        _BYTES,
        _elements(lambda count: [b"\xff\xfe\x80"] * count),
    ),
    Probe(
        "boundaries/bytes-nul",
        _ACCEPT,
        "elements of BYTES that end in NUL",
        _BYTES,
        _elements(lambda count: [b"\0a\0"] * count),
    ),
    Probe(
        "boundaries/bytes-empty",
        _ACCEPT,
        "elements of BYTES of length 0",
        _BYTES,
        _elements(lambda count: [b""] * count),
    ),
    Probe(
        "boundaries/bytes-cut",
        _ACCEPT,
        f"about {_ELEMENTS:,} elements of BYTES, in pieces that end within length prefixes",
        _STREAM,
        _elements_cut,
    ),
    Probe(
        "boundaries/bytes-in-chunks",
        _ACCEPT,
        "about 100 elements of BYTES in chunks of 7 bytes, which end within length prefixes",
        _CHUNKS,
        lambda target: _in_chunks(target, _many_elements(target, 100), 7),
    ),
    Probe("boundaries/quiet-nan", _ACCEPT, "a NaN with a payload", _BITS, _bits(_QUIET)),
    Probe("boundaries/signalling-nan", _ACCEPT, "a signalling NaN", _BITS, _bits(_SIGNALLING)),
    Probe(
        "boundaries/infinity",
        _ACCEPT,
        "infinity in binary",
        _BITS,
        _bits({"FP32": 0x7F800000, "FP64": 0x7FF << 52, "FP16": 0x7C00}),
    ),
    Probe("boundaries/64-bit", _ACCEPT, "the largest 64-bit integer, in JSON", f"{V2}, tensor data types", _extremes),
)
"""The probes of this group."""
