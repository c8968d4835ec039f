"""Every input of the fuzzers' corpora passes its target, without a fuzzer: what was found once stays fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType

import make_corpus
import pytest
import replay
from seeds import repository
from targets import compression, connections, decoder, frame, header, http, oracle, recipe, round_trip
from targets.case import Case

from streamcodec import DATATYPES, EndOfMessage, ErrorCode, LocalProtocolError
from tests.fuzz.inputs import CORPORA, failures


@pytest.mark.parametrize("target", make_corpus.TARGETS)
def test_every_committed_input_passes(target: str) -> None:
    assert failures(target, CORPORA[target].items()) == {}


@pytest.mark.slow
@pytest.mark.parametrize("target", make_corpus.TARGETS)
def test_every_case_and_capture_of_the_repository_passes(target: str) -> None:
    assert failures(target, _repository_inputs(target)) == {}


def _repository_inputs(target: str) -> Iterable[tuple[str, bytes]]:
    return ((name, case.write()) for name, case in repository.seeds(make_corpus.corpus_of(target).name))


@pytest.mark.parametrize("corpus", make_corpus.SEEDS)
def test_seeds_are_up_to_date(corpus: str) -> None:
    for name, case in make_corpus.SEEDS[corpus]():
        written = (make_corpus.CORPUS / corpus / name).read_bytes()
        assert written == case.write(), f"{name}: run python fuzz/make_corpus.py"
        assert type(case).read(written) == case


@pytest.mark.parametrize("target", make_corpus.TARGETS)
def test_empty_and_short_inputs_are_cases_too(target: str) -> None:
    whole = max(CORPORA[target].values(), key=len)
    assert failures(target, ((str(length), whole[:length]) for length in range(0, 60, 3))) == {}


@pytest.mark.parametrize("target", make_corpus.TARGETS)
def test_every_target_explains_its_inputs(target: str) -> None:
    name, data = next(iter(CORPORA[target].items()))
    words, finding = replay.replay(target, data)
    assert finding is None, name
    assert words.startswith("Case(")


def test_every_target_has_a_program_that_names_it() -> None:
    for target in make_corpus.TARGETS:
        program = (make_corpus.CORPUS.parent / f"fuzz_{target}.py").read_text("utf-8")
        assert f"from targets.{target} import test_one_input" in program


# A target that never gets beyond an error checks nothing, so the corpora must reach both verdicts.


def test_decoder_corpus_reaches_both_verdicts() -> None:
    cases = [Case.read(data) for data in CORPORA["decoder"].values()]
    outcomes = [decoder.decode(case, case.face, case.pieces) for case in cases]
    accepted = [outcome for outcome in outcomes if outcome.end]
    assert {tensor.spec.datatype.name for outcome in accepted for tensor in outcome.tensors} == set(DATATYPES)
    assert len({outcome.error.code for outcome in outcomes if outcome.error}) > 15


def test_oracle_corpus_reaches_both_verdicts() -> None:
    outcomes = [oracle.decode(oracle.case_of(data)) for data in CORPORA["oracle"].values()]
    assert sum(isinstance(outcome.end, EndOfMessage) for outcome in outcomes) > 50
    assert len({outcome.error.code for outcome in outcomes if outcome.error}) > 10


def test_every_name_for_being_stricter_than_the_oracle_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    used = _recorded(oracle, ["stricter_name"], monkeypatch)
    assert failures("oracle", [*CORPORA["oracle"].items(), *_repository_inputs("oracle")]) == {}
    assert used == {*oracle.STRICTER, *oracle.USUAL_LIMITS, ErrorCode.LIMIT_EXCEEDED}


def _recorded(target: ModuleType, looks: list[str], monkeypatch: pytest.MonkeyPatch) -> set[str | None]:
    """Have the target's own look-ups of names write down what they return."""
    used: set[str | None] = set()

    def recording(look: Callable[..., str | None], *arguments: object) -> str | None:
        name = look(*arguments)
        used.add(name)
        return name

    for look in looks:
        monkeypatch.setattr(target, look, partial(recording, getattr(target, look)))
    return used


def test_header_corpus_reaches_both_verdicts() -> None:
    verdicts = [header.read_strictly(header.Case.read(data))[0] is None for data in CORPORA["header"].values()]
    assert min(Counter(verdicts).values()) > 30


def test_http_corpus_reaches_accepted_and_refused_messages_on_both_ends() -> None:
    seen: Counter[tuple[connections.Role, bool]] = Counter()
    for data in CORPORA["http"].values():
        case = connections.Case.read(data)
        for message in connections.run(case, case.face, case.pieces).messages:
            seen[case.role, message.error is None and message.body is not None] += 1
    assert len(seen) == 4
    assert min(seen.values()) >= 5


@pytest.mark.slow
def test_every_name_for_differing_from_h11_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    used = _recorded(http, ["stricter_name", "laxer_name"], monkeypatch)
    assert failures("http", [*CORPORA["http"].items(), *_repository_inputs("http")]) == {}
    assert used == {*http.STRICTER_CODES, *http.STRICTER_MESSAGES, *http.USUAL_LIMITS, *http.LAXER}


def test_compression_corpus_reaches_both_verdicts() -> None:
    cases = [compression.Case.read(data) for data in CORPORA["compression"].values()]
    verdicts = Counter(compression.inflate(case, case.chunks).error is None for case in cases)
    assert min(verdicts.values()) > 15


def test_frame_corpus_reaches_every_verdict() -> None:
    logs = [frame.naive(frame.Case.read(data)) for data in CORPORA["frame"].values()]
    seen = Counter(str(entry[2]) if entry[0] == "skipped" else "frame" for log in logs for entry in log)
    assert seen["frame"] > 100
    assert {"invalid-frame", "invalid-checksum", "invalid-json", "truncated", "limit-exceeded"} < set(seen)


def test_round_trip_corpus_writes_everything_there_is() -> None:
    cases = [round_trip.Case.read(data) for data in CORPORA["round_trip"].values()]
    recipes = [part for case in cases if not case.is_refused for part in case.recipes]
    assert {part.datatype_name for part in recipes} == set(DATATYPES)
    assert {part.layout for part in recipes} == set(recipe.Layout)
    assert {part.form for part in recipes} == set(recipe.Form)
    refused = [case for case in cases if case.is_refused]
    assert len(refused) >= 8
    with pytest.raises(LocalProtocolError):
        refused[0].encode()
