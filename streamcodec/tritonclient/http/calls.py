"""Calls: what each method of the clients asks of a server, and how its answer is read.

Each function has the name and the arguments of a method, and describes its call: the path, the JSON, and what the
answer means. It sends nothing. The blocking and the asynchronous client make their methods of these functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from streamcodec.client.extensions import QueryParams, load_parameters, with_query
from streamcodec.engine.compression.deflate import deflate
from streamcodec.tritonclient.http.result import Answer
from streamcodec.tritonclient.utils import raise_error

T = TypeVar("T")
Headers = Mapping[str, Any] | None
"""Fields of a request; values become text."""
Query = QueryParams | None
Part = bytes | memoryview

_NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    path: str
    """Behind the base path of the server, with the query."""
    headers: dict[str, Any]
    """Fields: those of the caller, then those that say how the message is compressed."""
    read: Callable[[Answer, bool], T]
    """Returns the result of an answer; the second argument is whether to print."""
    body: Sequence[Part] | None = None
    """Of a `POST`; None for a `GET`."""
    encoding: str | None = None
    """How the body has to be compressed."""
    done: str | None = None
    """What to print after success."""
    has_tensors: bool = False
    """Whether the answer is that of an inference request."""
    header_length: int | None = None
    """Bytes of the JSON header of the body; None if there is nothing else."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "GET" if self.body is None else "POST"

    @property
    def parts(self) -> Sequence[Part]:
        """The body, as it is sent unless it has to be compressed."""
        return self.body or ()

    def compressed(self) -> Sequence[Part]:
        """Return the compressed body; this takes long for a large one."""
        return list(deflate(self.parts, self.encoding or "identity"))


def _is_success(answer: Answer, _: bool) -> bool:
    return answer.is_success


def _document(answer: Answer, verbose: bool) -> Any:  # noqa: ANN401 - any JSON value
    answer.check()
    if verbose:
        print(answer.text)
    return answer.document()


def _nothing(answer: Answer, _: bool) -> None:
    answer.check()


def to_json(value: object) -> bytes:
    """Return the JSON text of a value, without white space."""
    return _ENCODER.encode(value).encode()


def _text(value: object) -> object:
    """Return the JSON form of what the standard library has none for: of bytes, their text."""
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"{value!r} is not JSON serializable")


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=_text)
"""To make one takes longer than a short text."""


def _model(model_name: str, model_version: object = "") -> str:
    path = f"v2/models/{_quoted(model_name)}"
    return path if model_version == "" else f"{path}/versions/{_quoted(str(model_version))}"


_quoted: Final = lru_cache(maxsize=256)(quote)
"""Most calls of a program are for a few models."""


def versioned(model_name: str, model_version: object) -> str:
    """Return the path of a model, or of one of its versions.

    Raises:
        InferenceServerException: the version is no text.
    """
    if not isinstance(model_version, str):
        raise_error("model version must be a string")
    return _model(model_name, model_version)


def _get(path: str, headers: Headers, query_params: Query, read: Callable[[Answer, bool], T]) -> Call[T]:
    return Call(path=with_query(path, query_params), headers=dict(headers or {}), read=read)


def _post(
    path: str,
    headers: Headers,
    query_params: Query,
    read: Callable[[Answer, bool], T],
    *,
    document: Mapping[str, Any] | None = None,
    done: str | None = None,
) -> Call[T]:
    body = () if document is None else (to_json(dict(document)),)
    return Call(path=with_query(path, query_params), headers=dict(headers or {}), read=read, body=body, done=done)


def is_server_live(headers: Headers = None, query_params: Query = None) -> Call[bool]:
    """Tell whether the server answers that it is live."""
    return _get("v2/health/live", headers, query_params, _is_success)


def is_server_ready(headers: Headers = None, query_params: Query = None) -> Call[bool]:
    """Tell whether the server answers that it is ready."""
    return _get("v2/health/ready", headers, query_params, _is_success)


def is_model_ready(
    model_name: str, model_version: str = "", headers: Headers = None, query_params: Query = None
) -> Call[bool]:
    """Tell whether the server answers that a model is ready."""
    return _get(f"{versioned(model_name, model_version)}/ready", headers, query_params, _is_success)


def get_server_metadata(headers: Headers = None, query_params: Query = None) -> Call[dict[str, Any]]:
    """Return the server's name, version and extensions."""
    return _get("v2", headers, query_params, _document)


def get_model_metadata(
    model_name: str, model_version: str = "", headers: Headers = None, query_params: Query = None
) -> Call[dict[str, Any]]:
    """Return a model's inputs, outputs and versions."""
    return _get(versioned(model_name, model_version), headers, query_params, _document)


def get_model_config(
    model_name: str, model_version: str = "", headers: Headers = None, query_params: Query = None
) -> Call[dict[str, Any]]:
    """Return a model's configuration."""
    return _get(f"{_model(model_name, model_version)}/config", headers, query_params, _document)


def get_model_repository_index(headers: Headers = None, query_params: Query = None) -> Call[list[dict[str, Any]]]:
    """Return the models of the server's repository, and their states."""
    return _post("v2/repository/index", headers, query_params, _document)


def load_model(
    model_name: str,
    headers: Headers = None,
    query_params: Query = None,
    config: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Call[None]:
    """Have the server load a model, or load it again.

    Args:
        model_name: its name.
        headers: further fields of the request.
        query_params: of the URL.
        config: the configuration of the model, as JSON; None for that of the repository.
        files: content by path, with `file:` before each; they replace the model's folder, and need a `config`.
    """
    parameters = load_parameters(config, files or {})
    document = {"parameters": parameters} if parameters else {}
    path = f"v2/repository/models/{quote(model_name)}/load"
    return _post(path, headers, query_params, _nothing, document=document, done=f"Loaded model '{model_name}'")


def unload_model(
    model_name: str,
    headers: Headers = None,
    query_params: Query = None,
    unload_dependents: bool = False,
) -> Call[None]:
    """Have the server unload a model, and those that depend on it if that is wanted."""
    document = {"parameters": {"unload_dependents": unload_dependents}}
    path = f"v2/repository/models/{quote(model_name)}/unload"
    return _post(path, headers, query_params, _nothing, document=document, done=f"Unloaded model '{model_name}'")


def get_inference_statistics(
    model_name: str = "", model_version: str = "", headers: Headers = None, query_params: Query = None
) -> Call[dict[str, Any]]:
    """Return the statistics of a model, of one of its versions, or of all models."""
    path = "v2/models" if model_name == "" else versioned(model_name, model_version)
    return _get(f"{path}/stats", headers, query_params, _document)


def _trace(model_name: str | None) -> str:
    return f"{_model(model_name) if model_name else 'v2'}/trace/setting"


def update_trace_settings(
    model_name: str | None = None,
    settings: Mapping[str, Any] = _NO_SETTINGS,
    headers: Headers = None,
    query_params: Query = None,
) -> Call[dict[str, Any]]:
    """Change settings of traces, of a model or of all, and return them; a setting of None is cleared."""
    return _post(_trace(model_name), headers, query_params, _document, document=settings)


def get_trace_settings(
    model_name: str | None = None, headers: Headers = None, query_params: Query = None
) -> Call[dict[str, Any]]:
    """Return the settings of traces, of a model or of all."""
    return _get(_trace(model_name), headers, query_params, _document)


def update_log_settings(
    settings: Mapping[str, Any], headers: Headers = None, query_params: Query = None
) -> Call[dict[str, Any]]:
    """Change settings of the server's log, and return them."""
    return _post("v2/logging", headers, query_params, _document, document=settings)


def get_log_settings(headers: Headers = None, query_params: Query = None) -> Call[dict[str, Any]]:
    """Return the settings of the server's log."""
    return _get("v2/logging", headers, query_params, _document)


def _memory(kind: str, name: str, act: str) -> str:
    region = f"/region/{quote(name)}" if name else ""
    return f"v2/{kind}sharedmemory{region}/{act}"


def _registration(
    kind: str, name: str, document: Mapping[str, Any], headers: Headers, query_params: Query
) -> Call[None]:
    done = f"Registered {kind} shared memory with name '{name}'"
    path = f"v2/{kind}sharedmemory/region/{quote(name)}/register"
    return _post(path, headers, query_params, _nothing, document=document, done=done)


def _removal(kind: str, name: str, headers: Headers, query_params: Query) -> Call[None]:
    done = f"Unregistered {kind} shared memory with name '{name}'"
    done = done if name else f"Unregistered all {kind} shared memory regions"
    return _post(_memory(kind, name, "unregister"), headers, query_params, _nothing, done=done)


def get_system_shared_memory_status(
    region_name: str = "", headers: Headers = None, query_params: Query = None
) -> Call[list[dict[str, Any]]]:
    """Return the registered regions of system shared memory, or one of them."""
    return _get(_memory("system", region_name, "status"), headers, query_params, _document)


def register_system_shared_memory(
    name: str, key: str, byte_size: int, offset: int = 0, headers: Headers = None, query_params: Query = None
) -> Call[None]:
    """Have the server open a region of system shared memory.

    Args:
        name: for the server.
        key: for the operating system.
        byte_size: of the region.
        offset: bytes of the memory before the region.
        headers: further fields of the request.
        query_params: of the URL.
    """
    document = {"key": key, "offset": offset, "byte_size": byte_size}
    return _registration("system", name, document, headers, query_params)


def unregister_system_shared_memory(name: str = "", headers: Headers = None, query_params: Query = None) -> Call[None]:
    """Have the server close a region of system shared memory, or all of them."""
    return _removal("system", name, headers, query_params)


def get_cuda_shared_memory_status(
    region_name: str = "", headers: Headers = None, query_params: Query = None
) -> Call[list[dict[str, Any]]]:
    """Return the registered regions of CUDA shared memory, or one of them."""
    return _get(_memory("cuda", region_name, "status"), headers, query_params, _document)


def register_cuda_shared_memory(
    name: str,
    raw_handle: bytes | str,
    device_id: int,
    byte_size: int,
    headers: Headers = None,
    query_params: Query = None,
) -> Call[None]:
    """Have the server open a region of CUDA shared memory.

    Args:
        name: for the server.
        raw_handle: the handle of the region (`cudaIPC`), in base64.
        device_id: of the GPU.
        byte_size: of the region.
        headers: further fields of the request.
        query_params: of the URL.
    """
    document = {"raw_handle": {"b64": raw_handle}, "device_id": device_id, "byte_size": byte_size}
    return _registration("cuda", name, document, headers, query_params)


def unregister_cuda_shared_memory(name: str = "", headers: Headers = None, query_params: Query = None) -> Call[None]:
    """Have the server close a region of CUDA shared memory, or all of them."""
    return _removal("cuda", name, headers, query_params)
