"""Known heads: what is remembered of them belongs to the models that there were."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import Tensor, encode_request
from streamcodec.http import RequestHead
from streamcodec.server.knownheads import KnownHeads
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from tests.service.requests import answer, head

MESSAGE = encode_request([Tensor(name="x", array=np.zeros(4, np.float32))])
BODY = b"".join(MESSAGE.buffers)
HEAD: RequestHead = head("/v2/models/m/infer", "POST", MESSAGE.headers, len(BODY))


def model(number: int) -> Model:
    def predict(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        return {"y": np.array([number])}

    return Model(name="m", predict=predict, is_inline=True)


def asked(known: KnownHeads) -> int | None:
    """Have the request answered by what is known; return the number of the model."""
    found = known.find(b"key")
    reply = None if found is None else found.reply(BODY, None)
    return None if reply is None else int(answer(reply).document["outputs"][0]["data"][0])


def test_a_change_of_models_forgets() -> None:
    service = Service(ModelRegistry.of([model(1)]))
    known = KnownHeads(service)
    assert asked(known) is None
    known.learn(b"key", HEAD)
    assert asked(known) == 1
    service.models.replace(model(2))
    assert asked(known) is None
    known.learn(b"key", HEAD)
    assert asked(known) == 2


def test_a_body_that_comes_after_a_change_leaves_no_plan_of_the_old_model() -> None:
    service = Service(ModelRegistry.of([model(1)]))
    known = KnownHeads(service)
    known.learn(b"key", HEAD)
    begun = known.find(b"key")
    assert begun is not None
    service.models.replace(model(2))
    known.find(b"key")
    known.learn(b"key", HEAD)
    assert begun.reply(BODY, None) is not None  # by the model that it began with
    assert asked(known) == 2


def test_what_is_learned_while_the_models_change_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ModelRegistry.of([model(1)]))
    known = KnownHeads(service)
    open_head = service.open

    def open_slowly(head: RequestHead) -> object:
        outcome = open_head(head)
        service.models.replace(model(2))
        known.find(b"another thread")
        return outcome

    monkeypatch.setattr(service, "open", open_slowly)
    known.learn(b"key", HEAD)
    assert asked(known) is None
