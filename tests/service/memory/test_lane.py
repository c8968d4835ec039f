"""Requests whose tensors are in shared memory, without any system: two arrays stand for the memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Elements,
    ErrorCode,
    LocalProtocolError,
    MessageError,
    RequestedOutput,
    Tensor,
    Windows,
    encode_request,
)
from streamcodec.formats.v2.lane import parse_places
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Reply, Service
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.memory.lane import LaneInference, SharedMemory
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from tests.service.requests import Answer, answer, head

SIZE = 1 << 20
X = np.arange(1000, dtype="<f4")


def _echo(request: InferenceRequest) -> dict[str, Any]:
    return dict(request.inputs)


class Client:
    """The memory of a client, and one service."""

    def __init__(self, predict: Callable[[InferenceRequest], Any] = _echo, **options: Any) -> None:  # noqa: ANN401
        classifies = options.pop("classifies", False)
        compresses = options.pop("compresses", False)
        model = Model(name="m", predict=predict, **options)
        self.service = Service(ModelRegistry.of([model]), classifies=classifies, compresses=compresses)
        self.requests = np.zeros(SIZE, np.uint8)
        self.answers = np.zeros(SIZE, np.uint8)
        shared = self.requests[:]
        shared.flags.writeable = False
        self.memory = SharedMemory(requests=shared, answers=self.answers)
        self.budget = Budget(1 << 30)
        self.exchange = Exchange(self.service, Reservation(self.budget))
        self.exchange.memory = self.memory

    def put(self, *arrays: np.ndarray[Any, Any], start: int = 0) -> tuple[bytes, list[tuple[str, str]]]:
        """Write tensors to the memory; return the JSON header and the fields."""
        tensors = [Tensor(name=f"x{index}", array=array) for index, array in enumerate(arrays)]
        message = encode_request(tensors, parameters={"binary_data_output": True})
        offsets = []
        for part in message.parts[1:]:
            octets = np.frombuffer(part, np.uint8)  # type: ignore[arg-type] # no Rows
            self.requests[start : start + octets.nbytes] = octets
            offsets.append(str(start))
            start += -(-octets.nbytes // 64) * 64
        text = bytes(message.parts[0])  # type: ignore[arg-type] # no Rows
        return text, [("Tensor-Memory", ", ".join(offsets))]

    def ask(self, text: bytes, fields: list[tuple[str, str]], room: str | None = "0, 65536", **others: Any) -> Answer:  # noqa: ANN401
        """Send a request, and return the answer."""
        fields = [("Inference-Header-Content-Length", str(len(text))), *fields, *others.get("more", ())]
        if room is not None:
            fields.append(("Answer-Memory", room))
        length = others.get("length", len(text))
        exchange = self.exchange
        try:
            step: ExchangeStep | None = exchange.begin(head("/v2/models/m/infer", "POST", fields, length))
            if step is ExchangeStep.RECEIVE:
                step = self._receive(text)
        except MessageError as error:
            step = exchange.fail(error)
        if step is ExchangeStep.CALL:
            assert exchange.inference is not None
            assert not exchange.inference.is_inline
            step = exchange.answer(exchange.inference.run())
        assert step is ExchangeStep.ANSWER
        found = answer(exchange.reply)
        exchange.end()
        assert self.budget.reserved == 0
        return found

    def _receive(self, text: bytes) -> ExchangeStep | None:
        decoder = self.exchange.decoder
        assert decoder.feed(text) == len(text)
        step = None
        while step is None:
            event = decoder.next_event()
            if event is NEED_DATA:
                decoder.receive_eof()
            elif not hasattr(event, "name"):
                step = self.exchange.receive(event)
            else:
                decoder.work()
        return step

    def outputs(self, found: Answer) -> list[bytes]:
        """Return the bytes of the outputs."""
        sizes = [output["parameters"]["binary_data_size"] for output in found.document["outputs"]]
        places = parse_places([found.fields["Tensor-Memory"].encode()])
        memory = {True: self.requests, False: self.answers}
        return [
            memory[place[0]][place[1] : place[1] + size].tobytes() for place, size in zip(places, sizes, strict=True)
        ]


@pytest.mark.parametrize("shared_inputs", [False, True])
def test_there_and_back(shared_inputs: bool) -> None:
    client = Client(shared_inputs=shared_inputs)
    arrays: list[np.ndarray[Any, Any]] = [X, np.zeros((0, 3), "<i8"), np.arange(7, dtype="<i2")]
    found = client.ask(*client.put(*arrays, start=128))
    assert found.status == 200
    assert len(found.body) == int(found.fields["Inference-Header-Content-Length"])
    assert found.fields["Content-Length"] == str(len(found.body))
    assert found.fields["Tensor-Memory"] == ("r128, r4160" if shared_inputs else "a0, a4032")
    sizes = [output["parameters"]["binary_data_size"] for output in found.document["outputs"]]
    assert sizes == [array.nbytes for array in arrays]
    for octets, array in zip(
        [client.requests[128:4128], client.requests[4160:4174]]
        if shared_inputs
        else [client.answers[:4000], client.answers[4032:4046]],
        [arrays[0], arrays[2]],
        strict=True,
    ):
        assert octets.tobytes() == array.tobytes()


def test_shared_inputs_cannot_be_written_to() -> None:
    def write(request: InferenceRequest) -> dict[str, Any]:
        array = request.inputs["x0"]
        assert np.may_share_memory(array, client.requests)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        return {"y": array.flags.writeable}

    client = Client(write, shared_inputs=True)
    assert client.ask(*client.put(X)).status == 200


def test_inputs_are_private_unless_the_model_says_otherwise() -> None:
    """What the client writes while the model computes does not reach it."""

    def change(request: InferenceRequest) -> dict[str, Any]:
        client.requests[:] = 255
        return {"y": request.inputs["x0"].copy()}

    client = Client(change)
    found = client.ask(*client.put(X))
    assert client.outputs(found) == [X.tobytes()]


@pytest.mark.parametrize("array", [np.array([True, False]), np.array([b"abc", b""], object)])
def test_what_is_checked_is_copied_before(array: np.ndarray[Any, Any]) -> None:
    def change(request: InferenceRequest) -> dict[str, Any]:
        values = request.values["x0"]
        client.requests[:] = 255
        octets = values.array if isinstance(values, Elements) else values
        assert octets.tolist() == array.tolist()
        return {"y": X[:1]}

    client = Client(change, shared_inputs=True)
    assert client.ask(*client.put(array)).status == 200


@pytest.mark.parametrize(
    ("array", "octets", "code"),
    [
        (np.array([True, False]), b"\x02", ErrorCode.INVALID_BOOL),
        (np.array([b"abc"], object), b"\xff\xff\xff\xff", ErrorCode.INVALID_ELEMENTS),
    ],
)
def test_what_is_invalid_is_refused(array: np.ndarray[Any, Any], octets: bytes, code: ErrorCode) -> None:
    client = Client(shared_inputs=True)
    text, fields = client.put(array)
    client.requests[: len(octets)] = np.frombuffer(octets, np.uint8)
    found = client.ask(text, fields)
    assert found.status == 400
    assert str(code) in found.error or "BOOL" in found.error or "element" in found.error


def test_bytes_go_there_and_back() -> None:
    array = np.array([b"abc", b"", b"x" * 5000], object)
    client = Client()
    found = client.ask(*client.put(array))
    message = encode_request([Tensor(name="x", array=array)])
    assert client.outputs(found) == [bytes(message.parts[1])]  # type: ignore[arg-type] # no Rows


def test_json_and_memory_in_one_request() -> None:
    client = Client(shared_inputs=True)
    tensors = [Tensor(name="a", array=np.arange(3, dtype="<i4"), is_binary=False), Tensor(name="b", array=X)]
    message = encode_request(tensors, parameters={"binary_data_output": True})
    client.requests[: X.nbytes] = np.frombuffer(X.tobytes(), np.uint8)
    found = client.ask(bytes(message.parts[0]), [("Tensor-Memory", "0")])  # type: ignore[arg-type] # no Rows
    assert client.outputs(found) == [np.arange(3, dtype="<i4").tobytes(), X.tobytes()]


@pytest.mark.parametrize("room", [None, "0, 0", "64, 3999"])
def test_an_answer_without_room_is_sent(room: str | None) -> None:
    client = Client()
    found = client.ask(*client.put(X), room=room)
    assert "Tensor-Memory" not in found.fields
    assert found.outputs["x0"].tobytes() == X.tobytes()
    assert not client.answers.any()


def test_an_answer_may_fill_its_room() -> None:
    client = Client()
    found = client.ask(*client.put(X), room="64, 4000")
    assert found.fields["Tensor-Memory"] == "a64"
    assert client.outputs(found) == [X.tobytes()]


def test_answers_that_are_sent() -> None:
    """Those without tensors in binary form, with too many of them, compressed, or made while they are sent."""
    many = Client(lambda _: {f"y{index}": X[:1] for index in range(257)})
    assert len(many.ask(*many.put(X)).outputs) == 257
    packed = Client(compresses=True)
    assert (
        packed.ask(*packed.put(np.zeros(9999)), more=[("Accept-Encoding", "gzip")]).fields["Content-Encoding"] == "gzip"
    )
    client = Client(lambda _: {"y": X[:0]})
    assert client.ask(*client.put(X)).outputs["y"].size == 0
    text, fields = Client().put(X)
    client = Client()
    client.put(X)
    found = client.ask(text.replace(b'"binary_data_output":true', b'"binary_data_output":false'), fields)
    assert found.document["outputs"][0]["data"] == X.tolist()


@pytest.mark.parametrize("way", ["json", "classes"])
def test_work_on_values_is_done_with_a_copy(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To sort memory that changes meanwhile could leave it, and JSON is measured before it is written."""
    client = Client(shared_inputs=True, classifies=way == "classes")
    classes = {"classification": 2} if way == "classes" else {}
    message = encode_request(
        [Tensor(name="x", array=X)],
        outputs=[RequestedOutput(name="x", binary_data=way == "classes", parameters=classes)],
    )
    client.requests[: X.nbytes] = np.frombuffer(X.tobytes(), np.uint8)
    seen: list[np.ndarray[Any, Any]] = []
    select = LaneInference._private  # noqa: SLF001 - it is watched

    def watched(self: LaneInference, value: Any) -> Any:  # noqa: ANN401
        seen.append(select(self, value))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(LaneInference, "_private", watched)
    found = client.ask(bytes(message.parts[0]), [("Tensor-Memory", "0")])  # type: ignore[arg-type] # no Rows
    assert found.status == 200
    assert not np.may_share_memory(seen[0], client.requests)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("Tensor-Memory", "1048576")], "is not inside"),
        ([("Tensor-Memory", "1044608")], "is not inside"),
        ([("Tensor-Memory", "0, 64")], "names 2 places"),
        ([("Tensor-Memory", "7")], "multiple of 64"),
        ([("Tensor-Memory", "0"), ("Tensor-Memory", "0")], "must be one list"),
        ([("Tensor-Memory", "0"), ("Answer-Memory", "64, 1048576")], "one offset and one size"),
    ],
)
def test_places_outside(fields: list[tuple[str, str]], text: str) -> None:
    client = Client()
    header, _ = client.put(X)
    found = client.ask(header, fields)
    assert (found.status, text in found.error) == (400, True)


@pytest.mark.parametrize("others", [{"length": None}, {"length": 5000}, {"more": [("Content-Encoding", "gzip")]}])
def test_the_body_is_the_header_alone(others: dict[str, Any]) -> None:
    client = Client()
    found = client.ask(*client.put(X), **others)
    assert (found.status, "the body is the JSON header alone" in found.error) == (400, True)


def test_models_that_take_windows_are_refused() -> None:
    client = Client(windows=Windows())
    found = client.ask(*client.put(X))
    assert (found.status, "takes windows" in found.error) == (400, True)


def test_a_header_that_does_not_fit_the_model() -> None:
    client = Client()
    text, fields = client.put(X)
    assert client.ask(text.replace(b"FP32", b"FP99"), fields).status == 400
    assert client.ask(text.replace(b"[1000]", b"[1001]"), fields).status == 400


def test_without_a_lane_the_fields_mean_nothing() -> None:
    client = Client()
    client.exchange.memory = None
    found = client.ask(*client.put(X))
    assert (found.status, "its header and tensors need" in found.error) == (400, True)


@pytest.mark.parametrize("shared_inputs", [False, True])
def test_private_memory_is_counted_and_shared_is_not(shared_inputs: bool) -> None:
    seen: list[int] = []

    def look(_: InferenceRequest) -> dict[str, Any]:
        seen.append(client.budget.reserved)
        return {"y": X[:1]}

    client = Client(look, shared_inputs=shared_inputs)
    text, fields = client.put(np.zeros(100_000, np.int8))
    assert client.ask(text, fields).status == 200
    assert seen == [len(text) + (0 if shared_inputs else 100_000)]


def test_a_request_that_never_fits_is_refused() -> None:
    client = Client()
    client.budget.max_bytes = 50_000
    assert client.ask(*client.put(np.zeros(100_000, np.int8))).status == 413


def test_no_memory_for_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    client = Client()
    monkeypatch.setattr(LaneInference, "_keep", fail)
    assert client.ask(*client.put(X)).status == 503


def test_before_the_header() -> None:
    client = Client()
    text, fields = client.put(X)
    fields = [("Inference-Header-Content-Length", str(len(text))), *fields]
    resolved = client.service.open(head("/v2/models/m/infer", "POST", fields, len(text)))
    assert not isinstance(resolved, Reply)
    inference = LaneInference(resolved, client.memory)  # type: ignore[arg-type] # no Listing
    assert (inference.memory_bytes, inference.held_bytes, inference.taken_bytes) == (len(text), len(text), 0)
    assert (inference.request_id, inference.has_header) == (None, False)
    with pytest.raises(LocalProtocolError, match=r"^the inputs are made after the last event"):
        inference.run()


def test_random_fields() -> None:
    """Whatever a client says, it gets its own bytes or an error, and nothing outside of the memory is touched."""
    chance = random.Random(7)  # noqa: S311 - the same each time
    client = Client(lambda request: {"y": request.inputs["x0"][::-1]}, shared_inputs=True)
    client.requests[:] = np.random.default_rng(7).integers(0, 256, SIZE, np.uint8)
    numbers = [0, 1, 63, 64, 4096, SIZE - 64, SIZE - 4, SIZE, SIZE + 64, 1 << 62, 10**19]
    statuses = set()
    for _ in range(300):
        nbytes = chance.choice([0, 1, 4, 64, 4096, SIZE, SIZE + 1, 1 << 40])
        text = (
            b'{"inputs":[{"name":"x0","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],'
            b'"parameters":{"binary_data_output":true}}' % (nbytes, nbytes)
        )
        offset, room = chance.choice(numbers), (chance.choice(numbers), chance.choice(numbers))
        before = client.answers.copy()
        found = client.ask(text, [("Tensor-Memory", f"{offset}")], room=f"{room[0]}, {room[1]}")
        statuses.add(found.status)
        written = client.answers != before
        if found.status != 200:
            assert not written.any()
            continue
        wanted = client.requests[offset : offset + nbytes][::-1].tobytes()
        octets = client.outputs(found)[0] if "Tensor-Memory" in found.fields else found.outputs["y"].tobytes()
        assert octets == wanted
        written[room[0] : room[0] + room[1]] = False
        assert not written.any()
    assert statuses == {200, 400, 413}
