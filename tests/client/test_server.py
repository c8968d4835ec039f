"""Both clients against our own server: every datatype, every form, the server's words, refusals on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import DATATYPES, LocalProtocolError, RequestedOutput
from streamcodec.client import AsyncClient, Client, ServerError
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.server import ServerOptions
from tests.client.drivers import KINDS, Kind
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import Wire, infer_request
from tests.waiting import until

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _array(name: str) -> Array:
    if name == "BYTES":
        array = np.empty((2, 2), dtype=object)
        array[:] = [[b"", b"word"], ["größe".encode(), b"a\0"]]
        return array
    values = np.array([[0, 1, 1], [1, 0, 0]])
    return values.astype(DATATYPES[name].dtype)


ARRAYS: dict[str, Array] = {name: _array(name) for name in DATATYPES} | {
    "scalar": np.array(2.5),
    "zero size": np.empty((0, 3), np.float32),
    "zero size BYTES": np.empty((2, 0), dtype=object),
    "not contiguous": np.arange(24.0).reshape(4, 6)[::2, 1::2],
    "transposed": np.arange(6).reshape(2, 3).T,
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": np.arange(5)[::-1],
    "big-endian": np.arange(5, dtype=">f8"),
    "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
    "read-only": np.frombuffer(b"abcd", np.uint8),
}


@KINDS
def test_round_trip(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        for is_binary in (True, False):
            for name, array in ARRAYS.items():
                if name in {"FP16", "BF16"} and not is_binary:
                    with pytest.raises(LocalProtocolError):
                        client.infer("identity", {"x": array}, is_binary=False)
                    continue
                result = client.infer("identity", {"x": array}, is_binary=is_binary)
                assert result["x"].dtype == array.dtype.newbyteorder("<"), name
                assert np.array_equal(result["x"], array), name
                assert result["x"].flags.writeable
                assert result.header.tensors[0].is_binary is is_binary


@KINDS
def test_strings_lists_and_scalars(kind: Kind, url: str) -> None:
    inputs = {"U": ["ä", ""], "S": np.array([b"a", b"bc"]), "list": [1, 2], "scalar": 1.5}
    with kind.client(url) as client:
        outputs = client.infer("identity", inputs).outputs
    assert list(outputs) == list(inputs)
    assert outputs["U"].tolist() == ["ä".encode(), b""]
    assert outputs["S"].tolist() == [b"a", b"bc"]
    assert outputs["list"].tolist() == [1, 2]
    assert outputs["scalar"].shape == ()


@KINDS
def test_what_is_asked_for_is_answered(kind: Kind, url: str) -> None:
    inputs = {"a": [1], "b": [2], "c": [3]}
    with kind.client(url) as client:
        result = client.infer(
            "identity", inputs, outputs=["c", RequestedOutput(name="a", binary_data=False)], request_id="7\n"
        )
        assert {name: int(array[0]) for name, array in result.outputs.items()} == {"c": 3, "a": 1}
        assert ([int(result[name][0]) for name in result], len(result)) == ([3, 1], 2)
        assert ("a" in result, "b" in result) == (True, False)
        assert [tensor.is_binary for tensor in result.header.tensors] == [True, False]
        assert (result.header.id, result.header.model_name, result.header.model_version) == ("7\n", "identity", "1")
        assert list(client.infer("identity", inputs, version="1").outputs) == ["a", "b", "c"]
        assert client.infer("identity", {}).outputs == {}


@KINDS
def test_an_output_that_says_no_form_has_that_of_the_request(kind: Kind, url: str) -> None:
    wanted = [RequestedOutput(name=name, binary_data=form) for name, form in (("a", None), ("b", False), ("c", True))]
    with kind.client(url) as client:
        for is_binary in (True, False):
            result = client.infer("identity", {"a": [1], "b": [2], "c": [3]}, outputs=wanted, is_binary=is_binary)
            assert [tensor.is_binary for tensor in result.header.tensors] == [is_binary, False, True]


@KINDS
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_raw_binary_requests(kind: Kind, url: str, compression: str | None) -> None:
    # Compressed, its length would say nothing; so the option does not apply to it.
    with kind.client(url, request_compression=compression) as client:
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        result = client.call("infer_raw", "declared", rows, version="1")
        assert np.array_equal(result["x"], rows)
        assert result.header.tensors[0].is_binary
        assert client.call("infer_raw", "declared", np.empty((0, 4), np.float32))["x"].shape == (0, 4)
        with pytest.raises(ServerError, match="12 bytes do not fill the model's input") as caught:
            client.call("infer_raw", "declared", rows[0, :3])
        assert caught.value.status == 400
        with pytest.raises(ServerError, match="needs a model with one input"):
            client.call("infer_raw", "identity", rows)
        with pytest.raises(LocalProtocolError, match="one BYTES element"):
            client.call("infer_raw", "declared", ["a", "b"])


@KINDS
def test_documents_and_states(kind: Kind, url: str) -> None:
    with kind.client(url + "/") as client:
        assert client.call("server_metadata")["name"] == "streamcodec"
        assert client.call("model_metadata", "declared", "1")["inputs"][0]["shape"] == [-1, 4]
        assert client.call("is_server_live")
        assert client.call("is_server_ready")
        assert client.call("is_model_ready", "identity", "1")
        assert not client.call("is_model_ready", "nobody")
        with pytest.raises(ServerError, match="404: there is no model 'nobody'"):
            client.call("model_metadata", "nobody")


@KINDS
def test_errors_are_in_the_servers_words_and_the_connection_goes_on(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        for _ in range(2):
            with pytest.raises(ServerError, match="no model 'nobody'") as caught:
                client.infer("nobody", {"x": [1]})
            assert caught.value.status == 404
            with pytest.raises(ServerError, match="500: model 'break' failed with ValueError"):
                client.infer("break", {"x": [1]})
            with pytest.raises(ServerError, match="takes FP32"):
                client.infer("declared", {"x": [1]})
        assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
@pytest.mark.parametrize(("model", "status"), [("nobody", 404), ("declared", 400)])
def test_a_refusal_while_the_request_is_being_sent_arrives(kind: Kind, url: str, model: str, status: int) -> None:
    large = np.zeros(64 << 20, np.uint8)
    with kind.client(url) as client:
        with pytest.raises(ServerError) as caught:
            client.infer(model, {"x": large})
        assert caught.value.status == status
        assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
@pytest.mark.parametrize(
    "name", ["a\r\nX: y", "\r\n\r\nGET / HTTP/1.1", "a b", "?#/", "\0", "größe", "%2e", "x" * 20_000]
)
def test_names_cannot_break_out_of_the_target(kind: Kind, url: str, name: str) -> None:
    with kind.client(url) as client:
        with pytest.raises(ServerError) as caught:
            client.infer(name, {"x": [1]}, request_id=name)
        assert caught.value.status == 404
        with pytest.raises(ServerError) as caught:
            client.infer("identity", {"x": [1]}, version=name)
        assert caught.value.status == 404
        result = client.infer("identity", {name: [1]}, request_id=name)
        assert (list(result.outputs), result.header.id) == ([name], name)


@KINDS
@pytest.mark.parametrize(
    ("model", "inputs"),
    [("m", {"x": np.ones(1, complex)}), ("m", {"": [1]}), ("\ud800", {"x": [1]}), ("m", {"\ud800": [1]})],
    ids=["complex", "no name", "surrogate in a model", "surrogate in an input"],
)
def test_what_has_no_form_is_the_callers_fault_and_nothing_is_sent(
    kind: Kind, url: str, model: str, inputs: dict[str, Any]
) -> None:
    with kind.client(url) as client:
        with pytest.raises(LocalProtocolError):
            client.infer(model, inputs)
        assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
def test_time_without_progress_is_limited(kind: Kind, url: str) -> None:
    with kind.client(url, timeout=0.2) as client:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            client.infer("sleep", {"x": 3.0})
        assert time.monotonic() - began > 0.1
        assert client.infer("identity", {"x": [1]}, timeout=60)["x"] == 1


@pytest.mark.slow
@KINDS
def test_the_server_closed_the_idle_connection(kind: Kind) -> None:
    options = ServerOptions(idle_timeout=0.1)
    with server_here(models(), options) as (_, (host, port)), kind.client(f"http://{host}:{port}") as client:
        for _ in range(3):
            assert client.infer("identity", {"x": [1]})["x"] == 1
            time.sleep(0.25)


@KINDS
def test_a_full_server(kind: Kind) -> None:
    with server_here(models(), ServerOptions(max_connections=1)) as (server, (host, port)):
        url = f"http://{host}:{port}"
        with kind.client(url) as client:
            with Wire((host, port)) as busy:  # who is idle would make room
                busy.send(infer_request()[:-1])
                until(lambda: server.requests_in_progress == 1)
                with pytest.raises(ServerError) as caught:
                    client.infer("identity", {"x": np.zeros(1 << 20)})
                assert caught.value.status == 503
            until(lambda: server.requests_in_progress == 0)
            assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
def test_tensors_are_received_in_place(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        client.infer("identity", {"x": np.zeros(16 << 20, np.uint8)})
        assert client.client.received_copied <= SCRATCH_BYTES


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_that_share_a_client_take_turns(url: str, backend: str) -> None:
    results: dict[int, float] = {}

    async def ask(client: AsyncClient, number: int) -> None:
        results[number] = float((await client.infer("identity", {"x": number}))["x"])

    async def main() -> None:
        async with AsyncClient(url, timeout=60) as client, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, client, number)

    anyio.run(main, backend=backend)
    assert results == {number: number for number in range(20)}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_that_is_cancelled_does_not_leave_its_answer_to_the_next(url: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, timeout=60) as client:
            with anyio.move_on_after(0.1):
                await client.infer("sleep", {"x": 0.3})
            assert (await client.infer("identity", {"x": 7}))["x"] == 7

    anyio.run(main, backend=backend)


def test_one_client_per_thread(url: str) -> None:
    failures: list[int] = []

    def ask(number: int) -> None:
        with Client(url, timeout=60) as client:
            answers = [client.infer("identity", {"x": number})["x"] for _ in range(20)]
        failures.extend(number for answer in answers if answer != number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
