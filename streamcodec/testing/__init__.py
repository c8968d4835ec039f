"""Testing: what this library is tested with, for decoders, wrappers and servers of your own.

A message must mean the same however its bytes arrive: cut anywhere, copied in or written in place. That is easily said
and easily lost, by a wrapper as much as by a parser. Here are the ways of cutting (`chunkings`), callers for both faces
that look closely (`run_push`, `run_pull`, `run_scatter`), an independent opinion of what a message means
(`read_message`), transports that do what a script says (`ScriptedSocket`, `ScriptedTransport`), and assertions that
put these together and say where the first difference is.

`streamcodec.testing.strategies` makes messages, right ones and wrong ones with the verdict to expect; it is the only
module here that needs Hypothesis (`streamcodec[testing]`). Nothing here knows a test runner: what fails raises
`AssertionError`.
"""

from streamcodec.testing.assertions import (
    Run,
    assert_expected,
    assert_push_equals_pull,
    assert_read_as_by_oracle,
    assert_round_trip,
    assert_split_invariant,
    assert_stops_at_end,
    usual_chunkings,
)
from streamcodec.testing.chunkings import bytewise, chunkings, seeded, two_way
from streamcodec.testing.descriptions import (
    ArrayDescription,
    ErrorDescription,
    HeaderDescription,
    SpecDescription,
    describe_array,
    describe_error,
    describe_header,
    describe_spec,
)
from streamcodec.testing.differences import first_difference
from streamcodec.testing.mutations import MUTATIONS, applicable, mutate
from streamcodec.testing.oracle import OracleRefusal, read_message
from streamcodec.testing.running import (
    Log,
    ManyTargeted,
    Outcome,
    TwoFaced,
    WindowDescription,
    run_pull,
    run_push,
    run_scatter,
)
from streamcodec.testing.samples import Draft, ExpectedMessage, ExpectedTensor
from streamcodec.testing.scripted import ScriptedSocket, ScriptedTransport
from streamcodec.testing.targets import Choose, Mutation

__all__ = [
    "MUTATIONS",
    "ArrayDescription",
    "Choose",
    "Draft",
    "ErrorDescription",
    "ExpectedMessage",
    "ExpectedTensor",
    "HeaderDescription",
    "Log",
    "ManyTargeted",
    "Mutation",
    "OracleRefusal",
    "Outcome",
    "Run",
    "ScriptedSocket",
    "ScriptedTransport",
    "SpecDescription",
    "TwoFaced",
    "WindowDescription",
    "applicable",
    "assert_expected",
    "assert_push_equals_pull",
    "assert_read_as_by_oracle",
    "assert_round_trip",
    "assert_split_invariant",
    "assert_stops_at_end",
    "bytewise",
    "chunkings",
    "describe_array",
    "describe_error",
    "describe_header",
    "describe_spec",
    "first_difference",
    "mutate",
    "read_message",
    "run_pull",
    "run_push",
    "run_scatter",
    "seeded",
    "two_way",
    "usual_chunkings",
]
