"""Learning: the health of the server, the metadata of the model, and the forms of a good request that it accepts.

Bad requests can be judged only if a good request is accepted. So the good request is sent first, and twice. If the two
answers differ, later answers cannot be compared: only the existence of an answer is checked. If the outputs are equal
to the inputs, a request with other values is sent, too, because many functions do not change 0 and 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.messages import Assembly, RawRequest
from streamcodec.blackbox.target import HEALTH, NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation, Finding, Outputs, describe, judge, read_outputs
from streamcodec.blackbox.wire import Wire, WireAnswer, WireOutcome
from streamcodec.engine.datatypes import DATATYPES

_OK: Final = 200
_MAX_SAMPLE: Final = 1 << 20
_MAX_RANK: Final = 64
"""Most dimensions of a tensor, in numpy and in this library's decoder."""

_FLOATS: Final = Input(name="x", datatype=DATATYPES["FP32"], shape=(-1,))
_TEXTS: Final = Input(name="s", datatype=DATATYPES["BYTES"], shape=(-1,))
_TRIED: Final = ((_FLOATS, _TEXTS), (_FLOATS,))
"""Inputs for a model that declares none, and so may accept any. With more kinds, more probes can be sent."""


class CannotExamineError(Exception):
    """Nothing can be examined: the server does not answer, or no good request is known. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The good request, and the server's answer to it."""

    request: RawRequest
    outputs: Outputs | None
    """None if the answer is not well formed, or differs from call to call."""
    is_echo: bool
    """Whether the outputs are the inputs, so that they are known for any request."""

    def expected(self, request: RawRequest) -> Outputs | None:
        """Return the expected outputs of a request; None if they are not known."""
        if request.tensors is None or self.outputs is None:
            return None
        if self.is_echo:
            return Outputs(request.tensors)
        return None if self.may_refuse(request) else self.outputs

    def may_refuse(self, request: RawRequest) -> bool:
        """Tell whether the model may refuse a good request because of new values or sizes.

        A model that echoes its inputs accepts everything that the protocol allows.
        """
        if request.tensors is None or self.is_echo:
            return False
        return Outputs(request.tensors) != Outputs(self.request.tensors)

    def judge(self, wire: Wire, timeout: float) -> Finding | None:
        """Send the good request and compare."""
        observation = wire.exchange(self.request, timeout)
        return judge(Expectation.ACCEPT, observation, expected=self.outputs, also=frozenset())


def learn_inputs(wire: Wire, target: Target, timeout: float) -> tuple[Input, ...]:
    """Ask the server for the inputs of a model; there are none if the model declares none.

    Raises:
        CannotExamineError: the server does not answer, or does not know the model.
    """
    answer = _get(wire, target, target.resource, timeout, "gives no metadata of the model")
    try:
        return tuple(
            Input(name=str(entry["name"]), datatype=DATATYPES[entry["datatype"]], shape=_shape(entry["shape"]))
            for entry in json.loads(answer.body).get("inputs") or ()
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CannotExamineError("the model's metadata is not what the V2 protocol says") from None


def guess_baseline(wire: Wire, target: Target, timeout: float) -> tuple[Target, Baseline]:
    """Find a good request for a model that declares no inputs; see `find_baseline`.

    Raises:
        CannotExamineError: none of the tried requests is accepted.
    """
    reason = None
    for inputs in _TRIED:
        try:
            return find_baseline(wire, replace(target, inputs=inputs, is_declared=False), timeout)
        except CannotExamineError as error:
            reason = error
    words = "the model declares no inputs; name what it takes, with --input NAME:DATATYPE:SHAPE; a guess was wrong"
    raise CannotExamineError(f"{words}: {reason}")


def find_baseline(wire: Wire, target: Target, timeout: float) -> tuple[Target, Baseline]:
    """Check the health of the server, the forms in which the model can be called, and the answer of the model.

    Returns:
        The target, which knows the forms, and the good request.

    Raises:
        CannotExamineError: the server is not healthy, or accepts a good request in no form.
    """
    _check_inputs(target)
    _get(wire, target, HEALTH, timeout, "is not well, or does not say so")
    refusals: list[str] = []
    binary = _try(wire, target, Target.binary, timeout, refusals)
    plain = replace(target, has_binary=binary is not None)
    try:
        data = _try(wire, plain, Target.json, timeout, refusals)
    except NotApplicableError as reason:
        refusals.append(str(reason))
        data = None
    baseline = binary or data
    if baseline is None:
        raise CannotExamineError(f"no good request is known: {'; '.join(refusals)}")
    return replace(plain, has_json=data is not None), baseline


def _check_inputs(target: Target) -> None:
    """Raise CannotExamineError if no good requests can be made."""
    for each in target.inputs:
        if len(each.shape) > _MAX_RANK:
            raise CannotExamineError(f"input {each.name!r} has more than {_MAX_RANK} dimensions")
        if math.prod(each.sample_shape()) > _MAX_SAMPLE:
            raise CannotExamineError(f"input {each.name!r} has more than {_MAX_SAMPLE:,} elements")
    if not any(each.has_elements for each in target.inputs):
        raise CannotExamineError("no input of the model has elements")


def _get(wire: Wire, target: Target, path: str, timeout: float, trouble: str) -> WireAnswer:
    """Ask for a resource; raise CannotExamineError if it is not given."""
    observation = wire.exchange(target.get(path), timeout)
    if observation.outcome is not WireOutcome.ANSWERED:
        raise CannotExamineError(f"the server {trouble}: {observation.outcome.value}: {observation.detail}")
    answer = observation.answers[0]
    if answer.status != _OK:
        raise CannotExamineError(f"the server {trouble}: GET {target.prefix}{path} is answered {describe(answer)}")
    return answer


def _try(
    wire: Wire, target: Target, make: Callable[[Target], Assembly], timeout: float, refusals: list[str]
) -> Baseline | None:
    """Send a good request twice. None if one of them is not accepted, with the reason."""
    message = make(target)
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
    is_echo = outputs == Outputs(message.tensors)
    if is_echo:  # it answers other values with themselves, too
        varied = replace(target, is_varied=True)
        message = make(varied)
        observation = wire.exchange(varied.send(message), timeout)
        expected = Outputs(message.tensors)
        is_echo = judge(Expectation.ACCEPT, observation, expected=expected, also=frozenset()) is None
    return Baseline(request=request, outputs=outputs, is_echo=is_echo)


def _shape(sizes: object) -> tuple[int, ...]:
    """Read a shape; each negative number means any size."""
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
        raise TypeError
    return tuple(max(-1, size) for size in sizes)
