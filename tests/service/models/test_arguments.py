"""Arguments of another type: what is right is said where a service is made, and not when the first request comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, Pool
from streamcodec.client import Client
from streamcodec.server import Server, ServerOptions
from streamcodec.service import Model, ModelRegistry, Service, TensorMetadata

MODEL: Any = Model(name="m", predict=lambda request: request.inputs)
MODELS: Any = ModelRegistry.of([MODEL])


def model(**options: Any) -> Model:  # noqa: ANN401 - wrong on purpose
    return Model(**{"name": "m", "predict": print, **options})


def metadata(shape: Any) -> TensorMetadata:  # noqa: ANN401 - wrong on purpose
    return TensorMetadata(name="x", datatype="FP32", shape=shape)


def client(**options: Any) -> Client:  # noqa: ANN401 - wrong on purpose
    return Client(options.pop("url", "http://127.0.0.1:9"), **options)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "models in a list": (lambda: Service([MODEL]), r"as ModelRegistry.of\(\[model\]\), not list"),  # type: ignore[arg-type]
    "one model": (lambda: Service(MODEL), "not .*Model"),
    "a placement": (lambda: Service(MODELS, place=Pool()), "place is a function"),  # type: ignore[arg-type]
    "limits": (lambda: Service(MODELS, limits=5), "limits are a Limits object"),  # type: ignore[arg-type]
    "one host": (lambda: Service(MODELS, allowed_hosts="localhost"), r"a list, as \['localhost'\]"),
    "a registry of one": (lambda: ModelRegistry.of(MODEL), r"models are given as \[model\]"),
    "a function": (lambda: ModelRegistry.of([print]), "a model is a Model, as .* not builtin_function"),  # type: ignore[list-item]
    "a new function": (lambda: ModelRegistry().replace(print), "a model is a Model, as .* not builtin_f"),  # type: ignore[arg-type]
    "no function": (lambda: model(predict=None), "predict of model 'm' is a function of a request, not None"),
    "versions in a text": (lambda: model(versions="12"), r"are a tuple of str, as \('1',\), not str"),
    "versions as numbers": (lambda: model(versions=(1, 2)), r"are a tuple of str, as \('1',\), not int"),
    "a name as a number": (lambda: model(name=5), "the name of a model is a str, not int"),
    "no platform": (lambda: model(platform=None), "the platform of model 'm' is a str, not None"),
    "one input": (lambda: model(inputs=metadata((1,))), "are a tuple of TensorMetadata, not"),
    "inputs as in JSON": (lambda: model(inputs=[{}]), "are TensorMetadata objects, not dict"),
    "a size": (lambda: metadata(5), r"a shape is a tuple of int, as \(ANY_SIZE, 3\), not int"),
    "no size": (lambda: metadata((None, 2)), r"sizes are int, -1 for any, unlike \[None, 2\]"),
    "a registry to a server": (lambda: Server(MODELS), r"a server has a Service, as Service\(.*\), not"),
    "settings": (lambda: Server(Service(MODELS), {}), r"options are ServerOptions, .* not dict"),  # type: ignore[arg-type]
    "a function as observer": (lambda: Server(Service(MODELS), observer=print), "inherits from Observer, not"),  # type: ignore[arg-type]
    "a place as text": (lambda: client(url=b"http://x"), "a server's URL is a str, .* not bytes"),
    "a time as text": (lambda: client(timeout="5"), "a timeout must be a number of seconds .* not '5'"),
    "two times": (lambda: client(timeout=(1, 2)), "a timeout must be a number of seconds"),
    "a number as text": (lambda: client(max_connections="5"), "max_connections must be at least 1, not '5'"),
}


@pytest.mark.parametrize(("act", "words"), WRONG.values(), ids=WRONG)
def test_an_argument_of_another_type_is_refused_with_what_is_right(act: Callable[[], object], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        act()


def test_integers_of_numpy_are_integers() -> None:
    assert type(ServerOptions(max_connections=np.int64(9)).max_connections) is int  # type: ignore[arg-type]
    assert metadata((np.int64(2), -1)).accepts((2, 5))
