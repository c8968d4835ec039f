"""Strategies: valid and invalid messages for Hypothesis, each with the expected outcome.

`messages()` makes any message that the protocol allows, with all datatypes and all forms. It varies everything that a
sender may choose: order, white space, escapes, nesting, members that are null, and unknown members.
`mutated_messages()` changes one thing in such a message. This module needs the extra `streamcodec[testing]`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.testing.mutations import applicable, mutate
from streamcodec.testing.samples import Draft, ExpectedMessage, ExpectedTensor, Members

_NAMES = st.text(min_size=1, max_size=6)
_PARAMETERS = st.dictionaries(
    st.text(max_size=5).map(lambda name: f"p{name}"),  # unlike any that the protocol knows
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    max_size=2,
)
_SPECIAL = [
    bytes.fromhex(digits)
    for digits in (
        "ffffffffffffffff",  # the last unsigned integer, and a NaN
        "000000000000f0ff",  # minus infinity, of 64 bits
        "000000000000807f",  # infinity, of 32 and of BF16's 16
        "0000000000000080",  # the first signed integer, and minus zero
        "ffffffffffffff7f",  # the last signed integer
        "000000000100807f",  # a signalling NaN, of 32
    )
]


def shapes(*, max_rank: int = 3, max_size: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Make shapes: scalars, empty ones and others, with few elements."""
    return st.lists(st.integers(0, max_size), max_size=max_rank).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, datatype: str | None = None, *, is_text: bool = False) -> np.ndarray[Any, Any]:
    """Make arrays of a datatype; all bits occur.

    Args:
        draw: Hypothesis's.
        datatype: one of the specification's 14; None for any of them. BF16 is uint16, BYTES are objects.
        is_text: whether BYTES have a JSON form.
    """
    kind = DATATYPES[datatype or draw(st.sampled_from(list(DATATYPES)))]
    shape = draw(shapes())
    count = math.prod(shape)
    if kind.is_bytes:
        element = st.text(max_size=5).map(str.encode) if is_text else st.binary(max_size=8)
        array = np.empty(count, object)
        array[:] = draw(st.lists(element, min_size=count, max_size=count))
        return array.reshape(shape)
    nbytes = count * kind.itemsize
    # Random bits would seldom give NaN or the ends of a range.
    special = st.sampled_from(_SPECIAL).map(lambda byte: byte[-kind.itemsize :] * count)
    data = draw(st.binary(min_size=nbytes, max_size=nbytes) | special)
    if kind.name == "BOOL":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, "<u2" if kind.name == "BF16" else kind.dtype).reshape(shape)


def messages(*, is_response: bool | None = None, min_tensors: int = 0) -> st.SearchStrategy[ExpectedMessage]:
    """Make valid messages.

    Args:
        is_response: whether responses or requests; None for both.
        min_tensors: smallest number of tensors; the largest is four.

    Example:
        >>> from hypothesis import given, settings
        >>> from streamcodec.testing import assert_expected, run_pull
        >>> @settings(max_examples=5, database=None)
        ... @given(messages())
        ... def test(message):
        ...     assert_expected(run_pull(message.make_decoder, [message.body]), message)
        >>> test()
    """
    return drafts(is_response=is_response, min_tensors=min_tensors).map(Draft.finish)


@st.composite
def mutated_messages(draw: st.DrawFn, *, is_response: bool | None = None) -> ExpectedMessage:
    """Make messages in which one thing has been changed; `refusals` has the expected error codes.

    Args:
        draw: Hypothesis's.
        is_response: whether responses or requests; None for both.
    """
    draft = draw(drafts(is_response=is_response, min_tensors=1))
    name = draw(st.sampled_from(applicable(draft)))
    return mutate(draft, name, lambda choices: draw(st.sampled_from(choices)))


@st.composite
def drafts(draw: st.DrawFn, *, is_response: bool | None = None, min_tensors: int = 0) -> Draft:
    """Make valid messages that can still be changed; arguments as of `messages`."""
    answers = draw(st.booleans()) if is_response is None else is_response
    names = draw(st.lists(_NAMES, min_size=min_tensors, max_size=4, unique=True))
    tensors = [draw(_tensors(name)) for name in names]
    members = {"outputs" if answers else "inputs": [entry for entry, _, _ in tensors]}
    members |= draw(_RESPONSE_MEMBERS if answers else _REQUEST_MEMBERS)
    has_payload = any(payload for _, payload, _ in tensors)
    return Draft(
        members=_in_order(members, is_reversed=draw(st.booleans())),
        is_response=answers,
        payloads=[payload for _, payload, _ in tensors],
        tensors=tuple(tensor for _, _, tensor in tensors),
        padding=draw(st.sampled_from([0, 1, 64])),
        has_header_length=has_payload or draw(st.booleans()),
        has_body_length=draw(st.booleans()),
        is_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2])),
    )


_OUTPUT_PARAMETERS = st.none() | st.fixed_dictionaries({}, optional={"binary_data": st.booleans()})
_OUTPUTS = st.dictionaries(_NAMES, _OUTPUT_PARAMETERS, max_size=2).map(
    lambda outputs: [{"name": name, "parameters": parameters} for name, parameters in outputs.items()]
)
_COMMON: Members = {
    "id": st.none() | st.text(max_size=8),
    "parameters": st.none() | _PARAMETERS,
    "unknown": st.none() | st.lists(st.just({"data": []}), max_size=1),
}
_REQUEST_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        **_COMMON,
        "parameters": st.none() | st.builds(dict, _PARAMETERS, binary_data_output=st.booleans()),
        "outputs": st.none() | _OUTPUTS,
        "model_name": st.text(max_size=3),
    },
)
_RESPONSE_MEMBERS = st.fixed_dictionaries(
    {}, optional={**_COMMON, "model_name": st.none() | _NAMES, "model_version": st.none() | st.text(max_size=3)}
)


@st.composite
def _tensors(draw: st.DrawFn, name: str) -> tuple[Members, bytes, ExpectedTensor]:
    """Make a tensor: its entry in the header, its bytes, and its expected content."""
    datatype = DATATYPES[draw(st.sampled_from(list(DATATYPES)))]
    is_binary = not datatype.has_json or draw(st.booleans())
    array = draw(arrays(datatype.name, is_text=not is_binary))
    entry: Members = {"name": name, "datatype": datatype.name, "shape": list(array.shape)}
    parameters = draw(st.none() | _PARAMETERS)
    if is_binary:
        payload = _payload(array)
        entry["parameters"] = {**(parameters or {}), "binary_data_size": len(payload)}
        if draw(st.booleans()):
            entry["data"] = None
    else:
        payload = b""
        if draw(st.booleans()):
            entry["parameters"] = parameters
        if datatype.kind == "f":  # JSON knows one NaN only
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        values = _texts(array) if datatype.is_bytes else array
        entry["data"] = values.tolist() if draw(st.booleans()) else values.reshape(-1).tolist()
    entry = _in_order(entry, is_reversed=draw(st.booleans()))
    return entry, payload, ExpectedTensor(name=name, datatype=datatype.name, array=array)


def _in_order(members: Members, *, is_reversed: bool) -> Members:
    """Any order is as good as another, but to draw one is slow; with these two, everything stands before everything."""
    return dict(reversed(members.items())) if is_reversed else members


def _texts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    texts = np.empty(array.size, object)
    texts[:] = [element.decode() for element in array.flat]
    return texts.reshape(array.shape)


def _payload(array: np.ndarray[Any, Any]) -> bytes:
    if not array.dtype.hasobject:
        return array.tobytes()
    return b"".join(len(element).to_bytes(4, "little") + element for element in array.flat)
