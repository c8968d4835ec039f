"""Both clients against our own server: what they do otherwise than tritonclient, and what is said if it goes wrong."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec.tritonclient.http import (
    InferenceServerClient,
    InferenceServerException,
    InferInput,
    InferRequestedOutput,
    InferResult,
    aio,
)
from streamcodec.tritonclient.http.auth import BasicAuth
from tests.client.scripted import hung_up, response, scripted, stalling
from tests.server.models import models
from tests.server.programs import server_here
from tests.transports.certificates import AUTHORITY, client_side, server_side
from tests.tritonclient.faces import KINDS, OURS, face
from tests.tritonclient.recording import recording


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"{host}:{port}"


@pytest.fixture(scope="module")
def secure_address() -> Iterator[str]:
    with server_here(models(), ssl_context=server_side()) as (_, (host, port)):
        yield f"{host}:{port}"


def _input(array: np.ndarray[Any, Any], datatype: str = "FP32") -> InferInput:
    return InferInput("x", array.shape, datatype).set_data_from_numpy(array)


def _floats(count: int = 4, value: float = 0.0) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.float32) + np.float32(value)


@KINDS
def test_outputs_are_writable_and_the_same_array_each_time(kind: str, address: str) -> None:
    with face(OURS, kind, address) as client:
        result = client.call("infer", "identity", [_input(_floats())])
        array = result.as_numpy("x")
        array += 1
        assert result.as_numpy("x") is array
        assert array.tolist() == [1, 2, 3, 4]
        assert array.ctypes.data % 64 == 0


@KINDS
def test_large_tensors_are_not_copied(kind: str, address: str) -> None:
    array = _floats(4 << 20)
    tensor = _input(array)
    assert isinstance(tensor.wire, memoryview)
    assert np.shares_memory(np.frombuffer(tensor.wire, np.uint8), array)
    with face(OURS, kind, address) as client:
        result = client.call("infer", "identity", [tensor])
        pool = client.client._common.pool  # noqa: SLF001 - it counts
        assert pool.traffic.copied < 1 << 20
        assert np.array_equal(result.as_numpy("x"), array)


def test_threads_share_a_client(address: str) -> None:
    with InferenceServerClient(address, concurrency=3) as client:

        def call(number: int) -> None:
            for step in range(20):
                array = _floats(1000, number * 100 + step)
                result = client.infer("identity", [_input(array)], request_id=f"{number} {step}")
                assert np.array_equal(result.as_numpy("x"), array)
                assert result.get_response()["id"] == f"{number} {step}"

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(call, number) for number in range(8)]:
                future.result()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_share_a_client(backend: str, address: str) -> None:
    async def main() -> None:
        async with aio.InferenceServerClient(address, conn_limit=3) as client, anyio.create_task_group() as group:

            async def call(number: int) -> None:
                array = _floats(1000, number)
                result = await client.infer("identity", [_input(array)], request_compression_algorithm="gzip")
                assert np.array_equal(result.as_numpy("x"), array)

            for number in range(8):
                group.start_soon(call, number)

    anyio.run(main, backend=backend)


def test_async_infer(address: str) -> None:
    with InferenceServerClient(address, concurrency=4, verbose=True) as client:
        array = _floats()
        calls = []
        for number in range(10):
            array[:] = number  # what is sent is a copy
            calls.append(client.async_infer("identity", [_input(array)]))
        assert [call.get_result().as_numpy("x")[0] for call in calls] == [*range(10)]
        refused = client.async_infer("none", [_input(array)])
        with pytest.raises(InferenceServerException, match=r"\[404\] there is no model 'none'"):
            refused.get_result(timeout=60)
        with pytest.raises(InferenceServerException, match="reserved"):  # at once
            client.async_infer("identity", [_input(array)], parameters={"timeout": 1})


def test_a_result_that_has_not_come(address: str) -> None:
    with InferenceServerClient(address, concurrency=2, max_greenlets=1) as client:
        slow = client.async_infer("sleep", [_input(_floats(1, 0.5))])
        next_one = client.async_infer("identity", [_input(_floats())])
        for options in ({"block": False}, {"timeout": 0.01}):
            with pytest.raises(InferenceServerException, match="failed to obtain inference response"):
                slow.get_result(**options)
        assert next_one.get_result().as_numpy("x") is not None
        assert slow.get_result(block=False).as_numpy("x")[0] == np.float32(0.5)  # there was one thread for both


def test_a_call_that_takes_too_long() -> None:
    with stalling() as server, InferenceServerClient(server.url[7:], network_timeout=0.2) as client:
        with pytest.raises(TimeoutError, match=r"timed out: nothing has moved for 0\.2 seconds"):
            client.is_server_live()
        with pytest.raises(TimeoutError, match="timed out"):
            client.async_infer("m", [_input(_floats())]).get_result()


def test_a_call_that_takes_too_long_on_an_event_loop() -> None:
    async def main(address: str) -> None:
        async with aio.InferenceServerClient(address, conn_timeout=0.2) as client:
            with pytest.raises(TimeoutError, match="timed out: the call has not ended"):
                await client.is_server_live()

    with stalling() as server:
        asyncio.run(main(server.url[7:]))


def test_a_call_may_have_no_limit_of_time_on_an_event_loop(address: str) -> None:
    """aiohttp, which tritonclient uses, takes 0 for none."""

    async def main(conn_timeout: float | None) -> None:
        async with aio.InferenceServerClient(address, conn_timeout=conn_timeout) as client:
            assert await client.is_server_live()

    asyncio.run(main(0))
    asyncio.run(main(None))


@KINDS
def test_a_closed_client(kind: str, address: str) -> None:
    with face(OURS, kind, address) as client:
        assert client.call("is_server_live") is True
        client.call("close")
        client.call("close")
        with pytest.raises(RuntimeError, match="the client is closed"):
            client.call("is_server_live")


@pytest.mark.slow
def test_a_forgotten_client_closes_its_connections() -> None:
    with scripted([response(b"{}"), hung_up], [response(b"{}"), hung_up]) as server:

        async def forget() -> None:
            await aio.InferenceServerClient(server.url[7:]).get_server_metadata()

        InferenceServerClient(server.url[7:]).get_server_metadata()
        gc.collect()
        assert server.has_closed()
        asyncio.run(forget())
        gc.collect()
        assert server.has_closed()


@KINDS
def test_no_server(kind: str) -> None:
    with face(OURS, kind, "127.0.0.1:1") as client, pytest.raises(ConnectionRefusedError):
        client.call("is_server_live")


_GOOD = b'{"outputs":[{"name":"y","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}}]}'


@KINDS
@pytest.mark.parametrize(
    ("header", "tensors", "complaint"),
    [
        (_GOOD, b"abc", "need"),
        (_GOOD, b"abcde", "need"),
        (_GOOD.replace(b"[2]", b"[3]"), b"abcd", "binary_data_size is 4"),
        (_GOOD.replace(b"INT16", b"INT17"), b"abcd", "datatype"),
        (_GOOD.replace(b'"shape":[2],', b""), b"abcd", "shape"),
        (_GOOD[:-1], b"abcd", "not JSON"),
        (b"[" * 100_000, b"", "not JSON"),
        (b'"\xff"', b"", "Failed to encode using UTF-8"),
        (_GOOD.replace(b"INT16", b"BYTES"), b"abcd", "at least 8"),
    ],
)
def test_a_wrong_answer(kind: str, header: bytes, tensors: bytes, complaint: str) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address) as client:
        recorder.answers(header + tensors, f"Inference-Header-Content-Length: {len(header)}")
        with pytest.raises(InferenceServerException, match=complaint) as caught:
            client.call("infer", "m", [])
        assert caught.value.status() is None
        with pytest.raises(InferenceServerException, match=complaint):
            client.http.InferResult.from_response_body(header + tensors, header_length=len(header))


def test_a_body_that_is_not_compressed() -> None:
    with pytest.raises(InferenceServerException, match="incorrect header check"):
        InferResult.from_response_body(b"{}", content_encoding="gzip")


@KINDS
def test_an_answer_that_is_no_json(kind: str) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address) as client:
        recorder.answers(b"hello")
        for method, arguments in (("get_server_metadata", ()), ("infer", ("m", []))):
            with pytest.raises(InferenceServerException, match="not JSON"):
                client.call(method, *arguments)


@KINDS
def test_long_documents(kind: str) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address) as client:
        recorder.answers(b"[%s0]" % (b"0," * 1_000_000))
        assert len(client.call("get_model_repository_index")) == 1_000_001
        outputs = b'{"name":"y","datatype":"FP64","shape":[100000],"data":[%s1]}' % (b"0," * 99_999)
        recorder.answers(b'{"outputs":[%s]}' % outputs)
        assert client.call("infer", "m", []).as_numpy("y").sum() == 1


@KINDS
def test_long_headers(kind: str) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address) as client:
        header = _GOOD[:-1] + b',"other":"%s"}' % (b"x" * 100_000)
        recorder.answers(header + b"abcd", f"Inference-Header-Content-Length: {len(header)}")
        assert client.call("infer", "m", []).as_numpy("y").tobytes() == b"abcd"


@KINDS
def test_fields_that_are_not_http(kind: str, address: str) -> None:
    with face(OURS, kind, address) as client:
        for headers in ({"a b": "c"}, {"a": "b\r\nc: d"}, {"Content-Length": "7"}):
            with pytest.raises(InferenceServerException):
                client.call("infer", "identity", [_input(_floats())], headers=headers)


@KINDS
def test_the_headers_of_the_caller_stay_as_they_are(kind: str, address: str) -> None:
    headers = {"x-a": "1"}
    with face(OURS, kind, address) as client:
        client.call("infer", "identity", [_input(_floats())], headers=headers, response_compression_algorithm="gzip")
    assert headers == {"x-a": "1"}


@KINDS
def test_verbose(kind: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with face(OURS, kind, address, verbose=True) as client:
        client.call("get_model_metadata", "identity")
        client.call("infer", "identity", [_input(_floats())])
    printed = capsys.readouterr().out
    for part in ("GET /v2/models/identity, headers {}", "200, headers {", '"name":"identity"', "POST /v2", "'outputs'"):
        assert part in printed


@KINDS
def test_verbose_says_what_was_done(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address, verbose=True) as client:
        recorder.answers(b"")
        client.call("load_model", "m")
        client.call("unload_model", "m")
        client.call("register_system_shared_memory", "r", "/k", 4)
        client.call("unregister_system_shared_memory", "r")
        client.call("unregister_cuda_shared_memory")
    printed = capsys.readouterr().out
    assert "Loaded model 'm'" in printed
    assert "Unloaded model 'm'" in printed
    assert "Registered system shared memory with name 'r'" in printed
    assert "Unregistered system shared memory with name 'r'" in printed
    assert "Unregistered all cuda shared memory regions" in printed


@KINDS
def test_basic_auth(kind: str) -> None:
    with recording() as recorder, face(OURS, kind, recorder.address) as client:
        recorder.answers(b"")
        client.client.register_plugin(BasicAuth("user", "pass"))
        client.call("is_server_live", headers={"x": "y"})
        assert ("authorization", "Basic dXNlcjpwYXNz") in recorder.requests[0].fields
        client.client.unregister_plugin()
        assert client.client.plugin() is None


def _trusting(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return str(path)


def _without_arguments() -> ssl.SSLContext:
    return ssl.create_default_context()


def test_tls(secure_address: str, tmp_path: Path) -> None:
    trusted = _trusting(tmp_path)
    certificate = AUTHORITY.issue_cert("client")
    chain, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.cert_chain_pems[0].write_to_path(str(chain))
    certificate.private_key_pem.write_to_path(str(key))
    every = {
        "ca_certs": trusted,
        "certfile": str(chain),
        "keyfile": str(key),
        "ciphers": "ECDHE+AESGCM",
        "options": ssl.OP_NO_TICKET,
        "verify_flags": ssl.VERIFY_X509_TRUSTED_FIRST,
    }
    for options in (
        {"ssl_options": {"ca_certs": trusted}},
        {"ssl_options": every},
        {"ssl_options": {"ca_certs": trusted}, "ssl_context_factory": ssl.create_default_context},
        {"ssl_options": {"ca_certs": trusted}, "ssl_context_factory": _without_arguments},
        {"ssl_context_factory": client_side},
        {"ssl_context_factory": client_side, "insecure": True},
    ):
        with InferenceServerClient(secure_address, ssl=True, **options) as client:
            assert client.is_server_live()
    with InferenceServerClient(secure_address, ssl=True) as client, pytest.raises(ssl.SSLCertVerificationError):
        client.is_server_live()


def test_another_name(tmp_path: Path) -> None:
    options = {"ca_certs": _trusting(tmp_path)}
    with (
        server_here(models(), ssl_context=server_side("other.example")) as (_, (host, port)),
        InferenceServerClient(f"{host}:{port}", ssl=True, ssl_options=options) as strict,
        InferenceServerClient(f"{host}:{port}", ssl=True, ssl_options=options, insecure=True) as lenient,
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            strict.is_server_live()
        assert lenient.is_server_live()


def test_tls_on_an_event_loop(secure_address: str) -> None:
    async def is_live(**options: Any) -> bool:  # noqa: ANN401 - those of the client
        async with aio.InferenceServerClient(secure_address, ssl=True, **options) as client:
            return await client.is_server_live()

    assert asyncio.run(is_live(ssl_context=client_side()))
    assert asyncio.run(is_live(ssl_context=False))
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(is_live())


@KINDS
@pytest.mark.parametrize("url", ["", "host:port", "a b", "http://localhost:8000"])
def test_wrong_urls(kind: str, url: str) -> None:
    with pytest.raises(InferenceServerException), face(OURS, kind, url):
        pass


@KINDS
def test_no_limit_of_connections(kind: str, address: str) -> None:
    with face(OURS, kind, address, **({"conn_limit": 0} if kind == "aio" else {"concurrency": 100})) as client:
        assert client.call("is_server_ready")


def test_wrong_concurrency(address: str) -> None:
    with pytest.raises(InferenceServerException, match="max_connections"):
        InferenceServerClient(address, concurrency=0)


def test_results_of_classes_and_of_both_forms(address: str) -> None:
    with InferenceServerClient(address) as client:
        wanted = [InferRequestedOutput("x", binary_data=False)]
        result = client.infer("identity", [_input(_floats())], outputs=wanted)
        assert isinstance(result, InferResult)
        assert result.get_output("x") == {
            "name": "x",
            "shape": [4],
            "datatype": "FP32",
            "data": [0.0, 1.0, 2.0, 3.0],
        }
        assert result.as_numpy("y") is None
