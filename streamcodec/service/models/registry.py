"""Registry: the models of a server by name. Models may be added, removed and replaced while the server runs.

A request keeps the model with which it began. A cache that outlives a request (a `ResolvedHead`, and what a server
derives from it) stores the registry's `generation`. The generation changes with each change of the registry, so one
comparison shows whether a cache entry is still valid. A change first replaces the dictionary, which is never modified,
and then increments the generation. A reader that stores the generation before it looks for a model can at worst look
once too often. So one thread may change the registry while others read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.service.models.model import Model
from streamcodec.service.models.statistics import ModelStatistics

_MODEL: Final = "a model is a Model, as Model(name='m', predict=function)"


@dataclass(frozen=True, slots=True)
class Offer:
    """A model with its statistics since it was added."""

    model: Model
    """The model."""
    statistics: Mapping[str, ModelStatistics]
    """By version."""


class ModelRegistry:
    """The models of a server, by name. Any thread may change it, but only one at a time, while a server reads it.

    Attributes:
        generation: a number that changes with each change of the registry.
    """

    def __init__(self) -> None:
        """Make a registry without models."""
        self._offers: dict[str, Offer] = {}
        self._loading: tuple[Model, ...] = ()
        self.generation: int = 0

    @classmethod
    def of(cls, models: Iterable[Model]) -> ModelRegistry:
        """Make a registry with these models.

        Raises:
            LocalProtocolError: they are not a list of models, or one of them cannot be added.
        """
        registry = cls()
        check_kind(models, Iterable, "models are given as [model]")
        for model in models:
            registry.add(model)
        return registry

    def add(self, model: Model) -> None:
        """Add a model.

        Raises:
            LocalProtocolError: it is no `Model`, its name is empty or already used, or it has no version.
        """
        check_kind(model, Model, _MODEL)
        if not model.name or model.name in self._offers:
            wrong = f"there are two with the name {model.name!r}" if model.name else "there is an empty one"
            msg = f"names of models must be unique and not empty, and {wrong}"
            raise LocalProtocolError(msg)
        self._put(model)

    def replace(self, model: Model) -> None:
        """Replace the model with the same name. Requests in progress end with the old one.

        Its statistics start again from zero.

        Raises:
            LocalProtocolError: it is no `Model`, there is no model with that name, or it has no version.
        """
        check_kind(model, Model, _MODEL)
        self._check_is_known(model.name)
        self._put(model)

    def remove(self, name: str) -> None:
        """Remove a model. Requests in progress end with it; later ones are answered 404.

        Raises:
            LocalProtocolError: there is no model with that name.
        """
        self._check_is_known(name)
        self._set({known: offer for known, offer in self._offers.items() if known != name})

    def take_over(self, other: ModelRegistry) -> None:
        """Offer the models of another registry instead of the present ones; their statistics are its statistics."""
        self._set(dict(other._offers))

    def find(self, name: str, version: str | None) -> Model:
        """Return a model.

        Raises:
            RemoteProtocolError: `not-found`, status 404.
        """
        offer = self._offers.get(name)
        if offer is None:
            msg = f"there is no model {shown(name)}"
        elif version is not None and version not in offer.model.versions:
            msg = f"model {shown(name)} has no version {shown(version)}"
        else:
            return offer.model
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)

    def statistics(self, name: str, version: str) -> ModelStatistics | None:
        """Return the counter for the requests of a model; None if the model has been removed."""
        offer = self._offers.get(name)
        return None if offer is None else offer.statistics.get(version)

    @property
    def loading(self) -> Iterator[Model]:
        """The current models that may not be ready, in the order in which they were added."""
        return iter(self._loading)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The current models with their statistics, in the order in which they were added."""
        return tuple(self._offers.values())

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a model with that name."""
        return name in self._offers

    def __iter__(self) -> Iterator[Model]:
        """Iterate over the current models, in the order in which they were added."""
        return iter([offer.model for offer in self.offers])

    def _check_is_known(self, name: str) -> None:
        if name not in self._offers:
            msg = f"there is no model {name!r} to be removed or replaced"
            raise LocalProtocolError(msg)

    def _put(self, model: Model) -> None:
        if not model.versions:
            msg = f"model {model.name!r} has no version"
            raise LocalProtocolError(msg)
        offer = Offer(model, {version: ModelStatistics() for version in model.versions})
        self._set({**self._offers, model.name: offer})

    def _set(self, offers: dict[str, Offer]) -> None:
        self._offers = offers
        self._loading = tuple([offer.model for offer in offers.values() if offer.model.ready is not None])
        self.generation += 1
