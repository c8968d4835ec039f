"""Files of the format, right and wrong by one thing, with the verdict to expect."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamcodec import Limits
from streamcodec.formats import safetensors
from streamcodec.testing import Outcome, run_push

ml_dtypes: Any = pytest.importorskip("ml_dtypes", reason="not every processor has it")
reference: Any = pytest.importorskip("safetensors", reason="not every processor has it")

ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
BYTES = bytes(4)
_EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def file(text: str | bytes, data: bytes = BYTES, *, length: int | None = None) -> bytes:
    """A file of this header, whatever it says."""
    text = text if isinstance(text, bytes) else text.encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(data: bytes = BYTES, **members: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """A file of one tensor with some members changed; None leaves one out."""
    usual = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    members = {key: value for key, value in {**usual, **members}.items() if value is not None}
    return file(json.dumps({"a": members}, separators=(",", ":")), data)


def read(data: bytes, *, length: int | None = None, limits: Limits | None = None, **options: Any) -> Outcome:  # noqa: ANN401
    """What comes of a file."""
    return run_push(lambda: safetensors.decoder(length=length, limits=limits or Limits(), **options), [data])


class Refusal(NamedTuple):
    """A file, the code of its refusal, and words of the message."""

    data: bytes
    code: str
    words: str


ACCEPTED = {
    "one tensor": file(f'{{"a":{ENTRY}}}'),
    "no tensor": file("{}", b""),
    "metadata alone": file('{"__metadata__":{"a":"1"}}', b""),
    "metadata null": file(f'{{"__metadata__":null,"a":{ENTRY}}}'),
    "spaces at the end": file(f'{{"a":{ENTRY}}}    '),
    "white space at the end": file(f'{{"a":{ENTRY}}}\t\r\n '),
    "an unknown member": entry(x={"y": [None, 1.5]}),
    "a scalar": entry(shape=[]),
    "no elements": entry(b"", shape=[3, 0], data_offsets=[0, 0]),
    "empty tensors at one place": file(f'{{"c":{_EMPTY},"a":{_EMPTY},"b":{ENTRY}}}'),
    "an empty tensor at the end": file(f'{{"b":{{"dtype":"F32","shape":[0],"data_offsets":[4,4]}},"a":{ENTRY}}}'),
    "another order": file(f'{{"b":{{"dtype":"F32","shape":[1],"data_offsets":[4,8]}},"a":{ENTRY}}}', bytes(range(8))),
    "off its boundary": file(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}',
        bytes(range(5)),
    ),
    "an empty name": file(f'{{"":{ENTRY}}}'),
    "a name with an escape": file(f'{{"\\u0000\\ud83d\\ude00":{ENTRY}}}'),
    "letters in metadata": file('{"__metadata__":{"é":"ü"}}', b""),
}

_SECOND = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'

REFUSED = {
    "nothing": Refusal(b"", "truncated", "8 bytes too early"),
    "seven bytes": Refusal(bytes(7), "truncated", "1 byte too early"),
    "no text": Refusal(file("", b""), "invalid-header", "brace"),
    "an array": Refusal(file("[]", b""), "invalid-header", "brace"),
    "a space first": Refusal(file(f' {{"a":{ENTRY}}}'), "invalid-header", "brace"),
    "a byte order mark": Refusal(file(b"\xef\xbb\xbf{}", b""), "invalid-header", "brace"),
    "a longer header": Refusal(file("{}", b"", length=3), "truncated", "too early"),
    "a shorter header": Refusal(file("{}", b"", length=1), "invalid-json", ""),
    "100 MB and a byte": Refusal(file("{}", b"", length=100_000_001), "invalid-header-length", "allows 100000000"),
    "2^63 bytes": Refusal(file("{}", b"", length=1 << 63), "invalid-header-length", ""),
    "2^64 - 1 bytes": Refusal(file("{}", b"", length=(1 << 64) - 1), "invalid-header-length", ""),
    "no JSON": Refusal(file("{a}", b""), "invalid-json", ""),
    "text behind": Refusal(file("{}x", b""), "invalid-json", "extra data"),
    "a zero behind": Refusal(file("{}\0", b""), "invalid-json", "extra data"),
    "no UTF-8": Refusal(file(b'{"\xff":1}', b""), "invalid-utf8", ""),
    "half a surrogate pair": Refusal(file(f'{{"\\ud800":{ENTRY}}}'), "invalid-utf8", ""),
    "a control character": Refusal(file(f'{{"\x01":{ENTRY}}}'), "invalid-json", ""),
    "NaN": Refusal(file(f'{{"a":{ENTRY[:-1]},"x":NaN}}}}'), "non-finite-number", ""),
    "a name twice": Refusal(file(f'{{"a":{ENTRY},"a":{ENTRY}}}'), "duplicate-key", "'a'"),
    "a member twice": Refusal(file(f'{{"a":{{"dtype":"F32",{ENTRY[1:]}}}'), "duplicate-key", "'dtype'"),
    "metadata twice": Refusal(file('{"__metadata__":{},"__metadata__":{}}', b""), "duplicate-key", ""),
    "a key of the metadata twice": Refusal(file('{"__metadata__":{"a":"1","a":"1"}}', b""), "duplicate-key", ""),
    "metadata of numbers": Refusal(file('{"__metadata__":{"a":1}}', b""), "invalid-member", "object of strings"),
    "metadata of null": Refusal(file('{"__metadata__":{"a":null}}', b""), "invalid-member", "object of strings"),
    "a list of metadata": Refusal(file('{"__metadata__":[]}', b""), "invalid-member", "object of strings"),
    "an entry that is a list": Refusal(file('{"a":["F32",[1],[0,4]]}'), "missing-member", "object"),
    "an entry that is null": Refusal(file('{"a":null}'), "missing-member", "object"),
    "no dtype": Refusal(entry(dtype=None), "missing-member", ""),
    "no shape": Refusal(entry(shape=None), "missing-member", ""),
    "no offsets": Refusal(entry(data_offsets=None), "missing-member", ""),
    "an unknown dtype": Refusal(entry(dtype="F31"), "unknown-datatype", "'F31'"),
    "small letters": Refusal(entry(dtype="f32"), "unknown-datatype", "'f32'"),
    "a dtype that is no string": Refusal(entry(dtype=["F32"]), "unknown-datatype", "this"),
    "less than a byte": Refusal(entry(shape=[8], dtype="F4"), "unknown-datatype", "whole bytes"),
    "six bits": Refusal(entry(bytes(6), shape=[8], dtype="F6_E2M3", data_offsets=[0, 6]), "unknown-datatype", ""),
    "a shape that is a number": Refusal(entry(shape=1), "invalid-shape", ""),
    "a size below zero": Refusal(entry(shape=[-1]), "invalid-shape", ""),
    "a size that is a float": Refusal(entry(shape=[1.0]), "invalid-shape", ""),
    "a size that is true": Refusal(entry(shape=[True]), "invalid-shape", ""),
    "2^64 elements": Refusal(entry(shape=[1 << 64]), "invalid-shape", ""),
    "2^63 elements": Refusal(entry(shape=[1 << 63]), "limit-exceeded", "elements"),
    "an overflow": Refusal(entry(shape=[1 << 62, 4]), "limit-exceeded", "elements"),
    "an overflow without elements": Refusal(
        entry(b"", shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0]), "limit-exceeded", "elements"
    ),
    "65 dimensions": Refusal(entry(shape=[1] * 65), "limit-exceeded", "dimensions"),
    "one offset": Refusal(entry(data_offsets=[0]), "invalid-member", "two integers"),
    "three offsets": Refusal(entry(data_offsets=[0, 4, 4]), "invalid-member", "two integers"),
    "an offset below zero": Refusal(entry(data_offsets=[-4, 0]), "invalid-member", "two integers"),
    "an offset of 2^64": Refusal(entry(data_offsets=[0, 1 << 64]), "invalid-member", "two integers"),
    "offsets the wrong way": Refusal(entry(data_offsets=[4, 0]), "invalid-member", "begins at byte 4"),
    "an end before its begin": Refusal(
        file(f'{{"a":{ENTRY},"b":{_SECOND % (4, 0)}}}'), "binary-size-mismatch", "-4 bytes"
    ),
    "a byte less": Refusal(entry(bytes(3), data_offsets=[0, 3]), "binary-size-mismatch", "3 bytes"),
    "a byte more": Refusal(entry(bytes(5), data_offsets=[0, 5]), "binary-size-mismatch", "5 bytes"),
    "2^63 bytes of data": Refusal(entry(data_offsets=[0, 1 << 63]), "binary-size-mismatch", ""),
    "2^38 bytes of data": Refusal(
        entry(shape=[1 << 36], data_offsets=[0, 1 << 38]), "limit-exceeded", "274877906944 bytes"
    ),
    "a hole at the beginning": Refusal(entry(bytes(8), data_offsets=[4, 8]), "invalid-member", "begins at byte 4"),
    "a hole between": Refusal(file(f'{{"a":{ENTRY},"b":{_SECOND % (5, 9)}}}', bytes(9)), "invalid-member", "byte 5"),
    "an overlap": Refusal(file(f'{{"a":{ENTRY},"b":{_SECOND % (3, 7)}}}', bytes(7)), "invalid-member", "byte 3"),
    "the same bytes": Refusal(file(f'{{"a":{ENTRY},"b":{ENTRY}}}'), "invalid-member", "begins at byte 0"),
    "an empty tensor within another": Refusal(
        file(f'{{"a":{ENTRY},"b":{{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}}}'), "invalid-member", "byte 2"
    ),
    "a byte missing": Refusal(entry(bytes(3)), "truncated", "1 byte too early"),
    "a byte behind": Refusal(entry(bytes(5)), "trailing-bytes", ""),
    "a boolean of 2": Refusal(entry(b"\2", dtype="BOOL", data_offsets=[0, 1]), "invalid-bool", ""),
}

STRICTER = {
    "a space first",
    "a name twice",
    "a key of the metadata twice",
    "an entry that is a list",
    "less than a byte",
    "six bits",
    "2^38 bytes of data",
    "65 dimensions",
    "an overflow without elements",
    "a boolean of 2",
}
"""Files that the format's own implementation accepts, and we do not."""

DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "C64": np.complex64,
    "F64": np.float64,
    "I64": np.int64,
    "U64": np.uint64,
}


def values(name: str) -> np.ndarray[Any, Any]:
    """Some values of a dtype, by their bits."""
    if name == "BOOL":
        return np.array([[True], [False]])
    itemsize = np.dtype(DTYPES[name]).itemsize
    bits = np.arange(1, 2 * itemsize + 1, dtype=np.uint8)
    array: np.ndarray[Any, Any] = bits.view(DTYPES[name]).reshape(2, 1)
    return array


def viewed(data: bytes) -> dict[str, tuple[str, list[int], bytes]] | None:
    """What the format's own implementation says of a file: dtype, shape and bytes by name; None if it refuses."""
    views: list[tuple[str, dict[str, Any]]]
    try:
        views = reference.deserialize(data)
    except reference.SafetensorError:
        return None
    return {name: (view["dtype"], view["shape"], bytes(view["data"])) for name, view in views}
