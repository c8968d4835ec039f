"""Decoder against oracle: two readings of one message that share no code, and no mistake either.

The inputs are those of `decoder`, so the two targets have one corpus. Here the whole message is always there, with its
true length, and the oracle of `streamcodec.testing` reads it as naively as can be. What the decoder accepts, the oracle
must accept and read alike, bit for bit; so what the oracle refuses must be refused. The other way round, the decoder
may refuse more: because of a limit, or of a rule that the oracle knows nothing of. Those have names: `STRICTER` and
`USUAL_LIMITS`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from streamcodec import ErrorCode, LimitExceededError, MessageError
from streamcodec.testing import OracleRefusal, Outcome, assert_read_as_by_oracle, read_message, run_push
from targets.case import Case, Kind, Length
from targets.cuts import cut

STRICTER: Final = {
    ErrorCode.NON_FINITE_NUMBER: "NaN or Infinity somewhere else than in data",
    ErrorCode.MISSING_MEMBER: "a requested output without a name",
    ErrorCode.INVALID_MEMBER: "an id, a model's name, a requested output or a parameter of another type",
    ErrorCode.DUPLICATE_NAME: "an output that is requested twice",
}
"""Codes of rules that the oracle does not know, with what they are about; and there are the limits."""
USUAL_LIMITS: Final = {
    "max_json_depth": "parameters that are nested deeper; the JSON parser of the oracle bears some hundreds",
    "max_elements": "dimensions beside a 0, of whatever size, which the oracle does not look at",
}
"""Where no small limits apply: those that a message of a few thousand bytes can exceed, and be read by the oracle."""


def test_one_input(data: bytes) -> None:
    """Read one message twice and compare."""
    check(case_of(data))


def case_of(data: bytes) -> Case:
    """Take a case from an input: of the deliveries only those in which the whole message comes."""
    case = Case.read(data)
    kind = Kind.REQUEST if case.kind is Kind.RAW else case.kind
    header = Length.FITTING if case.header_length == 0 else case.header  # which would be a raw request
    return replace(case, kind=kind, header=header, body=Length.FITTING, padding=0, has_eof=True, allow_headerless=False)


def check(case: Case) -> None:
    """Read one message twice and compare."""
    if case.header_length == 0:
        return
    is_response = case.kind is Kind.RESPONSE
    outcome = decode(case)
    assert (outcome.end is None) != (outcome.error is None)
    if outcome.end is not None:
        assert_read_as_by_oracle(outcome, case.stream, case.header_length, is_response=is_response)
        return
    assert outcome.error is not None
    if is_accepted_by_oracle(case):
        assert stricter_name(case, outcome.error), f"the oracle accepts what is refused: {outcome.error}"


def is_accepted_by_oracle(case: Case) -> bool:
    """Tell what the oracle says of a case."""
    try:
        read_message(case.stream, case.header_length, is_response=case.kind is Kind.RESPONSE)
    except OracleRefusal:
        return False
    return True


def decode(case: Case) -> Outcome:
    """Have the decoder read a case, as it is cut."""
    return run_push(case.decoder, cut(case.stream, case.pieces))


def stricter_name(case: Case, error: MessageError) -> str | None:
    """Return the name of what an error is about and the oracle does not know: a code, or a usual limit; else None."""
    if isinstance(error, LimitExceededError):
        if case.is_limited:
            return error.code
        return error.limit if error.limit in USUAL_LIMITS else None
    return error.code if error.code in STRICTER and not _is_known(case, error) else None


def _is_known(case: Case, error: MessageError) -> bool:
    """Tell whether an error is about something that the oracle, too, looks at: of a tensor, all but its parameters."""
    tensors, path = "outputs" if case.kind is Kind.RESPONSE else "inputs", error.path or ""
    if error.code is ErrorCode.NON_FINITE_NUMBER:  # members that it does not know are everywhere
        return not path or re.match(rf"\$\.{tensors}\[[0-9]+\]\.data(\[|$)", path) is not None
    is_tensor = path.startswith(f"$.{tensors}[")
    return is_tensor and (".parameters" not in path or path.endswith("binary_data_size"))


def explain(data: bytes) -> str:
    """Say what an input means, and what both make of it."""
    case = case_of(data)
    try:
        opinion: Any = read_message(case.stream, case.header_length, is_response=case.kind is Kind.RESPONSE)
    except OracleRefusal as refusal:
        opinion = f"refused: {refusal}"
    return f"{case}\nheader_length={case.header_length}\ndecoder: {decode(case).log}\noracle: {opinion}"
