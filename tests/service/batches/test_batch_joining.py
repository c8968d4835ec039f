"""Joining: each request gets what it would have got alone, whatever the model makes of the batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcodec import (
    DATATYPES,
    Elements,
    LocalProtocolError,
    RemoteProtocolError,
    RequestedOutput,
    RequestHeader,
    Rows,
    TensorSpec,
    Windows,
)
from streamcodec.engine.record import replaced
from streamcodec.service import Batch, InferenceRequest, Model, RowError, TensorMetadata
from streamcodec.service.batches import joining
from streamcodec.service.batches.joining import calls
from streamcodec.service.batches.members import Failed, Member, group_of
from streamcodec.service.models.model import Outputs

Array = np.ndarray[Any, Any]

Predict = Callable[[Array], Any]

BAD = 13.0
"""A value that the models here refuse."""


def _unused(request: InferenceRequest) -> Outputs:
    raise AssertionError(request)


def request_of(*arrays: Array, parameters: Mapping[str, Any] | None = None, **options: Any) -> InferenceRequest:  # noqa: ANN401
    names = [f"x{index}" for index in range(len(arrays))]
    datatype = {"f": DATATYPES["FP32"], "O": DATATYPES["BYTES"]}
    tensors = tuple(
        TensorSpec(name=name, datatype=datatype[x.dtype.kind], shape=x.shape, nbytes=x.nbytes, **options)
        for name, x in zip(names, arrays, strict=True)
    )
    header = RequestHeader(tensors=tensors, id="1", outputs=(RequestedOutput(name="y"),), parameters=parameters or {})
    return InferenceRequest(
        inputs=dict(zip(names, arrays, strict=True)), header=header, model_name="m", model_version="1"
    )


def check(outputs: object) -> Any:  # noqa: ANN401 - the model's
    if not isinstance(outputs, dict):
        raise LocalProtocolError("no mapping")
    return outputs


def run(
    predict: Predict,
    arrays: Sequence[Array],
    *,
    retry_alone: bool = True,
    may_copy: bool = True,
    left: Sequence[int] = (),
) -> tuple[list[Any], list[int]]:
    """Return the outcome of each request, and the rows of each call."""
    members = [Member(request_of(x)) for x in arrays]
    for index in left:
        members[index].has_left = True
    work = calls(members, check, retry_alone=retry_alone, may_copy=may_copy)
    shapes, returned = [], None
    while True:
        try:
            request = work.send(returned)
        except StopIteration:
            break
        x = request.inputs["x0"]
        assert request.header.tensors[0].shape == x.shape
        assert request.header.tensors[0].nbytes == x.nbytes or x.dtype.hasobject
        assert request.header.id is None
        assert request.header.outputs is None
        shapes.append(len(x))
        try:
            returned = predict(x)
        except Exception as error:  # noqa: BLE001 - as the drivers do
            returned = Failed(error)
    return [member.outcome for member in members], shapes


def _raise(x: Array) -> Any:  # noqa: ANN401
    if (x == BAD).any():
        raise ValueError("bad")
    return {"y": x * 2, "n": [row.sum() for row in x]}


def _name(x: Array) -> Any:  # noqa: ANN401
    if rows := np.flatnonzero((x == BAD).any(axis=1)).tolist():
        raise RowError({row: ValueError("bad") for row in rows})
    return {"y": x * 2, "n": [row.sum() for row in x]}


def _name_the_first(x: Array) -> Any:  # noqa: ANN401
    if rows := np.flatnonzero((x == BAD).any(axis=1)).tolist():
        raise RowError({rows[0]: ValueError("bad")})
    return {"y": x * 2, "n": [row.sum() for row in x]}


def _name_with_outputs(x: Array) -> Any:  # noqa: ANN401
    outputs: dict[str, Any] = {"y": x * 2, "n": [row.sum() for row in x]}
    if rows := np.flatnonzero((x == BAD).any(axis=1)).tolist():
        raise RowError({row: ValueError("bad") for row in rows}, outputs)
    return outputs


def _leave_out(x: Array) -> Any:  # noqa: ANN401
    good = x[(x != BAD).all(axis=1)]
    return {"y": good * 2, "n": good.sum(axis=1)}


def _name_wrongly(x: Array) -> Any:  # noqa: ANN401
    if (x == BAD).any():
        raise RowError({1000: ValueError("bad")}, {"y": x * 2})
    return {"y": x * 2, "n": x.sum(axis=1)}


def _name_with_few_outputs(x: Array) -> Any:  # noqa: ANN401
    if rows := np.flatnonzero((x == BAD).any(axis=1)).tolist():
        raise RowError({rows[0]: ValueError("bad")}, {"y": x[:0]})
    return {"y": x * 2, "n": x.sum(axis=1)}


MODELS = [_raise, _name, _name_the_first, _name_with_outputs, _leave_out, _name_wrongly, _name_with_few_outputs]

requests = st.lists(st.lists(st.sampled_from([1.0, 2.0, 3.0, BAD]), min_size=0, max_size=3), min_size=1, max_size=6)


@pytest.mark.parametrize("predict", MODELS)
@given(rows=requests, may_copy=st.booleans(), seed=st.integers(0, 5))
def test_each_gets_what_it_would_have_got_alone(
    predict: Predict, rows: list[list[float]], may_copy: bool, seed: int
) -> None:
    arrays = [np.array([[value] * 2 for value in each], np.float32).reshape(len(each), 2) for each in rows]
    left = [seed] if seed < len(arrays) else []
    together, shapes = run(predict, arrays, may_copy=may_copy, left=left)
    for index, (x, outcome) in enumerate(zip(arrays, together, strict=True)):
        if index in left:
            continue
        [alone], _ = run(predict, [x])
        if isinstance(alone, Failed):
            assert isinstance(outcome, Failed)
            assert type(outcome.error) is type(alone.error)
        else:
            assert {name: array.tolist() for name, array in outcome.items()} == {
                name: array.tolist() for name, array in alone.items()
            }
    assert len(shapes) <= 2 * len(arrays) + 1, "a request is called at most twice, but for named ones"


@pytest.mark.parametrize(
    ("bad", "wanted"),
    [
        ([], [64]),
        ([3], [16, *[1] * 16]),
        ([3], [17, 4, 4, 4, 4, 1, *[1] * 4]),
        ([0], [64, *[8] * 8, *[1] * 8]),
        ([63], [64, *[8] * 8, *[1] * 8]),
        ([7, 8], [64, *[8] * 8, *[1] * 16]),
        (range(64), [64, *[8] * 8, *[1] * 64]),
    ],
)
def test_bad_rows_are_found_a_few_at_a_time(bad: Sequence[int], wanted: list[int]) -> None:
    arrays = [np.full((1, 2), BAD if index in bad else 1.0, np.float32) for index in range(wanted[0])]
    outcomes, shapes = run(_raise, arrays)
    assert shapes == wanted
    assert [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Failed)] == [*bad]


def test_who_has_left_is_not_tried_again() -> None:
    arrays = [np.full((1, 2), BAD if index == 19 else 1.0, np.float32) for index in range(20)]
    outcomes, shapes = run(_raise, arrays, left=range(4, 17))
    assert shapes == [20, 4, 3, 1, 1, 1]
    assert outcomes[4:17] == [None] * 13
    assert isinstance(outcomes[19], Failed)


def test_what_fails_for_its_size_only_is_tried_with_fewer() -> None:
    def refuse_many(x: Array) -> Any:  # noqa: ANN401
        if len(x) > 4:
            raise MemoryError
        return {"y": x * 2}

    outcomes, shapes = run(refuse_many, [np.ones((1, 2), np.float32)] * 20)
    assert shapes == [20, 4, 4, 4, 4, 4]
    assert all(outcome["y"].tolist() == [[2.0, 2.0]] for outcome in outcomes)


def test_outputs_are_views_of_those_of_the_batch() -> None:
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    outcomes, shapes = run(lambda _: {"y": whole}, [np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)])
    assert shapes == [3]
    assert all(np.shares_memory(outcome["y"], whole) for outcome in outcomes)


def test_a_request_alone_is_not_copied() -> None:
    x = np.ones((2, 2), np.float32)
    [outcome], _ = run(lambda rows: {"y": rows}, [x])
    assert np.shares_memory(outcome["y"], x)


def test_without_a_second_try_all_have_the_error_of_the_batch() -> None:
    outcomes, shapes = run(_raise, [np.full((1, 2), value, np.float32) for value in (1.0, BAD)], retry_alone=False)
    assert shapes == [2]
    assert all(isinstance(outcome, Failed) for outcome in outcomes)


def test_texts_go_together_too() -> None:
    words = [np.array([[b"a"], [b"b"]], object), np.array([[b"c"]], object)]
    outcomes, shapes = run(lambda x: {"y": Elements(x)}, words)
    assert shapes == [3]
    assert [outcome["y"].tolist() for outcome in outcomes] == [[[b"a"], [b"b"]], [[b"c"]]]


@pytest.mark.parametrize(
    "outputs", [{"y": Rows("FP32", (1, 1), [np.ones((1, 1), np.float32)])}, {"y": np.float32(1)}, {"y": 1}, None]
)
def test_what_cannot_be_cut_is_a_failure_alone_too(outputs: Any) -> None:  # noqa: ANN401
    [outcome], _ = run(lambda _: outputs, [np.ones((1, 2), np.float32)])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, LocalProtocolError)


def test_without_memory_for_the_block_each_has_a_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> Array:
        raise MemoryError

    monkeypatch.setattr(joining, "aligned_bytes", fail)
    outcomes, shapes = run(_raise, [np.ones((1, 2), np.float32)] * 3)
    assert shapes == [1, 1, 1]
    assert not any(isinstance(outcome, Failed) for outcome in outcomes)


def _key(request: InferenceRequest) -> object:
    return group_of(Member(request))[0]


def test_what_a_model_can_see_has_to_agree() -> None:
    x, wide = np.ones((1, 2), np.float32), np.ones((1, 3), np.float32)
    same = _key(request_of(x))
    assert same == _key(request_of(np.ones((5, 2), np.float32)))
    assert same == _key(request_of(x, parameters={"binary_data_output": True}))
    others = [
        request_of(wide),
        request_of(x, x),
        request_of(x, parameters={"k": 1}),
        request_of(x, parameters={"k": True}),
    ]
    assert len({same, *map(_key, others)}) == 5


def test_a_model_sees_the_parameters_that_agree() -> None:
    parameters = {"k": 1, "binary_data_output": True}
    members = [Member(request_of(np.ones((1, 2), np.float32), parameters=parameters)) for _ in range(2)]
    request = next(calls(members, check, retry_alone=True))
    assert request.header.parameters == {"k": 1}
    tensor = replaced(members[0].request.header.tensors[0], parameters={"scale": 2, "binary_data_size": 8})
    member = Member(replaced(members[0].request, header=RequestHeader(tensors=(tensor,))))
    assert next(calls([member], check, retry_alone=True)).header.tensors[0].parameters == {"scale": 2}


@pytest.mark.parametrize("width", [1, 5, 16, 1000, 30_000])
def test_gathered_rows_are_aligned_as_all_inputs_are(width: int) -> None:
    members = [Member(request_of(np.full((1, width), value, np.float32))) for value in range(3)]
    x = next(calls(members, check, retry_alone=True)).inputs["x0"]
    assert x[:, 0].tolist() == [0, 1, 2]
    assert x.ctypes.data % 64 == 0


def test_a_request_knows_whether_the_model_has_been_called_with_it() -> None:
    members = [Member(request_of(np.ones((1, 2), np.float32))) for _ in range(2)]
    assert [member.has_begun for member in members] == [False, False]
    next(calls(members, check, retry_alone=True))
    assert [member.has_begun for member in members] == [True, True]


def test_a_request_is_answered_with_the_error_of_its_own_row() -> None:
    errors = {1: ValueError("second"), 2: KeyError("third")}

    def predict(x: Array) -> Any:  # noqa: ANN401
        raise RowError(errors, {"y": x})

    outcomes, _ = run(predict, [np.ones((rows, 2), np.float32) for rows in (1, 1, 2)])
    assert [outcome.error for outcome in outcomes[1:]] == [errors[1], errors[2]]
    assert outcomes[0]["y"].shape == (1, 2)


def test_outputs_of_other_rows_are_told_with_both_numbers() -> None:
    outcomes, _ = run(lambda x: {"y": x[:0]}, [np.ones((2, 3), np.float32)])
    assert str(outcomes[0].error) == "output 'y' has the shape [0, 3], and the batch has 2 rows"


WRONG_BATCHES: list[tuple[dict[str, Any], str]] = [
    ({"max_rows": 0}, "max_rows of a Batch must be an integer above 0, not 0"),
    ({"max_rows": 1.5}, "max_rows is an int, not float"),
    ({"max_delay": -1.0}, "max_delay of a Batch must be a number of seconds from 0 on, not -1.0"),
    ({"max_delay": float("nan")}, "max_delay of a Batch must be a number of seconds from 0 on, not nan"),
    ({"max_delay": "2ms"}, "max_delay of a Batch is a number of seconds, not str"),
    ({"preferred_rows": 8}, r"preferred_rows of a Batch are a tuple of int, as \(16, 32\), not int"),
    ({"preferred_rows": ("8",)}, "a preferred size is an int, not str"),
    ({"preferred_rows": (8, 0)}, r"preferred_rows must be 1 to max_rows, 64, unlike \[8, 0\]"),
    ({"preferred_rows": (65,)}, r"preferred_rows must be 1 to max_rows, 64, unlike \[65\]"),
    ({"max_queue_rows": 63}, "max_queue_rows must be at least max_rows, 64, not 63"),
    ({"max_running": 0}, "max_running of a Batch must be an integer above 0, not 0"),
]


@pytest.mark.parametrize(("options", "words"), WRONG_BATCHES)
def test_values_that_no_batch_can_have_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"^{words}"):
        Batch(**options)


@pytest.mark.parametrize(
    "options",
    [{"max_delay": 0}, {"preferred_rows": (1, 64)}, {"max_queue_rows": 64}, {"max_rows": 1, "max_running": 1}],
)
def test_a_batch_may_have_the_least_and_the_most(options: dict[str, Any]) -> None:
    batch = Batch(**options)
    assert {name: getattr(batch, name) for name in options} == options


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([ValueError()], r"the errors are given by row, as RowError\({3: ValueError\('no face'\)}\), not list"),
        ({}, "a RowError names at least one row"),
        ({0: "bad"}, r"the error of a row is an exception, as ValueError\('no face'\), not str"),
        ({"0": ValueError()}, r"a row is an int, not str: int\('0'\)"),
    ],
)
def test_a_row_error_names_rows_and_exceptions(errors: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(LocalProtocolError, match=f"^{words}"):
        RowError(errors)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shared_inputs": True}, "shared_inputs"),
        ({"batch": {"max_rows": 64}}, "the batch of model 'm' is a Batch"),
        ({"inputs": (TensorMetadata("x", "FP32", ()),)}, "'x' of model 'm' has shape \\(\\)"),
    ],
)
def test_a_model_that_cannot_have_batches_is_refused(options: dict[str, Any], text: str) -> None:
    made: dict[str, Any] = {"name": "m", "predict": _unused, "batch": Batch(), **options}
    with pytest.raises(LocalProtocolError, match=text):
        Model(**made)


@pytest.mark.parametrize(
    ("shapes", "path", "words"),
    [
        ([], "$.inputs", "takes batches, and there are no inputs"),
        ([()], "$.inputs[0].shape", "takes batches, and the input has no dimension for rows"),
        ([(2, 3), ()], "$.inputs[1].shape", "no dimension for rows"),
        ([(2, 3), (3, 3)], "$.inputs[1].shape", "the input has 3 rows, and the first one 2"),
        ([(3, 3)], "$.inputs[0].shape", "there are 3 rows, and the model takes 2"),
    ],
)
def test_a_request_that_cannot_be_a_part_of_a_batch_is_refused_by_its_header(
    shapes: Sequence[tuple[int, ...]], path: str, words: str
) -> None:
    header = request_of(*[np.ones(shape, np.float32) for shape in shapes]).header
    model = Model(name="m", predict=_unused, batch=Batch(max_rows=2))
    with pytest.raises(RemoteProtocolError, match=words) as caught:
        model.check(header)
    assert caught.value.path == path


def test_a_request_that_fits_is_accepted_and_the_model_is_batching() -> None:
    model = Model(name="m", predict=_unused, batch=Batch(max_rows=2), outputs=(TensorMetadata("y", "FP32", (-1, 2)),))
    model.check(replaced(request_of(np.ones((2, 3), np.float32)).header, outputs=None))
    assert model.is_batching


def test_a_copy_of_a_model_in_another_process_has_queues_of_its_own() -> None:
    model = Model(name="m", predict=_unused, batch=Batch())
    model.queues[joining] = 1
    assert not pickle.loads(pickle.dumps(model)).queues  # noqa: S301 - our own


def test_windows_cannot_be_put_together() -> None:
    with pytest.raises(LocalProtocolError, match="windows"):
        Model(name="m", predict=_unused, batch=Batch(), windows=Windows())
