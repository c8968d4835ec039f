"""Seeds of the small formats: what numpy and we write, and each with one thing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from targets.stream import Case

from streamcodec import DATATYPES
from streamcodec.formats import npy, safetensors

_ENTRY: Final = '"dtype":"I16","shape":[2],"data_offsets":[0,4]'
_TEXTS: Final = {
    "metadata": '{"__metadata__":{"a":"b"},"x":{%s}}',
    "null": '{"__metadata__":null,"x":{%s}}',
    "order": '{"y":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"x":{%s}}',
    "empty": '{"y":{"dtype":"F64","shape":[0],"data_offsets":[4,4]},"x":{%s}}',
    "hole": '{"y":{"dtype":"U8","shape":[1],"data_offsets":[5,6]},"x":{%s}}',
    "overlap": '{"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"x":{%s}}',
    "twice": '{"x":{%s},"x":1}',
    "unknown": '{"x":{%s,"z":[{},null,1.5e3,"\\u00e9"]}}',
    "padded": '{"x":{%s}}   ',
    "escape": '{"\\ud83d\\ude00":{%s}}',
}
_HEADERS: Final = {
    "usual": "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n",
    "fortran": "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2)}",
    "quotes": '{"shape":(2,),"descr":"<i2","fortran_order":False}  ',
    "big": "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }",
    "dates": "{'descr': '<M8[25s]', 'fortran_order': False, 'shape': (), }",
    "strings": "{'descr': '|S2', 'fortran_order': False, 'shape': (2,), }",
    "structure": "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
}
_DATA: Final = bytes(range(8))


def safetensors_seeds() -> Iterator[tuple[str, Case]]:
    """Yield the seeds of safetensors."""
    for name in ("BOOL", "UINT8", "INT32", "FP16", "FP64"):
        array = np.ones((2, 1), DATATYPES[name].dtype)
        yield name, Case(stream=b"".join(safetensors.encode({"x": array}).buffers), piece=3)
    for name, text in _TEXTS.items():
        data = (text % _ENTRY).encode()
        size = 5 if name == "order" else 4
        case = Case(stream=len(data).to_bytes(8, "little") + data + _DATA[:size], first_piece=9, has_length=True)
        yield name, case
        yield f"{name}-limited", Case(stream=case.stream[:-1], is_limited=True, run=2)


def npy_seeds() -> Iterator[tuple[str, Case]]:
    """Yield the seeds of npy and npz."""
    for name, text in _HEADERS.items():
        start = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little")
        yield name, Case(stream=start + text.encode() + _DATA, piece=7)
        yield f"{name}-limited", Case(stream=start + text.encode() + _DATA[:4], is_limited=True, has_length=True)
    long = _HEADERS["usual"].encode()
    yield "version-3", Case(stream=b"\x93NUMPY\3\0" + len(long).to_bytes(4, "little") + long + _DATA[:4])
    for name, arrays in (("none", {}), ("one", {"a": np.ones(1, np.int8)}), ("two", {"a": np.ones(1), "é": np.eye(2)})):
        archive = b"".join(npy.encode_archive(arrays).buffers)
        yield f"archive-{name}", Case(stream=archive, kind=1)
        if arrays:  # the first member says that it is compressed
            yield f"archive-{name}-compressed", Case(stream=archive[:8] + b"\10" + archive[9:], kind=1)
