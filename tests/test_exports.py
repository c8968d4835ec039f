"""The public API of the codec, name by name: a change here is a change for users."""

from __future__ import annotations

import enum
import importlib
import inspect
import subprocess
import sys
import types

import pytest

import streamcodec

PUBLIC = [
    "DATATYPES",
    "DEFAULT_LIMITS",
    "ENCODINGS",
    "HEADER_LENGTH_FIELD",
    "NEED_DATA",
    "NEED_TURN",
    "SAGEMAKER_MEDIA_TYPE",
    "VERTEX_AI_MEDIA_TYPE",
    "Datatype",
    "Decoder",
    "Discard",
    "Elements",
    "EncodedMessage",
    "EndOfMessage",
    "ErrorCode",
    "Event",
    "Fill",
    "Header",
    "HeaderCache",
    "HeaderReceived",
    "Inflater",
    "Into",
    "LimitExceededError",
    "Limits",
    "LocalProtocolError",
    "MemoryMap",
    "Message",
    "MessageError",
    "NeedData",
    "NeedTurn",
    "NewArray",
    "NonFiniteOutput",
    "NotRepresentableError",
    "OutOfMemoryError",
    "Part",
    "Place",
    "Placement",
    "Pool",
    "ProtocolError",
    "Reader",
    "Reading",
    "RemoteProtocolError",
    "RequestHeader",
    "RequestedOutput",
    "ResponseHeader",
    "RowWriter",
    "Rows",
    "Slab",
    "Tensor",
    "TensorReceived",
    "TensorSpec",
    "WindowReceived",
    "Windows",
    "binary_form",
    "chosen",
    "compress_message",
    "datatype_of",
    "encode_raw_request",
    "encode_request",
    "encode_response",
    "format_decoder",
    "header_length_of",
    "message_of",
    "new_array",
    "parse_content_encoding",
    "parse_header_length",
    "parse_media_type",
    "parse_request_header",
    "parse_response_header",
    "raw_request_decoder",
    "request_decoder",
    "response_decoder",
]


def test_public_names() -> None:
    assert streamcodec.__all__ == PUBLIC


def test_nothing_else_is_public() -> None:
    others = {name for name, value in vars(streamcodec).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in others if not name.startswith("_")} == set(PUBLIC)


def test_names_are_loaded_when_they_are_asked_for() -> None:
    code = """
import sys, streamcodec
assert streamcodec.Limits().max_rank and streamcodec.NEED_DATA
assert "numpy" not in sys.modules and "streamcodec.codec" not in sys.modules
assert set(streamcodec.__all__) < set(dir(streamcodec))
assert streamcodec.engine.limits.Limits is streamcodec.Limits
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="module 'streamcodec' has no attribute 'nonsense'"):
        streamcodec.nonsense  # type: ignore[attr-defined]  # noqa: B018 - as it says
    with pytest.raises(ImportError, match="nonsense"):
        from streamcodec import nonsense  # type: ignore[attr-defined]  # noqa: F401, PLC0415 - as it says


@pytest.mark.parametrize(
    ("name", "functions"),
    [("files", {"decode", "encode_to", "next_event"}), ("streams", {"next_event", "receive_message", "send_message"})],
)
def test_the_functions_for_files_and_streams(name: str, functions: set[str]) -> None:
    module = importlib.import_module(f"streamcodec.transports.{name}")
    own = {
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    assert {key for key in own if not key.startswith("_")} == functions


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_importable_and_documented(name: str) -> None:
    value = getattr(streamcodec, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)
        assert value.__module__.startswith(("streamcodec.engine.", "streamcodec.formats."))


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(getattr(streamcodec, name))])
def test_each_public_member_of_a_class_is_documented(name: str) -> None:
    kind = getattr(streamcodec, name)
    for member, value in vars(kind).items():
        if member.startswith("_") or issubclass(kind, enum.Enum):
            continue
        if inspect.isfunction(value) or isinstance(value, property):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_version() -> None:
    assert streamcodec.__version__.count(".") == 2


FACES = {
    "server": {
        "AccessLog",
        "ClientCertificates",
        "Server",
        "ServerOptions",
        "UnixListener",
        "call_model",
        "open_listener",
        "open_unix_listener",
        "run",
        "run_workers",
        "server_context",
        "to_descriptor",
        "to_logger",
    },
    "asgi": {"App", "SharedBudget", "pieces", "receive_request", "send_response"},
    "wsgi": {"App", "SharedBudget", "pieces", "receive_request", "send_response"},
    "aiohttp": {"App", "SharedBudget", "leave_expectation", "receive_request", "send_response"},
    "tritonclient.http": {
        "InferAsyncRequest",
        "InferInput",
        "InferRequestedOutput",
        "InferResult",
        "InferenceServerClient",
        "InferenceServerClientPlugin",
        "InferenceServerException",
        "Request",
        "deserialize_bytes_tensor",
        "np_to_triton_dtype",
        "raise_error",
        "serialize_byte_tensor",
        "serialized_byte_size",
        "triton_to_np_dtype",
    },
}
"""What users import to serve; the apps and endpoints have the same names everywhere. And the names of tritonclient."""


@pytest.mark.parametrize("room", FACES)
def test_names_of_the_faces(room: str) -> None:
    module = importlib.import_module(f"streamcodec.{room}")
    assert set(module.__all__) == FACES[room]
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize(("room", "old", "new"), [("aiohttp", "Handler", "App"), ("wsgi", "pieces_of", "pieces")])
def test_a_name_that_goes_says_what_to_use(room: str, old: str, new: str) -> None:
    module = importlib.import_module(f"streamcodec.{room}")
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now, and goes in 0.4.0"):
        assert getattr(module, old) is getattr(module, new)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = module.nonsense
