"""Drawing: random calls, each with what the server answers to it."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from streamcodec.tritonclient.utils import triton_to_np_dtype
from tests.tritonclient.faces import Face


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of either package, and the answer that the server has for it."""

    method: str
    arguments: Mapping[str, Any]
    """By name. What stands for an object of a package has a method `make`."""
    status: int = 200
    fields: tuple[str, ...] = ()
    body: bytes = b'{"model_name":"m","model_version":"1","outputs":[]}'

    def __call__(self, client: Face) -> Any:  # noqa: ANN401 - what the method returns
        """Call the method."""
        arguments = {name: _made(value, client) for name, value in self.arguments.items()}
        result = client.call(self.method, **arguments)
        if self.method != "generate_request_body":
            return result
        body, length = result
        return length, json.loads(body[:length]), None if length is None else body[length:]


@dataclass(frozen=True, slots=True)
class Input:
    """An input, by an array or by a place in shared memory."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    array: np.ndarray[Any, Any] | None
    place: tuple[str, int, int] = ("", 0, 0)
    is_binary: bool = True

    def make(self, client: Face) -> Any:  # noqa: ANN401 - of either package
        """Make the `InferInput`."""
        if self.array is not None:
            return client.tensor(self.name, self.array, self.datatype, binary=self.is_binary)
        return client.http.InferInput(self.name, [*self.shape], self.datatype).set_shared_memory(*self.place)


@dataclass(frozen=True, slots=True)
class Output:
    """A wanted output."""

    name: str
    is_binary: bool
    class_count: int
    place: tuple[str, int, int] | None
    is_unset: bool

    def make(self, client: Face) -> Any:  # noqa: ANN401 - of either package
        """Make the `InferRequestedOutput`."""
        output = client.http.InferRequestedOutput(self.name, self.is_binary, self.class_count)
        if self.place is not None:
            output.set_shared_memory(*self.place)
        if self.is_unset:
            output.unset_shared_memory()
        return output


def _made(value: Any, client: Face) -> Any:  # noqa: ANN401 - an argument
    if isinstance(value, Mapping):
        return dict(value)  # tritonclient adds fields to the caller's dictionary
    return [each.make(client) for each in value] if isinstance(value, tuple) else value


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="?#%"), max_size=5)
_FIELDS = st.dictionaries(st.sampled_from(["X-A", "x-b", "Accept", "Content-Type"]), st.sampled_from(["a", 7, "b c"]))
_QUERIES = st.dictionaries(NAMES, st.one_of(NAMES, st.integers(), st.lists(NAMES, max_size=2)), max_size=2)
_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), NAMES, st.sampled_from([0.5, -2.25]))
_OBJECTS = st.dictionaries(NAMES, _VALUES, max_size=3)
_MODELS = NAMES.filter(lambda name: name.strip("./") != "")  # others are paths that yarl shortens
_PLACES = st.tuples(NAMES, st.integers(0, 9), st.integers(0, 2))

_ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "is_server_live": {},
    "is_server_ready": {},
    "is_model_ready": {"model_name": _MODELS, "model_version": st.sampled_from(["", "1", "12"])},
    "get_server_metadata": {},
    "get_model_metadata": {"model_name": _MODELS, "model_version": st.sampled_from(["", "1"])},
    "get_model_config": {"model_name": _MODELS, "model_version": st.sampled_from(["", "1", 2])},
    "get_model_repository_index": {},
    "load_model": {
        "model_name": _MODELS,
        "config": st.one_of(st.none(), st.just('{"a": 1}')),
        "files": st.one_of(st.none(), st.dictionaries(NAMES, st.binary(max_size=4), max_size=2)),
    },
    "unload_model": {"model_name": _MODELS, "unload_dependents": st.booleans()},
    "get_inference_statistics": {"model_name": st.one_of(st.just(""), _MODELS), "model_version": st.just("1")},
    "update_trace_settings": {"model_name": st.one_of(st.none(), st.just(""), _MODELS), "settings": _OBJECTS},
    "get_trace_settings": {"model_name": st.one_of(st.none(), st.just(""), _MODELS)},
    "update_log_settings": {"settings": _OBJECTS},
    "get_log_settings": {},
    "get_system_shared_memory_status": {"region_name": st.one_of(st.just(""), _MODELS)},
    "register_system_shared_memory": {"name": _MODELS, "key": NAMES, "byte_size": st.just(8), "offset": st.just(1)},
    "unregister_system_shared_memory": {"name": st.one_of(st.just(""), _MODELS)},
    "get_cuda_shared_memory_status": {"region_name": st.one_of(st.just(""), _MODELS)},
    "register_cuda_shared_memory": {
        "name": _MODELS,
        "raw_handle": st.just(b"YWJj"),
        "device_id": st.just(0),
        "byte_size": st.just(8),
    },
    "unregister_cuda_shared_memory": {"name": st.one_of(st.just(""), _MODELS)},
}
"""The methods that exchange JSON, and their own arguments."""

_REQUIRED: Final = {"model_name", "name", "key", "byte_size", "raw_handle", "device_id", "settings"}

REFUSALS: list[tuple[int, bytes]] = [
    (400, b'{"error": "why"}'),
    (503, b'{"error": "' + b"long " * 1000 + b'"}'),
    (404, b""),
    (500, b'{"detail": "no error"}'),
    (201, b'{"error": "created"}'),
]
_DOCUMENTS = [(200, b'{"name": "\xc3\xa9", "list": [1, 2.5, null, true]}'), (200, b"[]"), *REFUSALS]


def _documents(method: str) -> st.SearchStrategy[Ask]:
    own = _ARGUMENTS[method]
    required = {name: values for name, values in own.items() if name in _REQUIRED}
    optional = {name: values for name, values in own.items() if name not in _REQUIRED}
    optional |= {"headers": st.one_of(st.none(), _FIELDS), "query_params": _QUERIES}
    return st.builds(
        lambda arguments, answer: Ask(method, arguments, status=answer[0], body=answer[1]),
        st.fixed_dictionaries(required, optional=optional),
        st.sampled_from(_DOCUMENTS),
    )


_TYPES = ["BOOL", "UINT8", "UINT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]


@st.composite
def _inputs(draw: st.DrawFn) -> Input:
    name, datatype = draw(NAMES), draw(st.sampled_from(_TYPES))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    if draw(st.integers(0, 5)) == 0:
        return Input(name, datatype, shape, None, draw(_PLACES))
    return Input(name, datatype, shape, _array(draw, datatype, shape), is_binary=draw(st.booleans()))


def _array(draw: st.DrawFn, datatype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=int))
    if datatype == "BYTES":
        texts: list[Any] = draw(
            st.lists(st.one_of(NAMES, st.binary(max_size=3), st.integers()), min_size=count, max_size=count)
        )
        array = np.empty(count, object)
        array[:] = texts
        if draw(st.booleans()) and all(isinstance(text, bytes) for text in texts):
            array = array.astype("S")
    else:
        numbers = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
        array = (np.array(numbers, float) / (4 if "FP" in datatype else 1)).astype(triton_to_np_dtype(datatype))
    return array.reshape(shape[::-1]).T if draw(st.booleans()) else array.reshape(shape)


_OUTPUTS = st.builds(
    Output, NAMES, st.booleans(), st.integers(0, 2), st.one_of(st.none(), _PLACES), is_unset=st.booleans()
)
_IN_BODY: dict[str, st.SearchStrategy[Any]] = {
    "request_id": NAMES,
    "sequence_id": st.sampled_from([0, 5, "", "s"]),
    "sequence_start": st.booleans(),
    "sequence_end": st.booleans(),
    "priority": st.integers(0, 2),
    "timeout": st.one_of(st.none(), st.integers(0, 9)),
    "parameters": st.one_of(
        st.none(), _OBJECTS, st.sampled_from([{"priority": 1}, {"triton_x": 1}, {"binary_data_output": False}])
    ),
    "outputs": st.one_of(st.none(), st.lists(_OUTPUTS, max_size=2).map(tuple)),
}
_AROUND: dict[str, st.SearchStrategy[Any]] = {
    "model_version": st.sampled_from(["", "3"]),
    "headers": st.one_of(st.none(), _FIELDS),
    "query_params": _QUERIES,
    "request_compression_algorithm": st.sampled_from([None, "gzip", "deflate", "br"]),
    "response_compression_algorithm": st.sampled_from([None, "gzip", "deflate", "br"]),
}
_GIVEN = st.lists(_inputs(), max_size=3).map(tuple)
_REQUESTS = st.fixed_dictionaries({"model_name": _MODELS, "inputs": _GIVEN}, optional=_IN_BODY | _AROUND)
_BODIES = st.fixed_dictionaries({"inputs": _GIVEN}, optional=_IN_BODY)


@st.composite
def _answers(draw: st.DrawFn) -> tuple[bytes, int | None, str | None]:
    """An answer, the length of its header, and how it is compressed."""
    outputs: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for name in draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True)):
        datatype = draw(st.sampled_from(_TYPES))
        shape = draw(st.lists(st.integers(0, 3), max_size=2))
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        array = _array(draw, datatype, tuple(shape))
        match draw(st.sampled_from(["binary", "json", "shared"])):
            case "binary":
                tensors.append(_wire(array) if datatype == "BYTES" else array.tobytes())
                entry["parameters"] = {"binary_data_size": len(tensors[-1]), "note": 1}
            case "json":
                entry["data"] = [_plain(value) for value in array.reshape(-1).tolist()]
            case _:
                entry["parameters"] = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
        outputs.append(entry)
    header = json.dumps({"model_name": "m", "id": draw(NAMES), "outputs": outputs, "other": {"a": [None]}}).encode()
    is_declared: bool = bool(tensors) or draw(st.booleans())
    encoding = draw(st.sampled_from([None, "gzip", "deflate"]))
    return _WIRE[encoding](header + b"".join(tensors)), len(header) if is_declared else None, encoding


_WIRE: dict[str | None, Callable[[bytes], bytes]] = {None: bytes, "gzip": gzip.compress, "deflate": zlib.compress}


def _wire(array: np.ndarray[Any, Any]) -> bytes:
    payloads = [value if isinstance(value, bytes) else str(value).encode() for value in array.reshape(-1).tolist()]
    return b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads)


def _plain(value: object) -> object:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _infers(answer: tuple[bytes, int | None, str | None]) -> Ask:
    body, length, encoding = answer
    fields = [] if length is None else [f"Inference-Header-Content-Length: {length}"]
    fields += [] if encoding is None else [f"Content-Encoding: {encoding}"]
    given = Input("x", "INT64", (3,), np.arange(3))
    return Ask("infer", {"model_name": "m", "inputs": (given,)}, fields=tuple(fields), body=body)


def _parses(answer: tuple[bytes, int | None, str | None]) -> Ask:
    body, length, encoding = answer
    arguments = {"response_body": body, "header_length": length, "content_encoding": encoding}
    return Ask("parse_response_body", arguments)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random calls of one kind."""

    calls: st.SearchStrategy[Ask]
    weight: int = field(default=20, kw_only=True)
    """How many of a hundred calls are of this kind."""


CALLS: Final[dict[str, Drawn]] = {method: Drawn(_documents(method), weight=1) for method in _ARGUMENTS} | {
    "infer, request": Drawn(_REQUESTS.map(lambda arguments: Ask("infer", arguments))),
    "infer, answer": Drawn(_answers().map(_infers)),
    "generate_request_body": Drawn(_BODIES.map(lambda arguments: Ask("generate_request_body", arguments))),
    "parse_response_body": Drawn(_answers().map(_parses)),
}
"""By the method, and by what of it is random."""
