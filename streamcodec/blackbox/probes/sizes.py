"""Sizes: `binary_data_size` does not fit the shape and datatype, or the bytes that are sent."""

from __future__ import annotations

from collections.abc import Callable

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.messages import Assembly, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_SIZE = f"{BINARY}: binary_data_size is the size of the tensor in bytes"
_INTEGER = f"{BINARY}: binary_data_size is an integer"
_EXACT = f"{BINARY}: only the tensors follow the JSON"
_ONE_SOURCE = f"{BINARY}: a tensor with binary_data_size has no data"


def _spoiling(change: Callable[[Assembly], Assembly]) -> Make:
    """Change a good message whose tensor has items of one size."""
    return lambda target: target.send(change(target.binary(target.fixed())))


def _claiming(size: Callable[[int], object]) -> Make:
    """Declare another size; the bytes are right."""
    return _spoiling(lambda message: message.sized(size(len(message.tensor))))


def _resized(change: Callable[[bytes], bytes]) -> Make:
    """Send other bytes and their right size; the shape is not changed."""
    return _spoiling(lambda message: message.replaced(change(message.tensor)))


def _open(target: Target) -> Input:
    return target.find(lambda each: each.is_open and not each.datatype.is_bytes, "of any size, with items of one size")


def _negative_empty(target: Target) -> RawRequest:
    """Declare a negative size for a tensor without elements."""
    probed = _open(target)
    return target.send(target.binary(probed, shape=probed.sample_shape(0)).sized(-4))


def _rewinding(target: Target) -> RawRequest:
    """Declare a negative size for an empty tensor, so that the next tensor would begin within the JSON."""
    empty = _open(target)
    last = target.find(lambda each: each is not empty and not each.datatype.is_bytes, "to follow one of any size")
    message = target.binary(last)
    names = [entry["name"] for entry in message.document["inputs"]]
    others = list(zip(message.document["inputs"], message.tensors, strict=True))
    entry, _ = others.pop(names.index(empty.name))
    entry |= {"shape": empty.sample_shape(0), "parameters": {"binary_data_size": -len(message.tensor)}}
    inputs = [each for each, _ in others]
    payload = b"".join(tensor for _, tensor in others)
    return target.send(message.having(inputs=[*inputs[:-1], entry, inputs[-1]]), payload=payload)


def _borrowing(target: Target) -> RawRequest:
    """Move the border between two tensors; the sum stays right."""
    message = target.binary(target.fixed())
    if len(message.tensors) == 1:
        raise NotApplicableError("the model has one input only")
    *before, lender, borrower = message.document["inputs"]
    lender["parameters"] = {"binary_data_size": len(message.tensors[-2]) - 1}
    borrower["parameters"] = {"binary_data_size": len(message.tensor) + 1}
    return target.send(message.having(inputs=[*before, lender, borrower]))


def _doubled(target: Target) -> RawRequest:
    """Send a tensor in both forms at once."""
    probed = target.fixed()
    return target.send(target.binary(probed).with_input(data=target.json(probed).entry["data"]))


def _payload(change: Callable[[bytes], bytes]) -> Make:
    """Change the bytes after the JSON, which stays right."""

    def make(target: Target) -> RawRequest:
        message = target.binary(target.fixed())
        return target.send(message, payload=change(message.payload))

    return make


PROBES = (
    Probe("sizes/negative", _REFUSE, "a negative size", _SIZE, _claiming(lambda nbytes: -nbytes)),
    Probe(
        "sizes/negative-empty",
        _REFUSE,
        "a size of -4 for a tensor without elements",
        _SIZE,
        _negative_empty,
    ),
    Probe("sizes/negative-rewinding", _REFUSE, "a negative size before another tensor", _SIZE, _rewinding),
    Probe(
        "sizes/past-end",
        _REFUSE,
        "twice the right size, with the right body and shape",
        _SIZE,
        _claiming(lambda nbytes: 2 * nbytes),
    ),
    Probe("sizes/one-more", _REFUSE, "a size of one byte too many", _SIZE, _claiming(lambda nbytes: nbytes + 1)),
    Probe(
        "sizes/one-less",
        _REFUSE,
        "a size of one byte too few; all bytes are sent",
        _SIZE,
        _claiming(lambda nbytes: nbytes - 1),
    ),
    Probe("sizes/zero", _REFUSE, "a size of 0; all bytes are sent", _SIZE, _claiming(lambda _: 0)),
    Probe(
        "sizes/larger",
        _REFUSE,
        "twice the bytes, with their right size; the shape is the old one",
        _SIZE,
        _resized(lambda tensor: 2 * tensor),
    ),
    Probe(
        "sizes/smaller",
        _REFUSE,
        "half of the bytes, with their right size; the shape is the old one",
        _SIZE,
        _resized(lambda tensor: tensor[: len(tensor) // 2]),
    ),
    Probe(
        "sizes/odd", _REFUSE, "the last byte missing, with the right size", _SIZE, _resized(lambda tensor: tensor[:-1])
    ),
    Probe("sizes/nothing", _REFUSE, "no bytes and a size of 0; the shape has elements", _SIZE, _resized(lambda _: b"")),
    Probe("sizes/2^31", _REFUSE, "a size of 2^31", _SIZE, _claiming(lambda _: 1 << 31)),
    Probe("sizes/2^63", _REFUSE, "a size of 2^63", _SIZE, _claiming(lambda _: 1 << 63)),
    Probe("sizes/wrapped-32", _REFUSE, "the right size plus 2^32", _SIZE, _claiming(lambda nbytes: (1 << 32) + nbytes)),
    Probe("sizes/wrapped-64", _REFUSE, "the right size plus 2^64", _SIZE, _claiming(lambda nbytes: (1 << 64) + nbytes)),
    Probe("sizes/borrowed", _REFUSE, "one byte moved from one tensor to another", _SIZE, _borrowing),
    Probe("sizes/fraction", _REFUSE, "the right size as 8.0", _INTEGER, _claiming(float)),
    Probe("sizes/half", _REFUSE, "the right size and a half", _INTEGER, _claiming(lambda nbytes: nbytes + 0.5)),
    Probe("sizes/text", _REFUSE, 'the right size as "8"', _INTEGER, _claiming(str)),
    Probe("sizes/boolean", _REFUSE, "true", _INTEGER, _claiming(lambda _: True)),
    Probe("sizes/array", _REFUSE, "the right size as [8]", _INTEGER, _claiming(lambda nbytes: [nbytes])),
    Probe(
        "sizes/absent",
        _REFUSE,
        "no size and no data; all bytes are sent",
        _EXACT,
        lambda target: target.send(target.binary(target.fixed()).with_input(parameters={})),
    ),
    Probe(
        "sizes/trailing-byte", _REFUSE, "one byte after the last tensor", _EXACT, _payload(lambda data: data + b"\0")
    ),
    Probe(
        "sizes/trailing-64-KiB",
        _REFUSE,
        "64 KiB after the last tensor",
        _EXACT,
        _payload(lambda data: data + bytes(1 << 16)),
    ),
    Probe("sizes/missing-byte", _REFUSE, "a body that ends one byte early", _EXACT, _payload(lambda data: data[:-1])),
    Probe("sizes/missing-tensors", _REFUSE, "a body that ends with the JSON", _EXACT, _payload(lambda _: b"")),
    Probe("sizes/data-and-size", _REFUSE, "a tensor with data and with a size", _ONE_SOURCE, _doubled),
)
"""The probes of this group."""
