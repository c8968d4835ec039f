"""Every input of the fuzzers' corpora passes its target, without a fuzzer: what was found once stays fixed."""

from __future__ import annotations

from pathlib import Path

import make_corpus
import pytest
from targets import decoder
from targets.case import Case

from streamcodec import DATATYPES

_DECODER = sorted((make_corpus.CORPUS / "decoder").iterdir())


@pytest.mark.parametrize("path", _DECODER, ids=lambda path: path.name)
def test_decoder(path: Path) -> None:
    decoder.test_one_input(path.read_bytes())


def test_decoder_corpus_reaches_both_verdicts() -> None:
    """Guards the oracle: a target that never gets beyond an error checks nothing."""
    cases = [Case.read(path.read_bytes()) for path in _DECODER]
    outcomes = [decoder.decode(case, case.face, case.pieces) for case in cases]
    accepted = [outcome for outcome in outcomes if outcome.end]
    assert {tensor.spec.datatype.name for outcome in accepted for tensor in outcome.tensors} == set(DATATYPES)
    assert len({outcome.error.code for outcome in outcomes if outcome.error}) > 15


def test_decoder_seeds_are_up_to_date() -> None:
    for name, case in make_corpus.decoder_seeds():
        written = make_corpus.CORPUS / "decoder" / name
        assert written.read_bytes() == case.write(), f"{name}: run python fuzz/make_corpus.py"
        assert Case.read(written.read_bytes()) == case


def test_empty_and_short_inputs_are_cases_too() -> None:
    whole = Case(message=b"{}").write()
    for length in range(len(whole)):
        decoder.test_one_input(whole[:length])
