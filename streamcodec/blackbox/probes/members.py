"""Members: missing members of the JSON header, and members of a wrong type."""

from __future__ import annotations

from collections.abc import Callable

from streamcodec.blackbox.messages import ABSENT, Assembly, RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY, V2
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_REQUEST = f"{V2}, inference request"
_INPUT = f"{V2}, request input"
_OUTPUT = f"{V2}, request output"
_FLAGS = f"{BINARY}: binary_data and binary_data_output are booleans"


def _having(**members: object) -> Make:
    """Change members of the request itself."""
    return lambda target: target.send(target.any_form().having(**members))


def _input_having(**members: object) -> Make:
    """Change members of an input."""
    return lambda target: target.send(target.any_form().with_input(**members))


def _spoiling(change: Callable[[Assembly], Assembly]) -> Make:
    return lambda target: target.send(change(target.any_form()))


def _doubled(message: Assembly) -> Assembly:
    """Send the last input twice, bytes included."""
    inputs = message.document["inputs"]
    return Assembly(
        document=message.document | {"inputs": [*inputs, inputs[-1]]},
        tensors=(*message.tensors, message.tensor),
        is_binary=message.is_binary,
        probed=message.probed,
    )


def _one_missing(target: Target) -> RawRequest:
    """Leave out the last of several inputs, bytes included."""
    message = target.any_form()
    inputs = message.document["inputs"]
    if len(inputs) == 1:
        raise NotApplicableError("the model has one input only")
    payload = b"".join(message.tensors[:-1]) if message.is_binary else b""
    if not target.is_declared:
        raise NotApplicableError("the model does not declare its inputs")
    return target.send(message.having(inputs=inputs[:-1]), payload=payload)


def _unknown(target: Target) -> RawRequest:
    if not target.is_declared:
        raise NotApplicableError("the model does not declare its inputs")
    return target.send(target.any_form().with_input(name="no-such-input"))


PROBES = (
    Probe("members/no-inputs", _REFUSE, "a request without inputs", _REQUEST, _having(inputs=ABSENT)),
    Probe("members/inputs-null", _REFUSE, "inputs that are null", _REQUEST, _having(inputs=None)),
    Probe(
        "members/inputs-object",
        _REFUSE,
        "inputs that are an object",
        _REQUEST,
        _spoiling(lambda message: message.having(inputs=message.document["inputs"][0])),
    ),
    Probe("members/inputs-text", _REFUSE, "inputs that are a string", _REQUEST, _having(inputs="x")),
    Probe("members/inputs-of-numbers", _REFUSE, "an array of numbers as inputs", _REQUEST, _having(inputs=[1, 2])),
    Probe("members/input-null", _REFUSE, "an input that is null", _REQUEST, _having(inputs=[None])),
    Probe("members/input-doubled", _REFUSE, "one input twice", _INPUT, _spoiling(_doubled)),
    Probe("members/input-missing", _REFUSE, "one input less than the model has", _INPUT, _one_missing),
    Probe("members/input-unknown", _REFUSE, "an input that the model does not have", _INPUT, _unknown),
    Probe("members/name-absent", _REFUSE, "an input without a name", _INPUT, _input_having(name=ABSENT)),
    Probe("members/name-empty", _REFUSE, "an input with an empty name", _INPUT, _input_having(name="")),
    Probe("members/name-number", _REFUSE, "an input whose name is a number", _INPUT, _input_having(name=7)),
    Probe(
        "members/no-source",
        _REFUSE,
        "an input without data and without size",
        _INPUT,
        _input_having(data=ABSENT, parameters=ABSENT),
    ),
    Probe("members/id-number", _REFUSE, "an id that is a number", _REQUEST, _having(id=7)),
    Probe("members/id-object", _REFUSE, "an id that is an object", _REQUEST, _having(id={"a": 1})),
    Probe("members/parameters-array", _REFUSE, "parameters that are an array", _REQUEST, _having(parameters=[1])),
    Probe("members/parameters-text", _REFUSE, "parameters that are a string", _REQUEST, _having(parameters="x")),
    Probe("members/outputs-object", _REFUSE, "outputs that are an object", _REQUEST, _having(outputs={"name": "x"})),
    Probe("members/output-null", _REFUSE, "an output that is null", _REQUEST, _having(outputs=[None])),
    Probe("members/output-unnamed", _REFUSE, "an output without a name", _OUTPUT, _having(outputs=[{}])),
    Probe(
        "members/output-unknown",
        _REFUSE,
        "an output that the model does not have",
        _OUTPUT,
        _having(outputs=[{"name": "no-such-output"}]),
    ),
    Probe(
        "members/output-flag-text",
        _REFUSE,
        'binary_data_output of "yes"',
        _FLAGS,
        _having(parameters={"binary_data_output": "yes"}),
    ),
    Probe(
        "members/output-flag-number",
        _REFUSE,
        "binary_data_output of 2",
        _FLAGS,
        _having(parameters={"binary_data_output": 2}),
    ),
)
"""The probes of this group."""
