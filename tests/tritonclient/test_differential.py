"""The same calls by tritonclient and by ours: the server sees the same, and the program gets the same."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tritonclient.faces import OURS, THEIRS, Face, face
from tests.tritonclient.recording import Recorder, recording

pytest.importorskip("tritonclient.http", reason="tritonclient is not here")

Pair = tuple[Face, Face, Recorder]
"""Ours, theirs, and the server that both talk to."""

_FORGOTTEN = ("failed", "NameError")
"""tritonclient.http.aio uses `raise_error`, and does not import it."""

_ASKED_BY_AIOHTTP = ("accept-encoding", "gzip, deflate, br")


@pytest.fixture(scope="module", params=["sync", "aio"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with (
        recording() as recorder,
        face(OURS, request.param, f"{recorder.address}/base/") as ours,
        face(THEIRS, request.param, f"{recorder.address}/base/") as theirs,
    ):
        yield ours, theirs, recorder


def _seen(recorder: Recorder) -> list[dict[str, Any]]:
    seen = [request.plain for request in recorder.requests]
    for request in seen:
        if request["fields"].get("accept-encoding") == _ASKED_BY_AIOHTTP[1]:
            del request["fields"]["accept-encoding"]
    return seen


def _outcome(client: Face, ask: Callable[[Face], Any]) -> Any:  # noqa: ANN401 - whatever both give
    try:
        result = ask(client)
    except client.http.InferenceServerException as error:
        return "refused", str(error), error.message(), error.status(), error.debug_details()
    except Exception as error:  # noqa: BLE001 - the kind is what is compared
        return "failed", type(error).__name__
    if not hasattr(result, "as_numpy"):
        return result
    response = result.get_response()
    outputs = [output["name"] for output in response.get("outputs", ())]
    return response, [(result.get_output(name), _values(result, name)) for name in [*outputs, "absent"]]


def _values(result: Any, name: str) -> Any:  # noqa: ANN401 - of either package
    try:
        array = result.as_numpy(name)
    except KeyError as error:  # it is in shared memory
        return repr(error)
    if array is None:
        return None
    return array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()


def _assert_same(pair: Pair, ask: Callable[[Face], Any]) -> Any:  # noqa: ANN401 - the outcome
    ours, theirs, recorder = pair
    recorder.requests.clear()
    expected = _outcome(theirs, ask)
    expected_requests = _seen(recorder)
    recorder.requests.clear()
    outcome = _outcome(ours, ask)
    assert outcome == expected or (expected == _FORGOTTEN and outcome[0] == "refused")
    assert _seen(recorder) == expected_requests
    return expected


_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="?#%"), max_size=5)
_FIELDS = st.dictionaries(st.sampled_from(["X-A", "x-b", "Accept", "Content-Type"]), st.sampled_from(["a", 7, "b c"]))
_QUERIES = st.dictionaries(_NAMES, st.one_of(_NAMES, st.integers(), st.lists(_NAMES, max_size=2)), max_size=2)
_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), _NAMES, st.sampled_from([0.5, -2.25]))
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=3)
_MODELS = _NAMES.filter(lambda name: name.strip("./") != "")  # others are paths that yarl shortens

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
        "files": st.one_of(st.none(), st.dictionaries(_NAMES, st.binary(max_size=4), max_size=2)),
    },
    "unload_model": {"model_name": _MODELS, "unload_dependents": st.booleans()},
    "get_inference_statistics": {"model_name": st.one_of(st.just(""), _MODELS), "model_version": st.just("1")},
    "update_trace_settings": {"model_name": st.one_of(st.none(), st.just(""), _MODELS), "settings": _OBJECTS},
    "get_trace_settings": {"model_name": st.one_of(st.none(), st.just(""), _MODELS)},
    "update_log_settings": {"settings": _OBJECTS},
    "get_log_settings": {},
    "get_system_shared_memory_status": {"region_name": st.one_of(st.just(""), _MODELS)},
    "register_system_shared_memory": {"name": _MODELS, "key": _NAMES, "byte_size": st.just(8), "offset": st.just(1)},
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

_DOCUMENTS: list[tuple[int, bytes]] = [
    (200, b'{"name": "\xc3\xa9", "list": [1, 2.5, null, true]}'),
    (200, b"[]"),
    (400, b'{"error": "why"}'),
    (503, b'{"error": "' + b"long " * 1000 + b'"}'),
    (404, b""),
    (500, b'{"detail": "no error"}'),
    (201, b'{"error": "created"}'),
]


@pytest.mark.parametrize("method", _ARGUMENTS)
@given(data=st.data())
def test_documents(pair: Pair, method: str, data: st.DataObject) -> None:
    arguments = data.draw(st.fixed_dictionaries({}, optional=_ARGUMENTS[method]))
    required = {"model_name", "name", "key", "byte_size", "raw_handle", "device_id", "settings"}
    arguments |= {name: data.draw(values) for name, values in _ARGUMENTS[method].items() if name in required}
    arguments |= data.draw(
        st.fixed_dictionaries({}, optional={"headers": st.one_of(st.none(), _FIELDS), "query_params": _QUERIES})
    )
    status, body = data.draw(st.sampled_from(_DOCUMENTS))
    pair[2].answers(body, status=status)
    _assert_same(pair, lambda client: client.call(method, **arguments))


_TYPES = ["BOOL", "UINT8", "UINT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]


@st.composite
def _inputs(draw: st.DrawFn) -> Callable[[Face], Any]:
    name = draw(_NAMES)
    datatype = draw(st.sampled_from(_TYPES))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    if draw(st.integers(0, 5)) == 0:
        place = (draw(_NAMES), draw(st.integers(0, 9)), draw(st.integers(0, 2)))
        return lambda client: client.http.InferInput(name, [*shape], datatype).set_shared_memory(*place)
    array = _array(draw, datatype, shape)
    is_binary = draw(st.booleans())
    return lambda client: client.tensor(name, array, datatype, binary=is_binary)


def _array(draw: st.DrawFn, datatype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=int))
    if datatype == "BYTES":
        texts: list[Any] = draw(
            st.lists(st.one_of(_NAMES, st.binary(max_size=3), st.integers()), min_size=count, max_size=count)
        )
        array = np.empty(count, object)
        array[:] = texts
        if draw(st.booleans()) and all(isinstance(text, bytes) for text in texts):
            array = array.astype("S")
    else:
        from tritonclient.utils import triton_to_np_dtype  # noqa: PLC0415 - it may not be here

        numbers = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
        array = (np.array(numbers, float) / (4 if "FP" in datatype else 1)).astype(triton_to_np_dtype(datatype))
    return array.reshape(shape[::-1]).T if draw(st.booleans()) else array.reshape(shape)


@st.composite
def _outputs(draw: st.DrawFn) -> Callable[[Face], Any]:
    name, is_binary, count = draw(_NAMES), draw(st.booleans()), draw(st.integers(0, 2))
    place = draw(st.one_of(st.none(), st.tuples(_NAMES, st.integers(0, 9), st.integers(0, 2))))
    is_unset = draw(st.booleans())

    def make(client: Face) -> Any:  # noqa: ANN401 - of either package
        output = client.http.InferRequestedOutput(name, is_binary, count)
        if place is not None:
            output.set_shared_memory(*place)
        if is_unset:
            output.unset_shared_memory()
        return output

    return make


_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "model_version": st.sampled_from(["", "3"]),
    "request_id": _NAMES,
    "sequence_id": st.sampled_from([0, 5, "", "s"]),
    "sequence_start": st.booleans(),
    "sequence_end": st.booleans(),
    "priority": st.integers(0, 2),
    "timeout": st.one_of(st.none(), st.integers(0, 9)),
    "headers": st.one_of(st.none(), _FIELDS),
    "query_params": _QUERIES,
    "request_compression_algorithm": st.sampled_from([None, "gzip", "deflate", "br"]),
    "response_compression_algorithm": st.sampled_from([None, "gzip", "deflate", "br"]),
    "parameters": st.one_of(
        st.none(), _OBJECTS, st.sampled_from([{"priority": 1}, {"triton_x": 1}, {"binary_data_output": False}])
    ),
}


@given(data=st.data())
def test_inference_requests(pair: Pair, data: st.DataObject) -> None:
    model = data.draw(_MODELS)
    inputs = data.draw(st.lists(_inputs(), max_size=3))
    outputs = data.draw(st.one_of(st.none(), st.lists(_outputs(), max_size=2)))
    options = data.draw(st.fixed_dictionaries({}, optional=_OPTIONS))
    pair[2].answers(b'{"model_name":"m","model_version":"1","outputs":[]}')

    def ask(client: Face) -> Any:  # noqa: ANN401 - a result
        wanted = None if outputs is None else [make(client) for make in outputs]
        own = {name: dict(value) if name == "headers" and value else value for name, value in options.items()}
        return client.call("infer", model, [make(client) for make in inputs], outputs=wanted, **own)

    _assert_same(pair, ask)


@given(data=st.data())
def test_request_bodies(pair: Pair, data: st.DataObject) -> None:
    inputs = data.draw(st.lists(_inputs(), max_size=3))
    names = ("request_id", "sequence_id", "priority", "timeout", "parameters")
    options = data.draw(st.fixed_dictionaries({}, optional={name: _OPTIONS[name] for name in names}))

    def ask(client: Face) -> Any:  # noqa: ANN401 - what can be compared
        body, length = client.client.generate_request_body([make(client) for make in inputs], **options)
        return length, json.loads(body[:length]), body[length:] if length is not None else None

    _assert_same(pair, ask)


@st.composite
def _answers(draw: st.DrawFn) -> tuple[bytes, int | None]:
    """An answer, and the length of its header."""
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
    header = json.dumps({"model_name": "m", "id": draw(_NAMES), "outputs": outputs, "other": {"a": [None]}}).encode()
    is_declared: bool = bool(tensors) or draw(st.booleans())
    length = len(header) if is_declared else None
    return header + b"".join(tensors), length


def _wire(array: np.ndarray[Any, Any]) -> bytes:
    payloads = [value if isinstance(value, bytes) else str(value).encode() for value in array.reshape(-1).tolist()]
    return b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads)


def _plain(value: object) -> object:
    return value.decode("latin-1") if isinstance(value, bytes) else value


@given(data=st.data())
def test_inference_answers(pair: Pair, data: st.DataObject) -> None:
    body, length = data.draw(_answers())
    encoding = data.draw(st.sampled_from([None, "gzip", "deflate"]))
    fields = [] if length is None else [f"Inference-Header-Content-Length: {length}"]
    wire = {None: lambda body: body, "gzip": gzip.compress, "deflate": zlib.compress}[encoding](body)
    pair[2].answers(wire, *fields, *([] if encoding is None else [f"Content-Encoding: {encoding}"]))
    array = np.arange(3)

    def ask(client: Face) -> Any:  # noqa: ANN401 - a result
        return client.call("infer", "m", [client.tensor("x", array, "INT64")])

    _assert_same(pair, ask)
    _assert_same(pair, lambda client: client.client.parse_response_body(wire, False, length, encoding))


@pytest.mark.parametrize(("status", "body"), _DOCUMENTS[2:])
def test_refusals_of_inference(pair: Pair, status: int, body: bytes) -> None:
    pair[2].answers(body, status=status)
    outcome = _assert_same(pair, lambda client: client.call("infer", "m", []))
    assert outcome[0] == "refused"


def test_no_json_has_the_same_beginning(pair: Pair) -> None:
    """What follows is the word of a JSON parser."""
    ours, theirs, recorder = pair
    recorder.answers(b"<html>", status=502)
    mine, other = (_outcome(client, lambda client: client.call("get_server_metadata")) for client in (ours, theirs))
    start = "an exception occurred in the client while decoding the response: "
    assert mine[2].startswith(start)
    assert other[2].startswith(start)
    assert mine[2].rpartition("\n")[2] == other[2].rpartition("\n")[2] == "response: <html>"
    assert mine[3:] == other[3:] == ("502", "<html>")


def _wrong_uses(client: Face) -> dict[str, Callable[[], Any]]:
    http = client.http
    given_input = http.InferInput("x", [2, 3], "FP32")
    classified = http.InferRequestedOutput("y", class_count=2)
    return {
        "no array": lambda: given_input.set_data_from_numpy([1]),
        "datatype": lambda: given_input.set_data_from_numpy(np.zeros((2, 3))),
        "no datatype": lambda: given_input.set_data_from_numpy(np.zeros((2, 3), complex)),
        "shape": lambda: given_input.set_data_from_numpy(np.zeros((3, 2), np.float32)),
        "rank": lambda: given_input.set_data_from_numpy(np.zeros(6, np.float32)),
        "no text": lambda: client.tensor("x", np.array([b"\xff"], object), "BYTES", binary=False),
        "classes in memory": lambda: classified.set_shared_memory("r", 8),
        "scheme": lambda: http.InferenceServerClient("http://localhost:8000"),
        "version": lambda: http.InferenceServerClient("localhost:1").is_model_ready("m", 1),
        "version to infer": lambda: http.InferenceServerClient("localhost:1").infer("m", [], 1),
        "chunks": lambda: client.call("is_server_live", headers={"transfer-Encoding": "chunked"}),
        "no JSON": lambda: client.call("infer", "m", [], parameters={"a": object()}),
        "no plugin": client.client.unregister_plugin,
        "no connection": lambda: http.InferenceServerClient("127.0.0.1:1").is_server_live(),
    }


@pytest.mark.parametrize(
    "use",
    [
        "no array",
        "datatype",
        "no datatype",
        "shape",
        "rank",
        "no text",
        "classes in memory",
        "scheme",
        "version",
        "version to infer",
        "chunks",
        "no JSON",
        "no plugin",
        "no connection",
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tritonclient's `__del__`
def test_wrong_uses(pair: Pair, use: str) -> None:
    outcome = _assert_same(pair, lambda client: _wrong_uses(client)[use]())
    assert outcome[0] in {"refused", "failed"}


def test_plugins(pair: Pair) -> None:
    """A plugin sees all fields of the message, and changes them."""
    seen: list[dict[str, Any]] = []

    def plugin(request: Any) -> None:  # noqa: ANN401 - of either package
        seen.append(dict(request.headers))
        request.headers["authorization"] = "Bearer 7"
        request.headers.pop("x-b", None)

    array = np.arange(3)

    def ask(client: Face) -> Any:  # noqa: ANN401 - a result
        client.client.register_plugin(plugin)
        assert client.client.plugin() is plugin
        with pytest.raises(client.http.InferenceServerException, match="A plugin is already registered"):
            client.client.register_plugin(plugin)
        try:
            return client.call("infer", "m", [client.tensor("x", array, "INT64")], headers={"x-a": "1", "x-b": "2"})
        finally:
            client.client.unregister_plugin()

    pair[2].answers(b'{"outputs":[]}')
    _assert_same(pair, ask)
    assert seen[0] == seen[1]
    assert pair[2].requests[0].plain["fields"]["authorization"] == "Bearer 7"
