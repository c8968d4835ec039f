"""Properties: every valid message is accepted and read alike; every wrong one gets a verdict that was expected.

On every chunking and on all faces. Chance finds messages; each mutation also has its turn by name, on a message that
has something for all of them.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from streamcodec import DATATYPES, ErrorCode
from streamcodec.testing import (
    MUTATIONS,
    Choose,
    Draft,
    ExpectedMessage,
    applicable,
    assert_expected,
    assert_read_as_by_oracle,
    assert_split_invariant,
    chunkings,
    mutate,
    run_pull,
    run_push,
    run_scatter,
)
from streamcodec.testing.strategies import arrays, messages, mutated_messages
from tests.effort import examples
from tests.formats.v2.messages import binary, jsonic

SETTINGS = settings(max_examples=examples(50), derandomize=True)


def seeded(seed: str) -> Choose:
    return Random(seed).choice  # noqa: S311 - chance that can be repeated is what is wanted


def few_chunkings(data: bytes) -> list[list[bytes]]:
    return [*chunkings(data, at_most=10, count=5)]


def check(message: ExpectedMessage) -> None:
    runs = (run_push, run_pull, run_scatter)
    outcome = assert_split_invariant(message.make_decoder, message.body, runs=runs, chunkings=few_chunkings)
    assert_expected(outcome, message)


@pytest.mark.slow
@SETTINGS
@given(messages())
def test_every_valid_message_is_accepted_and_read_alike_however_it_is_cut(message: ExpectedMessage) -> None:
    assert not message.refusals
    check(message)


@SETTINGS
@given(mutated_messages())
def test_every_mutated_message_gets_an_expected_verdict_however_it_is_cut(message: ExpectedMessage) -> None:
    check(message)


def rich_draft(*, is_response: bool, has_lengths: bool = True) -> Draft:
    """A message that has something for every mutation."""
    elements = b"\2\0\0\0ab\0\0\0\0"
    entries: list[dict[str, Any]] = [
        binary("FP32", [2, 3], 24, name="numbers", data=None),
        binary("BOOL", [3], 3, name="bits"),
        binary("BYTES", [2], len(elements), name="elements"),
        binary("INT8", [0], 0, name="empty"),
        jsonic("INT16", [2, 2], [[1, 2], [3, 4]], name="nested"),
        jsonic("FP64", [2], [1.5, float("nan")], name="flat"),
        jsonic("BYTES", [], "é", name="text"),
        jsonic("BOOL", [0], [], name="none"),
        jsonic("FP32", [], 0.5, name="scalar"),
    ]
    return Draft(
        members={"id": "é", ("outputs" if is_response else "inputs"): entries},
        is_response=is_response,
        payloads=[np.arange(6, dtype="<f4").tobytes(), b"\1\0\1", elements, *[b""] * 6],
        tensors=None,
        padding=3,
        has_body_length=has_lengths,
    )


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("is_response", [False, True], ids=["request", "response"])
def test_every_mutation_gets_an_expected_verdict(name: str, is_response: bool) -> None:
    choose = seeded(name)
    for has_lengths in (True, False):
        for _ in range(20):
            draft = rich_draft(is_response=is_response, has_lengths=has_lengths)
            if name not in applicable(draft):
                assert not has_lengths
                break
            message = mutate(draft, name, choose)
            assert (message.mutation, message.is_response) == (name, is_response)
            assert_expected(run_push(message.make_decoder, [message.body]), message)


def test_mutations_lead_to_most_of_the_codes_of_a_message() -> None:
    choose = seeded("codes")
    codes: set[ErrorCode] = set()
    for name in MUTATIONS:
        for _ in range(60):
            codes |= mutate(rich_draft(is_response=False), name, choose).refusals
    of_others = {
        ErrorCode.INVALID_HEADER_LENGTH,
        ErrorCode.INVALID_FRAME,
        ErrorCode.INVALID_CHECKSUM,
        ErrorCode.LENGTH_REQUIRED,
        ErrorCode.TRAILING_BYTES,
        ErrorCode.UNSUPPORTED_ENCODING,
        ErrorCode.INVALID_COMPRESSION,
    }
    of_message = {*list(ErrorCode)[: list(ErrorCode).index(ErrorCode.LIMIT_EXCEEDED)]} - of_others
    assert of_message <= codes | {ErrorCode.TRUNCATED}


def test_what_cannot_be_changed_is_told() -> None:
    draft = Draft(members={"inputs": []}, is_response=False, payloads=[], tensors=None)
    with pytest.raises(KeyError, match="no such thing"):
        mutate(draft, "no such thing", seeded("none"))
    with pytest.raises(IndexError):
        mutate(draft, "name twice", seeded("none"))


def test_a_draft_is_valid_as_it_is() -> None:
    for is_response in (False, True):
        check(rich_draft(is_response=is_response).finish())


def test_fields_of_the_head() -> None:
    message = rich_draft(is_response=False).finish()
    assert message.headers == {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(message.header_length),
        "Content-Length": str(len(message.body)),
    }
    plain = Draft(
        members={"inputs": []},
        is_response=False,
        payloads=[],
        tensors=(),
        has_header_length=False,
        has_body_length=False,
    ).finish()
    assert plain.headers == {"Content-Type": "application/json"}
    assert json.loads(plain.body) == {"inputs": []}


def forms_of(message: ExpectedMessage) -> set[str]:
    """What is special about a message."""
    tensors = message.tensors or ()
    texts = [element for tensor in tensors if tensor.datatype == "BYTES" for element in tensor.array.flat]
    is_jsonic = b'"data": [' in message.body
    forms = {
        "a scalar": any(tensor.array.shape == () for tensor in tensors),
        "an empty tensor": any(0 in tensor.array.shape for tensor in tensors),
        "an element that is no text": any(not element.isascii() for element in texts),
        "binary and JSON tensors": is_jsonic and b"binary_data_size" in message.body,
        "NaN in JSON": b"NaN" in message.body,
        "no header length": message.header_length is None,
        "no body length, but tensors": message.body_length is None and message.header_length is not None,
        "padding": message.body[: message.header_length].endswith(b" "),
        "an escape": b"\\u" in message.body,
        "a request": not message.is_response,
        "a response": message.is_response,
        "no tensors": not tensors,
    }
    return {form for form, is_there in forms.items() if is_there} | {tensor.datatype for tensor in tensors}


@pytest.mark.slow
def test_messages_take_every_form() -> None:
    seen: set[str] = set()

    @settings(max_examples=1_000, derandomize=True, phases=[Phase.generate])  # what is drawn depends on our code
    @given(messages())
    def look(message: ExpectedMessage) -> None:
        seen.update(forms_of(message))

    look()
    assert len(seen) == 12 + len(DATATYPES), sorted(seen)


@pytest.mark.slow
@pytest.mark.parametrize("datatype", DATATYPES)
def test_arrays_are_of_the_datatype_asked_for(datatype: str) -> None:
    array = find(arrays(datatype), lambda array: array.size > 1, settings=settings(derandomize=True))
    assert array.dtype == (np.dtype("<u2") if datatype == "BF16" else DATATYPES[datatype].dtype)


def test_messages_can_be_asked_for() -> None:
    options = settings(max_examples=examples(20), derandomize=True)

    @options
    @given(messages(is_response=True, min_tensors=2), mutated_messages(is_response=False))
    def look(answer: ExpectedMessage, question: ExpectedMessage) -> None:
        assert answer.is_response
        assert len(answer.tensors or ()) >= 2
        assert not question.is_response

    look()


def test_the_oracle_is_asked_where_a_mutation_changed_the_values() -> None:
    message = mutate(rich_draft(is_response=False), "another number", seeded("number"))
    assert message.tensors is None
    assert not message.refusals
    outcome = run_push(message.make_decoder, [message.body])
    assert_read_as_by_oracle(outcome, message.body, message.header_length)
