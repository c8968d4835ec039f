"""The same calls by tritonclient and by ours: the server sees the same, and the program gets the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.effort import examples
from tests.tritonclient.comparing import Pair, compared, outcome
from tests.tritonclient.drawing import CALLS, REFUSALS
from tests.tritonclient.faces import Face

pytest.importorskip("tritonclient.http", reason="tritonclient is not here")


@pytest.fixture(scope="module", params=["sync", "aio"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with compared(request.param) as pair:
        yield pair


@pytest.mark.parametrize("kind", CALLS)
def test_random_calls(pair: Pair, kind: str) -> None:
    """An exhaustive round has 20,000; `python -m tests.tritonclient` counts how they end."""
    pair.play(kind, examples(100 * CALLS[kind].weight))


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_refusals_of_inference(pair: Pair, status: int, body: bytes) -> None:
    pair.recorder.answers(body, status=status)
    assert pair.assert_same(lambda client: client.call("infer", "m", []))[0] == "refused"


def test_no_json_has_the_same_beginning(pair: Pair) -> None:
    """What follows is the word of a JSON parser."""
    pair.recorder.answers(b"<html>", status=502)
    mine, other = (
        outcome(client, lambda client: client.call("get_server_metadata")) for client in (pair.ours, pair.theirs)
    )
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
    assert pair.assert_same(lambda client: _wrong_uses(client)[use]())[0] in {"refused", "failed"}


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

    pair.recorder.answers(b'{"outputs":[]}')
    pair.assert_same(ask)
    assert seen[0] == seen[1]
    assert pair.recorder.requests[0].plain["fields"]["authorization"] == "Bearer 7"
