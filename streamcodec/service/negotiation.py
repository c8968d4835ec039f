"""Negotiation: what of that which a client may ask for it gets: a compressed answer, or extensions of Triton's.

An answer is compressed by RFC 9110, section 12.5.3.

On most networks, compressing takes far longer than sending. So an answer is compressed only if the client prefers it:

- The encoding with the highest weight wins. With equal weights, the plain body comes before gzip, and gzip before
  deflate, because clients disagree about deflate (zlib format or bare stream).
- So `*` alone asks for nothing. Neither does a list that gives `identity` the highest weight.
- If neither `identity` nor `*` is named, every named encoding is preferred to the plain body.
- A client that accepts no supported encoding gets the plain body, as the RFC advises.
- A malformed member of the list is ignored: the plain body is never wrong.

A parameter that nobody knows is left to the model. Those of Triton's extensions are known: they change the answer, or
where it goes. A client that asks for classes, or for an answer in shared memory, cannot use a tensor in the body. So
its request is refused instead of ignoring the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.formats.v2.model import RequestHeader

_MEMBER: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9a-z-]++)[ \t]*+(?:;[ \t]*+q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?", re.ASCII | re.IGNORECASE
)
_PLAIN: Final = b"identity"
_ALIASES: Final = {b"x-gzip": b"gzip"}
_CHOICES: Final = {_PLAIN: None, b"gzip": "gzip", b"deflate": "deflate"}
"""The supported forms, the cheapest first, each with its value of `Content-Encoding`."""

_HARDLY: Final = 0.0001
"""Weight of an acceptable form that is not named. It is less than the smallest weight that can be written, 0.001."""


def accepted_encoding(values: Sequence[bytes]) -> str | None:
    """Choose how to compress an answer.

    Args:
        values: of all `Accept-Encoding` fields of the request, in their order.

    Returns:
        One of `ENCODINGS`, or None for a plain body.
    """
    weights: dict[bytes, float] = {}
    for member in b",".join(values).split(b","):
        if match := _MEMBER.fullmatch(member.strip(b" \t")):
            name = match[1].lower()
            weights[_ALIASES.get(name, name)] = float(match[2] or 1)
    others = weights.get(b"*")
    unnamed = dict.fromkeys(_CHOICES, 0.0 if others is None else others)
    if others is None:
        unnamed[_PLAIN] = _HARDLY
    # max() takes the first of equals.
    best = max(_CHOICES, key=lambda name: weights.get(name, unnamed[name]))
    return _CHOICES[best]


CLASSIFICATION: Final = "classification"
"""Name of the extension in the server's metadata, and of its parameter."""

_SHARED_MEMORY: Final = "shared_memory_region"
_NO_SHARED_MEMORY: Final = "this server shares no memory with its clients; tensors go through the body"
_NO_CLASSES: Final = "this server offers no classification; its operator can switch it on"


def check_extensions(header: RequestHeader, *, classifies: bool) -> None:
    """Refuse a request for an extension that is not offered.

    Raises:
        RemoteProtocolError: `not-offered`, with the path of the parameter.
    """
    for index, tensor in enumerate(header.tensors):
        if tensor.parameters.get(_SHARED_MEMORY) is not None:
            raise _not_offered(_SHARED_MEMORY, f"$.inputs[{index}]", _NO_SHARED_MEMORY)
    for index, output in enumerate(header.outputs or ()):
        if output.parameters.get(_SHARED_MEMORY) is not None:
            raise _not_offered(_SHARED_MEMORY, f"$.outputs[{index}]", _NO_SHARED_MEMORY)
        if not classifies and output.parameters.get(CLASSIFICATION) is not None:
            raise _not_offered(CLASSIFICATION, f"$.outputs[{index}]", _NO_CLASSES)


def _not_offered(name: str, path: str, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.NOT_OFFERED, path=f"{path}.parameters.{name}")
