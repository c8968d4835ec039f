"""Testing: the test tools of this library, for decoders, wrappers and servers of your own.

The meaning of a message must not depend on how its bytes arrive: how they are split into chunks, and whether they are
copied or written in place. A bug in a wrapper or in a parser easily breaks this rule. This package has the ways to
split a message (`chunkings`), strict callers for both interfaces of a decoder (`run_push`, `run_pull`, `run_scatter`),
an independent reader of messages (`read_message`), transports that follow a script (`ScriptedSocket`,
`ScriptedTransport`), and assertions that combine these and report the first difference.

`streamcodec.testing.strategies` makes valid messages, and invalid ones with the expected verdict. It is the only module
here that needs Hypothesis (`streamcodec[testing]`). No module here depends on a test runner: a failure raises
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
