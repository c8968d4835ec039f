"""Negotiation: whether to compress an answer, and how (RFC 9110, section 12.5.3).

On most networks, compressing takes far longer than sending. So an answer is compressed only if the client prefers it:

- The encoding with the highest weight wins. With equal weights, the plain body comes before gzip, and gzip before
  deflate, because clients disagree about deflate (zlib format or bare stream).
- So `*` alone asks for nothing. Neither does a list that gives `identity` the highest weight.
- If neither `identity` nor `*` is named, every named encoding is preferred to the plain body.
- A client that accepts no supported encoding gets the plain body, as the RFC advises.
- A malformed member of the list is ignored: the plain body is never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

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
