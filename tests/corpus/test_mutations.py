"""One byte changed: what is still accepted means exactly what it says, and its kind has been reviewed.

A sample is tried here, the same each time; `STREAMCODEC_ALL_MUTATIONS=1` tries all of them, which takes half an hour.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.corpus.mutating import (
    Change,
    accepted_change,
    changes_of,
    is_for_decoder,
    original,
    with_other_bytes,
    with_other_lengths,
)
from tests.corpus.mutating_http import accepted_framing, framing_changes, inference_of, is_for_connection
from tests.corpus.reading import Case, read_changes, read_corpus
from tests.corpus.running import http_parts

ARE_ALL = bool(os.environ.get("STREAMCODEC_ALL_MUTATIONS"))
SAMPLE = 20
SAMPLE_OF_FRAMING = 6
REVIEWED = read_changes()
CASES = read_corpus()
FOR_DECODERS = [case for case in CASES if is_for_decoder(case)]
FOR_CONNECTIONS = [case for case in CASES if is_for_connection(case)]


def chosen(changes: list[Change], count: int, case: Case) -> list[Change]:
    """Choose some of the changes, the same each time."""
    choice = random.Random(case.name)  # noqa: S311 - to be repeated, not secret
    return changes if ARE_ALL else choice.sample(changes, min(count, len(changes)))


@pytest.mark.parametrize("case", FOR_DECODERS, ids=str)
def test_a_message_with_another_byte_or_length_is_refused_or_means_what_it_says(case: Case) -> None:
    message = original(case)
    assert accepted_change(case, message) == "spelling"
    changes = chosen(changes_of(message, is_whole=ARE_ALL), SAMPLE, case)
    mutants = [*with_other_bytes(message, changes), *with_other_lengths(message)]
    kinds = {accepted_change(case, mutant) for mutant in mutants}
    assert kinds <= {*REVIEWED, None}


@pytest.mark.parametrize("case", FOR_CONNECTIONS, ids=str)
def test_a_message_with_another_byte_in_its_framing_is_refused_or_the_same(case: Case) -> None:
    wanted = inference_of(case, b"".join(http_parts(case)))
    assert wanted is not None
    changes = chosen(framing_changes(case), SAMPLE_OF_FRAMING, case)
    kinds = {accepted_framing(case, change, wanted) for change in changes}
    assert kinds <= {*REVIEWED, None}


def test_every_reviewed_kind_has_a_reason() -> None:
    assert len(REVIEWED) > 40
    assert all(reason.endswith(".") for reason in REVIEWED.values())
