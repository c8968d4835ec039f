"""Negotiation: whether a client wants its answer compressed, and how (RFC 9110, section 12.5.3).

Compressing takes far longer than sending on most networks, so it is done only where a client prefers it:

- the encoding with the highest weight wins; with equal weights the plain body before gzip, and gzip before deflate,
  which clients disagree about (zlib format or bare stream);
- so `*` alone asks for nothing, and neither does a list that names `identity` with the highest weight;
- where neither `identity` nor `*` is named, every encoding that is named is preferred to the plain body;
- a client that accepts nothing we can do is answered plainly, as the RFC advises;
- a member that is not well formed is as if it were not there: the plain body is never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_MEMBER: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9a-z-]+)[ \t]*(?:;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?", re.ASCII | re.IGNORECASE
)
_PLAIN: Final = b"identity"
_ALIASES: Final = {b"x-gzip": b"gzip"}
_CHOICES: Final = {_PLAIN: None, b"gzip": "gzip", b"deflate": "deflate"}
"""What can be answered, the cheapest first, and what `Content-Encoding` says of it."""

_HARDLY: Final = 0.0001
"""Of an acceptable form that is not named: less than any weight that is written, whose least is 0.001."""


def accepted_encoding(values: Sequence[bytes]) -> str | None:
    """Choose how to compress an answer.

    Args:
        values: of all `Accept-Encoding` fields of the request, in their order.

    Returns:
        One of `ENCODINGS`, or None for a plain body.
    """
    weights = _weights(values)
    others = weights.get(b"*")
    unnamed = dict.fromkeys(_CHOICES, 0.0 if others is None else others)
    if others is None:
        unnamed[_PLAIN] = _HARDLY
    # max() takes the first of equals.
    best = max(_CHOICES, key=lambda name: weights.get(name, unnamed[name]))
    return _CHOICES[best]


def _weights(values: Sequence[bytes]) -> dict[bytes, float]:
    """Read the members of the list; a weight that is not given is 1."""
    weights: dict[bytes, float] = {}
    for member in b",".join(values).split(b","):
        if match := _MEMBER.fullmatch(member.strip(b" \t")):
            name = match[1].lower()
            weights[_ALIASES.get(name, name)] = float(match[2] or 1)
    return weights
