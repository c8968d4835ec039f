"""Answers in shared memory: in the form that the request asks for, and sent if they do not fit or do not exist yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_DATA, NEED_TURN, Elements, RequestedOutput, Rows, Tensor, encode_request
from streamcodec.service.request.exchange import ExchangeStep
from tests.service.memory.test_lane import Client, X
from tests.service.requests import head

MEDIA_TYPE = "application/vnd.sagemaker-triton.binary+json"


@pytest.mark.parametrize("room", ["0, 65536", None])
def test_an_answer_has_the_media_type_of_its_request(room: str | None) -> None:
    client = Client()
    text, fields = client.put(X)
    fields = [*fields, ("Content-Type", f"{MEDIA_TYPE};json-header-size={len(text)}")]
    fields += [] if room is None else [("Answer-Memory", room)]
    exchange = client.exchange
    assert exchange.begin(head("/v2/models/m/infer", "POST", fields, len(text))) is ExchangeStep.RECEIVE
    exchange.decoder.feed(text)
    while exchange.receive(exchange.decoder.next_event()) is not ExchangeStep.CALL:  # type: ignore[arg-type] # all is there
        pass
    assert exchange.inference is not None
    exchange.answer(exchange.inference.run())
    answered = dict(exchange.reply.headers)
    assert answered["Content-Type"].startswith(f"{MEDIA_TYPE};json-header-size=")
    assert ("Tensor-Memory" in answered) is (room is not None)


def test_rows_are_sent_because_they_are_made_meanwhile() -> None:
    client = Client(lambda _: {"y": Rows("FP32", X.shape, [X[:300], X[300:]])})
    found = client.ask(*client.put(X))
    assert "Tensor-Memory" not in found.fields
    assert found.outputs["y"].tobytes() == X.tobytes()


@pytest.mark.parametrize(("count", "fits"), [(256, True), (257, False)])
def test_so_many_outputs_have_places_and_no_more(count: int, *, fits: bool) -> None:
    client = Client(lambda _: {f"y{index}": X[:1] + index for index in range(count)})
    found = client.ask(*client.put(X))
    assert ("Tensor-Memory" in found.fields) is fits
    values = client.outputs(found) if fits else [array.tobytes() for array in found.outputs.values()]
    assert values == [(X[:1] + index).tobytes() for index in range(count)]


@pytest.mark.parametrize("is_binary", [False, True])
def test_elements_of_a_model_are_answered_in_both_forms(*, is_binary: bool) -> None:
    client = Client(lambda _: {"y": Elements([b"a", b"bc"])})
    message = encode_request([Tensor(name="x", array=X)], outputs=[RequestedOutput(name="y", binary_data=is_binary)])
    found = client.ask(bytes(message.parts[0]), [("Tensor-Memory", "0")])  # type: ignore[arg-type] # no Rows
    assert found.status == 200
    if is_binary:
        assert client.outputs(found) == [b"\1\0\0\0a\2\0\0\0bc"]
    else:
        assert found.document["outputs"][0]["data"] == ["a", "bc"]


def test_long_work_on_a_header_lets_others_have_their_turn() -> None:
    client = Client()
    text: Any = encode_request({f"x{index}": X[: index // 499] for index in range(500)}).parts[0]
    fields = [("Inference-Header-Content-Length", str(len(text))), ("Tensor-Memory", "0")]
    client.exchange.begin(head("/v2/models/m/infer", "POST", fields, len(text)))
    decoder, seen = client.exchange.decoder, []
    decoder.feed(text)
    while (event := decoder.next_event()) is not NEED_DATA:
        seen.append(event)
        if event is not NEED_TURN:
            break
        decoder.work()
    assert NEED_TURN in seen


@pytest.mark.parametrize(("octet", "status"), [(1, 200), (2, 400)])
def test_many_inputs_are_dropped_piece_by_piece_even_if_not_all_of_them_could_be_made(octet: int, status: int) -> None:
    client = Client(lambda _: {})
    client.requests[0] = octet
    empty = {f"x{index}": X[:0] for index in range(1500)}
    text: Any = encode_request({**empty, "last": np.array([True])}).parts[0]
    fields = [("Inference-Header-Content-Length", str(len(text))), ("Tensor-Memory", "0")]
    exchange = client.exchange
    exchange.begin(head("/v2/models/m/infer", "POST", fields, len(text)))
    step, rest = None, memoryview(text)
    while step is not ExchangeStep.CALL:
        event = exchange.decoder.next_event()
        if event is NEED_TURN:
            exchange.decoder.work()
        elif event is NEED_DATA:
            rest = rest[exchange.decoder.feed(rest) :]
        else:
            step = exchange.receive(event)
    inference = exchange.inference
    assert inference is not None
    assert inference.run().status == status
    assert inference.is_wide
    assert len([*inference.let_go()]) == 1
