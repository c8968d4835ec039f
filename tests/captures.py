"""Captured exchanges of real peers, with what they must decode to: one shape for two indexes.

`captures()` gives every exchange under `tests/data/captures`. The expected tensors come from the indexes, which
were written without streamcodec; nothing here uses it either, so a test that compares the two compares two opinions.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
"""An object of an index."""

DATA = Path(__file__).parent / "data" / "captures"


class Layer(StrEnum):
    """Who has to refuse a request: the first layer that can know."""

    HTTP = "http"
    """The head alone is enough."""
    CODEC = "codec"
    """Head, JSON header and body do not fit together."""
    SERVICE = "service"
    """The message is sound, but not what the model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """That a request must be refused, by whom, with which status, and why."""

    layer: Layer
    status: int
    """Ours, by the protocol as we enforce it; the peer's is `Capture.status`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTensor:
    """What one tensor of a message must be. None where the index does not say."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    binary: bool
    """Whether it travels as bytes behind the header; else as `data` in the JSON."""
    nbytes: int | None
    """Size of its binary form, for BYTES with the length prefixes."""
    sha256: str | None
    """Hash of its binary form. KServe's index gives it for JSON tensors too."""
    elements: tuple[bytes, ...] | None
    """For BYTES, flat."""
    values: tuple[bool | int | float, ...] | None
    """For the others, flat; NaN is a float, so compare with `numpy.testing`. BF16 as the equal float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One request and its response, each a whole HTTP message."""

    source: str
    """`kserve` or `triton`."""
    name: str
    about: str
    request: bytes
    response: bytes
    status: int
    """The peer's answer."""
    expected_request: tuple[ExpectedTensor, ...] | None
    """None where the request gives no tensors by itself: refused before the service, raw, or no inference."""
    expected_response: tuple[ExpectedTensor, ...] | None
    """None for an error and where the request was no inference."""
    refusal: Refusal | None
    is_raw: bool
    """A raw binary request: `Inference-Header-Content-Length: 0`, the body is the one tensor."""
    is_inference: bool
    """A POST to an `infer` route; else a GET."""
    error: str | None
    """The server's error text."""

    def __str__(self) -> str:
        """Id of a parametrized test."""
        return f"{self.source}-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A captured HTTP message, taken apart with all its bytes at hand."""

    start_line: str
    headers: dict[str, str]
    """Names in lower case; no capture repeats one."""
    header_length: int | None
    """`Inference-Header-Content-Length`."""
    body: bytes
    """Without transfer and content coding."""


# The indexes say what the peer answered, not who is to blame; this is our reading of it.
_REFUSALS = {
    "kserve-output_unknown": Refusal(layer=Layer.SERVICE, status=400, reason="the model has no such output"),
    "triton-err_encoding_br": Refusal(layer=Layer.HTTP, status=415, reason="Content-Encoding: br"),
    "triton-err_header_too_long": Refusal(layer=Layer.CODEC, status=400, reason="header longer than the body"),
    "triton-err_short": Refusal(layer=Layer.CODEC, status=400, reason="5 tensor bytes missing"),
    "triton-err_trailing": Refusal(layer=Layer.CODEC, status=400, reason="3 bytes after the last tensor"),
    "triton-err_unknown_model": Refusal(layer=Layer.SERVICE, status=404, reason="no such model"),
    "triton-err_unknown_output": Refusal(layer=Layer.SERVICE, status=400, reason="the model has no such output"),
    "triton-fp16_json_out_refused": Refusal(layer=Layer.SERVICE, status=400, reason="FP16 has no JSON form"),
    "triton-raw_wrong_size": Refusal(layer=Layer.SERVICE, status=400, reason="15 bytes are no whole FP32s"),
}


@cache
def captures() -> tuple[Capture, ...]:
    """Every exchange, in the order of the indexes; for `parametrize(..., captures(), ids=str)`."""
    kserve = json.loads((DATA / "kserve" / "index.json").read_text(encoding="utf-8"))["cases"]
    triton = json.loads((DATA / "triton" / "index.json").read_text(encoding="utf-8"))["captures"]
    return (
        *(
            _capture("kserve", c["name"], c["contains"], c["request_tensors"], c.get("response_tensors"))
            for c in kserve
        ),
        *(
            _capture("triton", c["name"], c["what"], c["request"].get("tensors"), c["response"].get("tensors"))
            for c in triton
        ),
    )


def split_message(message: bytes) -> Message:
    """Take a captured message apart: dechunked, decompressed. Only for captures: it trusts every byte."""
    head, _, body = message.partition(b"\r\n\r\n")
    start_line, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    match headers.get("content-encoding"):
        case "gzip":
            body = gzip.decompress(body)
        case "deflate":
            body = zlib.decompress(body)
    length = headers.get("inference-header-content-length")
    return Message(
        start_line=start_line,
        headers=headers,
        header_length=None if length is None else int(length),
        body=body,
    )


def _chunks(body: bytes) -> Iterable[bytes]:
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line, 16)
        yield body[:size]
        body = body[size + 2 :]


def _capture(source: str, name: str, about: str, sent: list[Entry] | None, answered: list[Entry] | None) -> Capture:
    request = (DATA / source / f"{name}.request.bin").read_bytes()
    response = (DATA / source / f"{name}.response.bin").read_bytes()
    asked, answer = split_message(request), split_message(response)
    status = int(answer.start_line.split()[1])
    refusal = _REFUSALS.get(f"{source}-{name}")
    # A request that only the service refuses still decodes; any other must not give a tensor.
    decodes = refusal is None or refusal.layer is Layer.SERVICE
    return Capture(
        source=source,
        name=name,
        about=about,
        request=request,
        response=response,
        status=status,
        expected_request=_tensors(sent) if decodes else None,
        expected_response=_tensors(answered),
        refusal=refusal,
        is_raw=asked.header_length == 0,
        is_inference=asked.start_line.split()[1].endswith("/infer"),
        error=json.loads(answer.body)["error"] if status >= 400 else None,
    )


def _tensors(entries: list[Entry] | None) -> tuple[ExpectedTensor, ...] | None:
    return None if entries is None else tuple(_tensor(entry) for entry in entries)


def _tensor(entry: Entry) -> ExpectedTensor:
    is_bytes = entry["datatype"] == "BYTES"
    return ExpectedTensor(
        name=entry["name"],
        datatype=entry["datatype"],
        shape=tuple(entry["shape"]),
        binary=entry["binary"] if "binary" in entry else entry["encoding"] == "binary",
        nbytes=entry.get("nbytes", entry.get("binary_data_size")),
        sha256=entry.get("sha256"),
        elements=_elements(entry) if is_bytes else None,
        values=None if is_bytes else _values(entry),
    )


def _elements(entry: Entry) -> tuple[bytes, ...]:
    if "elements_hex" in entry:
        return tuple(bytes.fromhex(element) for element in entry["elements_hex"])
    return tuple(element.encode() for element in entry["data"])


def _values(entry: Entry) -> tuple[bool | int | float, ...] | None:
    if "values_bf16_bits" in entry:  # the upper half of an FP32
        return tuple(struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in entry["values_bf16_bits"])
    for key in ("values", "values_repr", "data"):
        if key in entry:
            # Text where JSON has no form: "inf", "nan", and the exact repr of a float.
            return tuple(float(v) if isinstance(v, str) else v for v in entry[key])
    return None
