"""Compact headers: one expression has the results of the strict parser, and leaves all other headers to it."""

from __future__ import annotations

import json
import random
from unittest import mock

import pytest

from streamcodec import DATATYPES, DEFAULT_LIMITS, Limits, RemoteProtocolError, parse_request_header
from streamcodec.formats.v2.header import parsing as strict_way
from streamcodec.formats.v2.header.compact import MOST_BYTES, read_compactly
from streamcodec.testing import describe_error, describe_header
from tests.effort import IS_EXHAUSTIVE, parts
from tests.formats.v2.messages import binary

TENSOR = binary("FP32", [2, 3], 24)
WISH = {"binary_data_output": True}
HEADER = {"id": "a", "inputs": [TENSOR], "parameters": WISH}
TEXT = json.dumps(HEADER).encode()


def strictly(text: bytes, limits: Limits) -> tuple[object, ...]:
    """Everything that the strict parser says of a text."""
    with (
        mock.patch.object(strict_way, "match_compactly", return_value=None),
        mock.patch.object(strict_way, "read_plainly", return_value=None),
    ):
        return described(text, limits)


def described(text: bytes, limits: Limits) -> tuple[object, ...]:
    """Everything that is said of a text."""
    try:
        return describe_header(parse_request_header(text, limits))
    except RemoteProtocolError as error:
        return describe_error(error)


def check(text: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Compare the ways for a text, also where it is refused; return whether it is compact."""
    wanted = strictly(text, limits)
    assert described(text, limits) == wanted, text
    header = read_compactly(text, limits)
    if header is None:
        return False
    assert describe_header(header) == wanted, text
    return True


def valued(datatype: str, data: list[object], **members: object) -> bytes:
    """Return a header whose tensor has its values in it."""
    tensor = {"name": "x", "shape": [len(data)], "datatype": datatype, "data": data, **members}
    return json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode()


COMPACT = {
    "a tensor alone": b'{"inputs":[%b]}' % json.dumps(TENSOR).encode(),
    "all members": TEXT,
    "without blanks": json.dumps(HEADER, separators=(",", ":")).encode(),
    "with all kinds of blanks": json.dumps(HEADER, indent="\t \n").encode().replace(b"\n", b"\r\n") + b"  ",
    "in another order": json.dumps(dict(reversed(HEADER.items()))).encode(),
    "no wish": json.dumps(HEADER | {"parameters": {"binary_data_output": False}}).encode(),
    "an empty id": json.dumps(HEADER | {"id": ""}).encode(),
    "BYTES": json.dumps({"inputs": [binary("BYTES", [2], 30)]}).encode(),
    "floats": valued("FP32", [1.5, -2, 1e-45, 1e-60, 0.0, -0.0, 0, 3.4e38]),
    "many floats": valued("FP64", [value / 7 for value in range(300)]),
    "integers": valued("INT8", [-128, 127, 0, 1]),
    "the largest integer": valued("UINT64", [2**64 - 1]),
    "booleans": valued("BOOL", [True, False]),
    "texts": valued("BYTES", ["", "a", "[{:,}]", "ä", "\u2028"]),
    "rows in one list": valued("INT32", [1, 2, 3, 4], shape=[2, 2]),
    "values with blanks": valued("INT32", [1, 2]).replace(b"[1, 2]", b"[ 1\t,\r\n2 ]"),
    "-0 as an integer": valued("INT32", [1, 2]).replace(b"[1, 2]", b"[1, -0]"),
    "the longest numbers": json.dumps({"inputs": [binary("INT8", [1, 1], 1)]}).encode(),
} | {
    name: json.dumps({"inputs": [binary(name, [3, 1], 3 * datatype.itemsize)]}).encode()
    for name, datatype in DATATYPES.items()
}

LEFT = {
    "values in rows": valued("INT32", [[1, 2]], shape=[1, 2]),
    "too few values": valued("FP32", [1, 2], shape=[3]),
    "no values": valued("FP32", []),
    "a value of another type": valued("FP32", [1.5, "1"]),
    "a boolean as a number": valued("INT32", [1, True]),
    "a fraction as an integer": valued("INT32", [1.5]),
    "too large": valued("INT8", [128]),
    "infinite": valued("FP32", [1e39]),
    "a constant": valued("FP32", [float("nan")]),
    "null as a value": valued("FP64", [None]),
    "-0 as a float": valued("FP32", [1, 2]).replace(b"[1, 2]", b"[1, -0]"),
    "an object as a value": valued("BYTES", [{"a": 1}]),
    "an escape in a text": valued("BYTES", ["\n"]),
    "half of a letter in a text": valued("BYTES", ["a"]).replace(b'["a"]', b'["\xc3"]'),
    "a list that is not closed": valued("INT32", [1]).replace(b"[1]}", b"[1}"),
    "a comma at the end": valued("INT32", [1, 1]).replace(b"[1, 1]", b"[1, ]"),
    "no JSON form": valued("FP16", [1.5]),
    "values and a size": valued("FP32", [1.5], parameters={"binary_data_size": 4}),
    "values and parameters": valued("FP32", [1.5], parameters={}),
    "another member": json.dumps(HEADER | {"x": 1}).encode(),
    "a member twice": TEXT[:-1] + b',"id":"b"}',
    "a parameter more": json.dumps(HEADER | {"parameters": {**WISH, "x": 1}}).encode(),
    "an escape": TEXT.replace(b'"a"', b'"\\u0061"'),
    "a letter beyond ASCII": TEXT.replace(b'"a"', '"ä"'.encode()),
    "a control character": TEXT.replace(b'"a"', b'"\n"'),
    "no inputs": json.dumps({"id": "a"}).encode(),
    "two inputs": json.dumps({"inputs": [TENSOR, TENSOR]}).encode(),
    "no name": json.dumps({"inputs": [TENSOR | {"name": ""}]}).encode(),
    "a comma too many": TEXT[:-1] + b",}",
    "a comma at the beginning": b"{," + TEXT[1:],
    "no comma": TEXT.replace(b', "inputs"', b' "inputs"'),
    "a leading zero": TEXT.replace(b"[2, 3]", b"[02, 3]"),
    "a negative size": TEXT.replace(b"[2, 3]", b"[-2, 3]"),
    "a fraction": TEXT.replace(b"[2, 3]", b"[2.0, 3]"),
    "too many digits": TEXT.replace(b"24", b"24" + b"0" * 15),
    "a scalar": TEXT.replace(b"[2, 3]", b"[]"),
    "without elements": json.dumps({"inputs": [binary("FP32", [0], 0)]}).encode(),
    "another size": json.dumps({"inputs": [binary("FP32", [2], 9)]}).encode(),
    "too few BYTES": json.dumps({"inputs": [binary("BYTES", [2], 7)]}).encode(),
    "another datatype": TEXT.replace(b"FP32", b"FP99"),
    "no size": json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]}).encode(),
    "no shape": json.dumps({"inputs": [{name: TENSOR[name] for name in TENSOR if name != "shape"}]}).encode(),
    "something behind it": TEXT + b"x",
    "nothing": b"",
}


@pytest.mark.parametrize("name", COMPACT)
def test_a_compact_header_is_read_as_by_the_strict_parser(name: str) -> None:
    assert check(COMPACT[name])
    assert check(memoryview(COMPACT[name]).tobytes())


@pytest.mark.parametrize("name", LEFT)
def test_all_else_is_left_to_the_others(name: str) -> None:
    assert not check(LEFT[name])


@pytest.mark.parametrize(
    ("limits", "datatype", "shape", "nbytes"),
    [
        ({"max_elements": 6}, "FP32", [2, 3], 24),
        ({"max_rank": 2}, "FP32", [2, 3], 24),
        ({"max_tensor_bytes": 24}, "FP32", [2, 3], 24),
        ({"max_json_depth": 4}, "FP32", [2, 3], 24),
        ({"max_tensors": 1}, "FP32", [2, 3], 24),
        ({"max_bytes_elements": 2}, "BYTES", [2], 20),
        ({"max_element_bytes": 20}, "BYTES", [2], 20),
    ],
)
def test_at_its_limits_it_is_compact_and_beyond_not(
    limits: dict[str, int], datatype: str, shape: list[int], nbytes: int
) -> None:
    text = json.dumps({"inputs": [binary(datatype, shape, nbytes)]}).encode()
    assert check(text, Limits(**limits))
    assert not check(text, Limits(**{name: value - 1 for name, value in limits.items()}))


@pytest.mark.parametrize(
    ("limits", "datatype", "data"),
    [
        ({"max_json_tensor_bytes": 24}, "FP64", [1, 2, 3]),
        ({"max_elements": 3}, "FP32", [1, 2, 3]),
        ({"max_rank": 1}, "FP32", [1]),
        ({"max_json_depth": 4}, "FP32", [1]),
        ({"max_tensors": 1}, "FP32", [1]),
        ({"max_bytes_elements": 2}, "BYTES", ["a", "b"]),
        ({"max_element_bytes": len(valued("BYTES", ["a"]))}, "BYTES", ["a"]),
        ({"max_message_bytes": len(valued("BYTES", ["a"]))}, "BYTES", ["a"]),
    ],
)
def test_values_at_their_limits_are_compact_and_beyond_not(
    limits: dict[str, int], datatype: str, data: list[object]
) -> None:
    text = valued(datatype, data)
    assert check(text, Limits(**limits))
    assert not check(text, Limits(**{name: value - 1 for name, value in limits.items()}))


LONG = valued("FP64", [value / 7 for value in range(2_500)])


@pytest.mark.parametrize(
    ("text", "is_compact"),
    [
        (LONG, True),
        (valued("FP32", [value / 7 for value in range(5_000)]), True),
        (valued("FP64", [value / 7 for value in range(5_000)]), True),
        (valued("FP32", [[value / 7] for value in range(2_500)]), False),
        (valued("FP32", [value / 7 for value in range(2_500)], parameters={"data": []}), False),
        (valued("INT64", [1_000] * 20_000), True),
        (valued("INT64", [1_000] * 20_001), False),
        (LONG.replace(b"]}]}", b",]}]}"), False),
        (LONG.replace(b"]}]}", b"}]}"), False),
        (LONG.replace(b"]}]}", b",{}]}]}"), False),
        (b"%b%b" % (LONG[:-3], b',"data":[1]}]}'), False),
        (valued("BYTES", ["a,[{" * 10_000]), True),
        (valued("FP64", [0.5] * 9_000, name="a" * 4_096), False),
        (json.dumps({"inputs": [TENSOR]}).encode() + b" " * 40_000, False),
    ],
)
def test_long_headers_are_compact_if_there_is_little_but_values(text: bytes, is_compact: bool) -> None:
    assert 32 << 10 < len(text) <= MOST_BYTES
    assert check(text) is is_compact


@pytest.mark.parametrize("limit", ["max_json_text_bytes", "max_json_values"])
def test_a_long_header_at_its_limits_is_compact_and_beyond_not(limit: str) -> None:
    rest = len(LONG) - (LONG.index(b"]}]}") - LONG.index(b"0.0"))
    most = len(LONG) if limit == "max_json_text_bytes" else rest + rest // 20
    assert check(LONG, Limits(**{limit: most}))
    assert not check(LONG, Limits(**{limit: most - 1}))


def test_at_the_limit_of_a_message_it_is_compact() -> None:
    nbytes = len(TEXT) + 24
    assert check(TEXT, Limits(max_message_bytes=nbytes))
    assert not check(TEXT, Limits(max_message_bytes=nbytes - 1))


TELLING = (b"", b" ", b",", b":", b'"', b"{", b"}", b"[", b"]", b"0", b"1", b"-", b"e5", b".5", b"null", b"true", b"\\",
           b'"id":"b",', b'"data":[1],', b"-0", b'"name":"x",', b'"shape":[6],', b"9" * 15, b"\xff", b"\0")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("part", parts(20))
def test_mutants(part: int) -> None:
    choice = random.Random(part)  # noqa: S311 - to be repeated, not secret
    texts = [*COMPACT.values()]
    count = 0
    for _ in range(50_000 if IS_EXHAUSTIVE else 5_000):
        text = choice.choice(texts)
        for _ in range(choice.choice((1, 1, 2, 3))):
            place = choice.randrange(len(text) + 1)
            text = text[:place] + choice.choice(TELLING) + text[place + choice.choice((0, 0, 1, 2)) :]
        count += check(text)
    assert count > 100, "some are still compact"
