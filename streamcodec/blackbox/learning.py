"""Learning: what the server says of the model, and which forms of a good request it takes.

Without a good request nothing can be said of bad ones, so it is asked for before anything else, twice: a model whose
answers differ from call to call cannot be asked whether it still answers rightly, only whether it answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.messages import Message, Request
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation, Finding, Outputs, describe, judge, read_outputs
from streamcodec.blackbox.wire import Outcome, Wire
from streamcodec.core.datatypes import DATATYPES

_OK: Final = 200
_MAX_SAMPLE: Final = 1 << 20


class CannotExamineError(Exception):
    """There is nothing to examine: the server does not answer, or no good request is known. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The good request, and the server's answer to it."""

    request: Request
    outputs: Outputs | None
    """None if the answer is not well formed, or differs from call to call."""
    is_echo: bool
    """Whether the outputs are the inputs, so that they are known for any request."""

    def expected(self, request: Request) -> Outputs | None:
        """Return the outputs that a request must lead to; None if they are not known."""
        if request.tensors is None or self.outputs is None:
            return None
        if self.is_echo:
            return Outputs(request.tensors)
        return self.outputs if Outputs(request.tensors) == Outputs(self.request.tensors) else None

    def judge(self, wire: Wire, timeout: float) -> Finding | None:
        """Send the good request and compare."""
        observation = wire.exchange(self.request, timeout)
        return judge(Expectation.ACCEPT, observation, expected=self.outputs, also=frozenset())


def learn_inputs(wire: Wire, target: Target, timeout: float) -> tuple[Input, ...]:
    """Ask the server for the inputs of a model.

    Raises:
        CannotExamineError: it does not answer, does not know the model, or the model declares no inputs.
    """
    observation = wire.exchange(target.get(f"/v2/models/{target.model}"), timeout)
    if observation.outcome is not Outcome.ANSWERED:
        raise CannotExamineError(
            f"the server does not tell of the model: {observation.outcome.value}: {observation.detail}"
        )
    answer = observation.answers[0]
    if answer.status != _OK:
        raise CannotExamineError(f"the server does not tell of the model: {describe(answer)}")
    try:
        inputs = tuple(_input(entry) for entry in json.loads(answer.body).get("inputs") or ())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CannotExamineError("the model's metadata is not what the V2 protocol says") from None
    if not inputs:
        raise CannotExamineError("the model declares no inputs; name what it takes, with --input NAME:DATATYPE:SHAPE")
    return inputs


def find_baseline(wire: Wire, target: Target, timeout: float) -> tuple[Target, Baseline]:
    """Find out in which forms the model can be called, and what it answers.

    Returns:
        The target, which knows the forms, and the good request.

    Raises:
        CannotExamineError: it answers a good request in no form.
    """
    for each in target.inputs:
        if math.prod(each.sample_shape()) > _MAX_SAMPLE:
            raise CannotExamineError(f"input {each.name!r} has more than {_MAX_SAMPLE:,} elements")
    refusals: list[str] = []
    binary = _try(wire, target, target.binary(), timeout, refusals)
    plain = replace(target, has_binary=binary is not None)
    try:
        data = _try(wire, plain, plain.json(), timeout, refusals)
    except NotApplicableError as reason:
        refusals.append(str(reason))
        data = None
    baseline = binary or data
    if baseline is None:
        raise CannotExamineError(f"no good request is known: {'; '.join(refusals)}")
    return replace(plain, has_json=data is not None), baseline


def _try(wire: Wire, target: Target, message: Message, timeout: float, refusals: list[str]) -> Baseline | None:
    """Send a right request twice; None if the first one is not accepted, and then say why."""
    request = target.send(message, checks=True)
    observations = [wire.exchange(request, timeout) for _ in range(2)]
    form = "in binary" if message.is_binary else "as JSON"
    for observation in observations:
        finding = judge(Expectation.ACCEPT, observation, expected=None, also=frozenset())
        if finding is not None:
            refusals.append(f"{form}: {finding.kind}: {finding.detail}")
            return None
    first, second = (read_outputs(observation.answers[0]) for observation in observations)
    outputs = first if first == second else None
    return Baseline(request=request, outputs=outputs, is_echo=outputs == Outputs(message.tensors))


def _input(entry: dict[str, Any]) -> Input:
    return Input(name=str(entry["name"]), datatype=DATATYPES[entry["datatype"]], shape=_shape(entry["shape"]))


def _shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(max(-1, int(size)) for size in sizes)
