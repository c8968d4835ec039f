"""Long headers that are parsed at once: the same is said of them as block by block, wherever they end or are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamcodec import DEFAULT_LIMITS, Limits, RemoteProtocolError, parse_request_header, parse_response_header
from streamcodec.engine.json.scan import LONG_BYTES
from streamcodec.formats.v2 import layout as layout_room
from streamcodec.formats.v2.header import parsing as header_room
from streamcodec.formats.v2.header.parsing import WHOLE_BYTES, long_request_header
from streamcodec.testing import describe_error, describe_header
from tests.engine.triad import accept, decode
from tests.formats.v2.messages import Members, binary, json_message, jsonic, message

VALUES = [round(value, 6) for value in np.random.default_rng(4).normal(size=4_500).tolist()]
FLOATS = jsonic("FP32", [len(VALUES)], VALUES)


def text_of(*tensors: Members, **members: Any) -> bytes:  # noqa: ANN401 - any JSON value
    text = json.dumps({"inputs": tensors, **members}).encode()
    assert LONG_BYTES < len(text) <= WHOLE_BYTES
    return text


USUAL = text_of(FLOATS, parameters={"binary_data_output": True})
MANY = [0] * 4_200

TEXTS: dict[str, bytes] = {
    "floats": USUAL,
    "nested": text_of(jsonic("FP64", [1500, 3], np.reshape(VALUES, (1500, 3)).tolist())),
    "integers": text_of(jsonic("INT64", [4_500], [number * 10**6 for number in range(4_500)])),
    "words": text_of(jsonic("BYTES", [4_500], ["a word"] * 4_500)),
    "two tensors": text_of(FLOATS, jsonic("INT8", [300], [-7] * 300, name="y"), binary("INT8", [3], 3, name="z")),
    "many tensors": text_of(*(jsonic("INT8", [1], [1], name=str(number)) for number in range(600))),
    "-0": text_of(FLOATS | {"data": [*VALUES[1:], 0]}).replace(b", 0]", b", -0]"),
    "an escape": text_of(FLOATS | {"name": "\n"}),
    "a hidden name": USUAL.replace(b'"data"', b'"d\\u0061ta"'),
    "white space": USUAL.replace(b", ", b" ,\t", 9),
    "many values elsewhere": text_of(jsonic("INT8", [9_000], [7] * 9_000), parameters={"a": MANY}),
    "much text elsewhere": text_of(FLOATS, parameters={"a": "b" * 15_000}),
    "a long number elsewhere": USUAL.replace(b"true", b"1" * 4_000),
    "NaN": text_of(FLOATS | {"data": [*VALUES[1:], float("nan")]}),
    "a wrong value at the end": text_of(FLOATS | {"data": [*VALUES[1:], "a"]}),
    "a wrong value at the beginning": text_of(FLOATS | {"data": [True, *VALUES[1:]]}),
    "too few": text_of(FLOATS | {"data": VALUES[1:]}),
    "a wrong id": text_of(FLOATS, id=7),
    "a wrong flag": USUAL.replace(b"true", b"1"),
    "not JSON": USUAL.replace(b", -0.", b", -0.-", 1),
    "not JSON at the end": USUAL[:-2] + b",}",
    "two objects": USUAL + b"{}",
    "a member twice": USUAL[:-1] + b',"parameters":{}}',
    "an array": b"[" + b"1," * 20_000 + b"{}]",
}


@contextmanager
def block_by_block() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(header_room, "WHOLE_BYTES", 0)
        patch.setattr(layout_room, "WHOLE_BYTES", LONG_BYTES)
        yield


def verdicts(text: bytes, limits: Limits) -> list[object]:
    found: list[object] = []
    for parse in (parse_request_header, parse_response_header):
        try:
            found.append(describe_header(parse(text, limits)))
        except RemoteProtocolError as error:
            found.append(describe_error(error))
    return found


LIMITS = [
    DEFAULT_LIMITS,
    Limits(max_json_values=100),
    Limits(max_json_text_bytes=40_000),
    Limits(max_element_bytes=10),
    Limits(max_json_tensor_bytes=1_000),
    Limits(max_json_depth=4),
]


@pytest.mark.parametrize("limits", LIMITS, ids=repr)
@pytest.mark.parametrize("name", TEXTS)
def test_both_ways_say_the_same(name: str, limits: Limits) -> None:
    for text in (TEXTS[name], TEXTS[name].replace(b"inputs", b"outputs")):
        with block_by_block():
            expected = verdicts(text, limits)
        assert verdicts(text, limits) == expected


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 6_000, len(USUAL) - LONG_BYTES])
@pytest.mark.parametrize("name", ["floats", "not JSON", "two tensors"])
def test_messages_whole_and_in_pieces(name: str, missing: int) -> None:
    """A text that is refused may have come to its end before."""
    text = TEXTS[name]
    payload = b"abc" if name == "two tensors" else b""
    for source in (message(text, payload), json_message(text), message(text, payload).headerless()):
        cut = replace(source, body=source.body[: len(source.body) - missing])
        with block_by_block():
            expected = decode(cut).log
        found = decode(cut).log
        assert found._replace(taken=expected.taken) == expected
        assert found.taken == expected.taken or (found.error is not None and found.taken > expected.taken)


@pytest.mark.parametrize("name", ["floats", "nested", "integers", "words", "white space"])
def test_usual_texts_are_parsed_at_once(name: str) -> None:
    text = TEXTS[name]
    whole = long_request_header(DEFAULT_LIMITS, len(text)).parse_whole(memoryview(text))
    assert whole is not None
    (array,) = accept(json_message(text))
    assert whole.tensors[0].data is not None
    assert whole.tensors[0].data.tobytes() == array.tobytes() or name == "words"


@pytest.mark.parametrize(
    "name",
    ["many tensors", "-0", "an escape", "many values elsewhere", "NaN", "a wrong id", "a member twice", "an array"],
)
def test_other_texts_are_not(name: str) -> None:
    text = TEXTS[name]
    assert long_request_header(DEFAULT_LIMITS, len(text)).parse_whole(text) is None


def test_a_text_is_not_parsed_at_once_beyond_its_limits() -> None:
    for limits in (Limits(max_json_values=10), Limits(max_json_text_bytes=LONG_BYTES)):
        assert long_request_header(limits, len(USUAL)).parse_whole(USUAL) is None
