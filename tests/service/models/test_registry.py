"""The registry: models come, go and are replaced; what has begun with one ends with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcodec import LocalProtocolError, Tensor, encode_request
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Service, demo_models
from streamcodec.service.models.model import Outputs
from tests.service.requests import answer, get, head, infer, run

MESSAGE = encode_request([Tensor(name="x", array=np.zeros(2))])
TARGET = "/v2/models/m/infer"


def _constant(value: int, version: str = "1") -> Model:
    def predict(_: InferenceRequest) -> Outputs:
        return {"y": np.array([value])}

    return Model(name="m", predict=predict, versions=(version,))


def test_models_that_cannot_be_offered() -> None:
    identity = next(iter(demo_models()))
    for models in ([identity, identity], [Model(name="", predict=identity.predict)]):
        with pytest.raises(LocalProtocolError, match="unique and not empty"):
            ModelRegistry.of(models)
    with pytest.raises(LocalProtocolError, match="no version"):
        ModelRegistry.of([Model(name="m", predict=identity.predict, versions=())])


def test_a_model_that_is_removed_is_no_longer_found() -> None:
    models = demo_models()
    service = Service(models)
    assert get(service, "/v2/models/sink").status == 200
    models.remove("sink")
    assert get(service, "/v2/models/sink").status == 404
    assert [model.name for model in models] == ["identity"]
    assert ("sink" in models, "identity" in models) == (False, True)
    models.add(_constant(1))
    assert [model.name for model in models] == ["identity", "m"]


def test_a_model_is_replaced_in_its_place() -> None:
    models = ModelRegistry.of([_constant(1), *demo_models()])
    service = Service(models)
    assert infer(service, TARGET, MESSAGE).outputs["y"] == [1]
    models.replace(_constant(2, version="2"))
    assert infer(service, TARGET, MESSAGE).outputs["y"] == [2]
    assert [model.name for model in models] == ["m", "identity", "sink"]
    assert get(service, "/v2/models/m/versions/1").status == 404
    assert get(service, "/v2/models/m").document["versions"] == ["2"]


def test_a_registry_takes_over_the_models_of_another() -> None:
    models = ModelRegistry.of([_constant(1), *demo_models()])
    service = Service(models)
    assert infer(service, TARGET, MESSAGE).outputs["y"] == [1]
    models.take_over(ModelRegistry.of([Model(name="ready", predict=lambda _: {}, ready=bool), _constant(2)]))
    assert infer(service, TARGET, MESSAGE).outputs["y"] == [2]
    assert [model.name for model in models] == ["ready", "m"]
    assert [model.name for model in models.loading] == ["ready"]


@pytest.mark.parametrize("removes", [True, False])
def test_a_request_under_way_ends_with_the_model_it_began_with(removes: bool) -> None:
    models = ModelRegistry.of([_constant(1)])
    inference = Service(models).begin(head(TARGET, "POST", MESSAGE.headers, MESSAGE.body_length))
    assert isinstance(inference, Inference)
    if removes:
        models.remove("m")
    else:
        models.replace(_constant(2))
    assert answer(run(inference, b"".join(MESSAGE.buffers))).outputs["y"] == [1]


def test_each_change_is_another_generation() -> None:
    models = ModelRegistry()
    generations = [models.generation]
    changes: list[Callable[[], None]] = [
        lambda: models.add(_constant(1)),
        lambda: models.replace(_constant(2)),
        lambda: models.remove("m"),
        lambda: models.add(_constant(1)),
    ]
    for change in changes:
        change()
        generations.append(models.generation)
    assert len(set(generations)) == len(generations)


def test_changes_that_are_refused_change_nothing() -> None:
    models = ModelRegistry.of([_constant(1)])
    generation, before = models.generation, list(models)
    changes: list[tuple[Callable[[], None], str]] = [
        (lambda: models.remove("other"), "no model 'other' to be removed or replaced"),
        (lambda: models.replace(Model(name="other", predict=before[0].predict)), "no model 'other'"),
        (lambda: models.replace(Model(name="m", predict=before[0].predict, versions=())), "no version"),
        (lambda: models.add(_constant(2)), "must be unique and not empty, and there are two with the name 'm'"),
        (
            lambda: models.add(Model(name="", predict=before[0].predict)),
            "must be unique and not empty, and there is an empty",
        ),
    ]
    for change, reason in changes:
        with pytest.raises(LocalProtocolError, match=reason):
            change()
    assert (models.generation, list(models)) == (generation, before)


def test_the_registry_may_change_while_somebody_goes_through_it() -> None:
    models = demo_models()
    seen = []
    for model in models:
        seen.append(model.name)
        models.remove(model.name)
    assert (seen, list(models)) == (["identity", "sink"], [])
