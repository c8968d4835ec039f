"""Plans: a body that has come whole is answered as on the ordinary way, or is left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Elements,
    EncodedMessage,
    Limits,
    NewArray,
    NonFiniteOutput,
    RequestedOutput,
    Tensor,
    encode_request,
)
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Predict, Reply, ResolvedHead, Service
from streamcodec.service.models.model import Outputs, TensorMetadata
from streamcodec.service.request.plan import Recipe, Recipes
from tests.service.requests import Array, answer, head, infer

TARGET = "/v2/models/m/infer"


def identity(request: InferenceRequest) -> Outputs:
    return dict(request.values)


def service_of(predict: Predict = identity, *, limits: Limits | None = None, **options: Any) -> Service:  # noqa: ANN401 - those of Model
    models = ModelRegistry.of([Model(name="m", predict=predict, is_inline=True, **options)])
    return Service(models) if limits is None else Service(models, limits=limits)


def body_of(message: EncodedMessage) -> bytes:
    return b"".join(message.buffers)


def message_of(array: Array, *, request_id: str | None = None, **options: Any) -> EncodedMessage:  # noqa: ANN401 - those of Tensor
    tensors = [Tensor(name="x", array=array, **options)]
    return encode_request(tensors, parameters={"binary_data_output": True}, request_id=request_id)


MESSAGE = message_of(np.arange(6, dtype=np.float32))
BODY = body_of(MESSAGE)


def recipe_of(service: Service, message: EncodedMessage = MESSAGE) -> Recipe:
    resolved = service.open(head(TARGET, "POST", message.headers, message.body_length))
    assert isinstance(resolved, ResolvedHead)
    return Recipe(resolved)


def at_once(recipe: Recipe, message: EncodedMessage = MESSAGE, body: bytes | None = None) -> Reply | None:
    return recipe.infer(message.header_length, memoryview(body_of(message) if body is None else body))


PREDICTS: dict[str, Predict] = {
    "identity": identity,
    "byte order and steps": lambda request: {"y": request.inputs["x"].astype(">f4"), "z": request.inputs["x"][::2]},
    "steps": lambda request: {"y": request.inputs["x"][::2]},
    "BOOL too": lambda request: {"y": request.inputs["x"] > 3, "x": request.inputs["x"]},
    "a scalar": lambda request: {"y": request.inputs["x"].sum(keepdims=False).reshape(())},
    "BF16": lambda _: {"y": np.ones(3, DATATYPES["BF16"].dtype)},
    "a dtype with a mark": lambda _: {"y": np.ones(3, np.dtype("<u2", metadata={"streamcodec.datatype": "BF16"}))},
    "a list": lambda _: {"y": [1, 2, 3]},
    "nothing": lambda _: {},
    "empty": lambda _: {"y": np.zeros(0)},
    "objects": lambda _: {"y": np.array([b"a", b"bc"], object)},
    "elements": lambda _: {"y": Elements([b"a", b"bc"])},
    "complex numbers": lambda _: {"y": np.ones(2, np.complex64)},
    "a name that is no text": lambda _: {1: np.ones(2)},  # type: ignore[dict-item]  # as a user may write it
    "no name": lambda _: {"": np.ones(2)},
    "failure": lambda _: {"wrong": 1 / 0},
}


@pytest.mark.parametrize("name", PREDICTS)
def test_an_answer_at_once_is_the_ordinary_one(name: str) -> None:
    service = service_of(PREDICTS[name])
    recipe = recipe_of(service)
    for start in (0, 0, 5):
        for request_id in (None, "a", 'q"u'):
            message = message_of(np.arange(start, start + 6, dtype=np.float32), request_id=request_id)
            wanted, reply = infer(service, TARGET, message), at_once(recipe, message)
            assert reply is not None
            found = answer(reply)
            assert (found.status, found.fields, found.body) == (wanted.status, wanted.fields, wanted.body)


ANSWERS: dict[str, Predict] = PREDICTS | {
    "two": lambda request: {"y": request.inputs["x"], "z": np.arange(3)},
    "both": lambda request: {"y": np.array([b"a", "\u00e4"], object), "z": request.inputs["x"].astype(">f4")[::2]},
    "its inputs": lambda request: request.inputs,
    "floats with exponents": lambda _: {"y": np.array([1e-5, 1, 1e300]), "z": np.array([0.1, np.nan], np.float32)},
    "half floats": lambda _: {"y": np.ones(2, np.float16), "z": np.ones(2)},
    "bytes that are no text": lambda _: {"y": np.array([b"\xff"], object), "z": np.ones(2)},
    "objects of another type": lambda _: {"y": np.array([1, None], object), "z": np.ones(2)},
    "large": lambda _: {"y": np.arange(100_000), "z": np.arange(20_000, dtype=np.float32)},
    "a scalar of a text": lambda _: {"y": np.array("a", object), "z": Elements([b"b"])},
    "half of a letter": lambda _: {"\ud800": np.ones(1), "y": np.array(["\ud800"], object), "z": np.ones(1)},
}
NO_WISH: list[RequestedOutput] = []
WISHES: list[list[RequestedOutput] | None] = [
    None,
    NO_WISH,
    [RequestedOutput(name="y", binary_data=None)],
    [RequestedOutput(name="y", binary_data=True)],
    [RequestedOutput(name="z", binary_data=True), RequestedOutput(name="y", binary_data=False)],
    [RequestedOutput(name="z", binary_data=None), RequestedOutput(name="z\u00e4", binary_data=True)],
    [RequestedOutput(name="y", binary_data=None, parameters={"classification": 1})],
]


@pytest.mark.parametrize("nonfinite", NonFiniteOutput)
@pytest.mark.parametrize("is_binary", [None, False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_each_form_of_an_answer_is_the_ordinary_one(
    name: str, is_binary: bool | None, nonfinite: NonFiniteOutput
) -> None:
    parameters = None if is_binary is None else {"binary_data_output": is_binary}
    tensors = {"x": np.arange(6, dtype=np.float32)}
    declared = (TensorMetadata("y", "FP64", (-1,)),)
    models = [Model(name="m", predict=ANSWERS[name], is_inline=True, outputs=outputs) for outputs in (None, declared)]
    for model in models:
        for classifies in (False, True):
            service = Service(ModelRegistry.of([model]), nonfinite=nonfinite, classifies=classifies)
            for outputs in WISHES:
                message = encode_request(tensors, outputs=outputs, parameters=parameters, request_id='"')
                wanted, reply = infer(service, TARGET, message), at_once(recipe_of(service, message), message)
                assert reply is not None
                found = answer(reply)
                assert (found.status, found.fields, found.body) == (wanted.status, wanted.fields, wanted.body)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 3), np.float64),
        np.zeros((0, 2), np.int8),
        np.array([[True], [False]]),
        np.array([b"a", b"", b"bc" * 40], object),
        np.zeros(0, object),
    ],
    ids=["FP64", "empty", "BOOL", "BYTES", "no elements"],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_inputs_of_any_datatype_are_those_of_the_ordinary_way(array: Array, is_binary: bool) -> None:
    service = service_of()
    message = message_of(array, is_binary=is_binary)
    reply = at_once(recipe_of(service, message), message)
    assert reply is not None
    assert answer(reply).body == infer(service, TARGET, message).body


def test_outputs_are_compared_with_their_declaration() -> None:
    declared = (TensorMetadata("x", "FP32", (6,)),)
    for outputs in (declared, (TensorMetadata("x", "FP32", (7,)),), (TensorMetadata("z", "FP32", (6,)),)):
        service = service_of(outputs=outputs)
        reply = at_once(recipe_of(service))
        assert reply is not None
        assert reply.status == (200 if outputs is declared else 500)


def test_outputs_that_are_asked_for_one_by_one_are_chosen() -> None:
    service = service_of(lambda request: {"y": request.inputs["x"], "z": request.inputs["x"]})
    text = '{"outputs":[{"name":"z"}],' + BODY[: MESSAGE.header_length].decode().lstrip("{")
    reply = recipe_of(service).infer(len(text), memoryview(text.encode() + BODY[MESSAGE.header_length :]))
    assert reply is not None
    assert list(answer(reply).outputs) == ["z"]


def test_a_header_that_has_come_twice_lately_is_not_read_again() -> None:
    recipe = recipe_of(service_of())
    text = BODY[: MESSAGE.header_length]
    once, plan = recipe.plan(text, len(BODY)), recipe.plan(text, len(BODY))
    assert plan is not once
    for number in range(258):
        assert (recipe.plan(text, len(BODY)) is plan) is (number < 256), "all are forgotten when there are too many"
        other = body_of(message_of(np.arange(6, dtype=np.float32), request_id=f"{number:04}"))
        for _ in range(2):
            assert recipe.plan(other[: MESSAGE.header_length], len(other)) is not plan


def test_a_header_that_has_come_twice_is_no_plan_for_a_body_of_another_length() -> None:
    recipe = recipe_of(service_of())
    text = BODY[: MESSAGE.header_length]
    for _ in range(3):
        assert recipe.plan(text, len(BODY)) is not None
    for nbytes in (len(BODY) - 1, len(BODY) + 1):
        assert recipe.plan(text, nbytes) is None
    assert at_once(recipe, body=BODY + b"1") is None


def test_a_header_that_can_be_changed_is_read_again() -> None:
    recipe = recipe_of(service_of())
    message = encode_request([Tensor(name="x", array=np.zeros(2))], parameters={"list": [1]})
    text, nbytes = body_of(message)[: message.header_length], message.body_length
    assert recipe.plan(text, nbytes) is not recipe.plan(text, nbytes)


@pytest.mark.parametrize(
    "message",
    [
        message_of(np.zeros(2), is_binary=False),
        message_of(np.zeros(2, np.bool_)),
        message_of(np.array([b"a"], object)),
    ],
    ids=["JSON", "BOOL", "BYTES"],
)
def test_what_has_to_be_looked_at_is_not_planned(message: EncodedMessage) -> None:
    text = body_of(message)[: message.header_length]
    assert recipe_of(service_of(), message).plan(text, message.body_length) is None


def test_what_does_not_fit_is_left_to_the_ordinary_way() -> None:
    recipe, length = recipe_of(service_of()), MESSAGE.header_length or 0
    for body in (BODY[:-1], BODY + b"x", BODY[: length - 1], b""):
        assert at_once(recipe, body=body) is None
    assert recipe.plan(BODY[:length], len(BODY) + 1) is None
    assert recipe.plan(BODY[:length], len(BODY)) is not None
    assert recipe.plan(BODY[:length], len(BODY) + 1) is None
    assert recipe.plan(b"", len(BODY)) is None
    long = b'{"x":"' + b"a" * 5000 + b'",' + BODY[1:length]
    assert recipe.plan(long, len(long) + 24) is None


@pytest.mark.parametrize(("limit", "is_within"), [("max_header_bytes", True), ("max_message_bytes", True)] * 2)
def test_a_message_at_the_limits_is_planned(limit: str, is_within: bool) -> None:
    most = (MESSAGE.header_length or 0) if limit == "max_header_bytes" else len(BODY)
    for size, fits in ((most, is_within), (most - 1, False)):
        reply = at_once(recipe_of(service_of(limits=Limits(**{limit: size}))))
        assert (reply is not None) is fits


def test_elements_that_are_too_long_and_bytes_that_are_wrong_are_left_to_the_ordinary_way() -> None:
    texts = message_of(np.array([b"abc"], object))
    assert at_once(recipe_of(service_of(limits=Limits(max_element_bytes=6)), texts), texts) is None
    assert at_once(recipe_of(service_of(), texts), texts, body_of(texts)[:-7] + b"\x09\0\0\0abc") is None
    booleans = message_of(np.array([True]))
    assert at_once(recipe_of(service_of(), booleans), booleans, body_of(booleans)[:-1] + b"\2") is None


@pytest.mark.parametrize("count", [300, 3_000])
@pytest.mark.parametrize("nbytes", [0, 4])
def test_a_long_header_is_read_at_once_if_it_is_compact(count: int, nbytes: int) -> None:
    array = np.linspace(-1, 1, count)
    tensors = [Tensor(name="x", array=array, is_binary=False)]
    message = encode_request(tensors, parameters={"binary_data_output": True})
    text = body_of(message)
    recipe = recipe_of(service_of(), message)
    reply, wanted = recipe.infer(None, memoryview(text)), infer(service_of(), TARGET, message)
    assert reply is not None
    assert (answer(reply).fields, answer(reply).body) == (wanted.fields, wanted.body)
    assert recipe.infer(None, memoryview(text[:-1] + b',"x":1}')) is None
    assert recipe.infer(len(text), memoryview(text + bytes(nbytes))) is None or not nbytes


def test_a_wrong_header_is_refused_at_once_if_its_length_is_declared() -> None:
    recipe, wrong = recipe_of(service_of()), BODY.replace(b"FP32", b"FP99")
    reply = at_once(recipe, body=wrong)
    assert reply is not None
    assert (reply.status, str(reply.refusal)) == (
        400,
        "'FP99' is not a datatype of the protocol ($.inputs[0].datatype)",
    )
    assert recipe.infer(MESSAGE.header_length, memoryview(wrong), may_refuse=False) is None
    assert recipe.infer(None, memoryview(wrong)) is None


class Watch:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.request_id: str | None = None
        self.told: list[str] = []

    def call_begun(self, request: InferenceRequest) -> None:
        self.told.append(f"begun with {list(request.inputs)} and {dict(request.rows)}")

    def call_ended(self) -> None:
        self.told.append("ended")


def test_what_the_model_does_not_take_is_refused_at_once_and_its_id_is_told() -> None:
    service, watch = service_of(inputs=(TensorMetadata("y", "FP32", (-1,)),)), Watch()
    message = message_of(np.ones(2), request_id="a")
    wanted = infer(service, TARGET, message)
    for told in (None, watch):
        recipe = recipe_of(service, message)
        reply = recipe.infer(message.header_length, memoryview(body_of(message)), told)
        assert reply is not None
        found = answer(reply)
        assert (found.status, found.fields, found.body) == (wanted.status, wanted.fields, wanted.body)
    assert (wanted.status, watch.request_id, watch.told) == (400, "a", [])


def test_what_takes_time_is_left_to_the_ordinary_way() -> None:
    threads = Service(ModelRegistry.of([Model(name="m", predict=identity)]))
    assert at_once(recipe_of(threads)) is None, "who knows how long this model takes"
    large = message_of(np.ones(1 << 14))
    assert at_once(recipe_of(service_of(), large), large) is None


def test_forms_of_outputs_that_never_come_again_are_not_all_kept() -> None:
    recipe = recipe_of(service_of(lambda request: {str(request.inputs["x"][0]): request.inputs["x"]}))
    for count in range(100):
        assert at_once(recipe, message_of(np.array([count], np.float32))) is not None
    assert len(recipe.answers._entries) == 64  # noqa: SLF001 - nothing else tells


def test_outputs_of_one_dtype_may_have_two_datatypes() -> None:
    marked = np.dtype("<u2", metadata={"streamcodec.datatype": "BF16"})
    dtypes = [np.dtype("<u2"), marked, np.dtype("<u2")]
    recipe = recipe_of(service_of(lambda _: {"y": np.ones(3, dtypes.pop())}))
    for datatype in (b"UINT16", b"BF16", b"UINT16"):
        reply = at_once(recipe)
        assert reply is not None
        assert b'"datatype":"%b"' % datatype in answer(reply).body


def test_the_plans_of_all_recipes_are_bounded_together() -> None:
    models = [Model(name=name, predict=identity, is_inline=True) for name in ("m", "n")]
    service, recipes = Service(ModelRegistry.of(models)), Recipes()
    made = set()
    for target in ("/v2/models/m/infer", "/v2/models/m/infer?a", "/v2/models/n/infer", "/v2/models/m/versions/1/infer"):
        resolved = service.open(head(target, "POST", MESSAGE.headers, MESSAGE.body_length))
        assert isinstance(resolved, ResolvedHead)
        recipe = recipes.of(resolved)
        assert recipe is not None
        made.add(recipe)
        for number in sorted([*range(200)] * 2):
            body = body_of(message_of(np.ones(2), request_id=f"{number:04}"))
            assert recipe.plan(body[: message_of(np.ones(2), request_id="0000").header_length], len(body)) is not None
    assert len(made) == 2, "one for each model and version"
    assert 0 < len(recipes._plans) <= 256  # noqa: SLF001 - nothing else tells


def test_what_is_raw_or_placed_elsewhere_has_no_recipe() -> None:
    raw = [("Inference-Header-Content-Length", "0"), ("Content-Length", "8")]
    declared = (TensorMetadata("x", "FP32", (2,)),)
    for service, fields in (
        (service_of(inputs=declared), raw),
        (Service(service_of().models, place=lambda _: NewArray()), MESSAGE.headers),
    ):
        resolved = service.open(head(TARGET, "POST", fields, 8))
        assert isinstance(resolved, ResolvedHead)
        assert Recipes().of(resolved) is None


def test_small_tensors_of_a_request_have_arrays_of_their_own() -> None:
    for counts in ([3, 1, 20], [3, 900, 2_000], [2_000, 1, 0, 1], [2_001, 0, 0], [0, 3, 0], [0], []):
        tensors = {f"x{number}": np.arange(count, dtype=np.float32) for number, count in enumerate(counts)}
        message = encode_request(tensors, parameters={"binary_data_output": True})
        kept: list[Array] = []

        def keep(request: InferenceRequest, kept: list[Array] = kept) -> Outputs:
            kept.extend(request.inputs.values())
            return {"y": np.ones(1)}

        assert at_once(recipe_of(service_of(keep), message), message) is not None
        for array, wanted in zip(kept, tensors.values(), strict=True):
            assert array.ctypes.data % 64 == 0
            assert array.flags.writeable
            np.testing.assert_array_equal(array, wanted)
            array[:] = -1
        assert all((array == -1).all() for array in kept)


def test_the_call_is_watched_and_has_no_windows() -> None:
    recipe_of(service_of()).infer(MESSAGE.header_length, memoryview(BODY), watch := Watch())
    assert watch.told == ["begun with ['x'] and {}", "ended"]
