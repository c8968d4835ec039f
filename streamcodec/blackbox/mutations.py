"""Mutations: random messages, made from a seed.

Each is a good message of random sizes, in which at most one thing is changed. This library's own decoder reads the
result. If the decoder refuses it, the server must refuse it, too. If the decoder accepts it, it may still not fit the
model. Then any answer is right, except silence and a status of the 500s.

A message depends only on the model's inputs and on its name, which has the seed and a number. So a single message can
be made without those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from streamcodec.blackbox.messages import ABSENT, Assembly, RawRequest
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation, read_tensors
from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode, MessageError
from streamcodec.formats.v2.decoder import request_decoder

_SIZES: Final = (0, 1, 2, 3, 5, 17)
_STEPS: Final = (-8, -4, -2, -1, 1, 2, 4, 8, 255)
_ODD: Final[tuple[Any, ...]] = (ABSENT, None, True, -1, 1.5, "", "x", [], {}, 1 << 31, 1 << 63, 1 << 64)
_MEMBERS: Final = ("name", "datatype", "shape", "parameters", "data")

Body = tuple[bytes, bytes, int]
"""A message as it is sent: its JSON, what follows, and the declared length of the JSON."""


def names(seed: int, count: int) -> Iterator[str]:
    """Return the names of random messages."""
    return (f"mutations/{seed}-{number}" for number in range(count))


def mutation(target: Target, name: str) -> Probe:
    """Make a probe of a random message.

    Args:
        target: the model; it must accept binary tensors.
        name: name of the probe; it determines all random choices.
    """
    request, expects, why = _mutation(target, Random(name))  # noqa: S311 - to be repeated, not to be secret
    return Probe(name, expects, why, "what streamcodec's own decoder says", lambda _: request)


def _mutation(target: Target, random: Random) -> tuple[RawRequest, Expectation, str]:
    probed = random.choice(target.inputs)
    message = target.binary(probed, shape=probed.sample_shape(random.choice(_SIZES)))
    body = (message.text, message.payload, len(message.text))
    change = random.choice((_whole, _member, _size, _length, _payload, _flip, _cut, _insert))
    text, payload, length = change(message, body, random)
    data = text + payload
    expects, why, tensors = _verdict(data, length)
    request = target.send(message, text=text, payload=payload, length=str(length))
    place = random.randrange(len(request.data))
    pieces = (request.data[:place], request.data[place:]) if random.random() < 1 / 2 else (request.data,)
    return RawRequest(pieces=tuple(filter(None, pieces)), tensors=tensors), expects, why


def _verdict(body: bytes, length: int) -> tuple[Expectation, str, tuple[bytes, ...] | None]:
    """Return the expected answer to a body, the reason, and the tensors if there are any."""
    try:
        tensors = read_tensors(request_decoder(header_length=length, body_length=len(body)), body)
    except MessageError as error:
        is_limit = error.code is ErrorCode.LIMIT_EXCEEDED
        return (
            Expectation.EITHER if is_limit else Expectation.REFUSE,
            f"{error.code}: {error}; see {error.code.link}",
            None,
        )
    return Expectation.EITHER, "a message that is well formed", tensors


def _whole(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Change nothing."""
    return body


def _member(message: Assembly, body: Body, random: Random) -> Body:
    """Change a member of the input."""
    member, value = random.choice(_MEMBERS), random.choice((*_ODD, *DATATYPES))
    text = message.with_input(**{member: value}).text
    return text, body[1], len(text)


def _size(message: Assembly, body: Body, random: Random) -> Body:
    """Declare a slightly different size or shape."""
    step = random.choice(_STEPS)
    shape = list(message.entry["shape"])
    if shape and random.random() < 1 / 2:
        shape[random.randrange(len(shape))] += step
        changed = message.with_input(shape=shape)
    else:
        changed = message.sized(len(message.tensor) + step)
    return changed.text, body[1], len(changed.text)


def _length(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Declare a slightly different length of the JSON."""
    return body[0], body[1], body[2] + random.choice(_STEPS)


def _payload(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Add or remove bytes."""
    step = random.choice(_STEPS)
    return body[0], body[1] + random.randbytes(step) if step > 0 else body[1][:step], body[2]


def _flip(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Flip a bit."""
    data = bytearray(body[0] + body[1])
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data[: len(body[0])]), bytes(data[len(body[0]) :]), body[2]


def _cut(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Take bytes out of the JSON; its declared length follows."""
    start = random.randrange(len(body[0]))
    text = body[0][:start] + body[0][start + random.randrange(1, 9) :]
    return text, body[1], len(text)


def _insert(message: Assembly, body: Body, random: Random) -> Body:  # noqa: ARG001 - the signature of a change
    """Put bytes into the JSON; its declared length follows."""
    start = random.randrange(len(body[0]))
    inserted = random.choice((b" ", b"\0", b"\xff", b'"', b"{", b"]", b",", b"0", b"-", b"\\", b"\n", b"1e9"))
    text = body[0][:start] + inserted + body[0][start:]
    return text, body[1], len(text)
