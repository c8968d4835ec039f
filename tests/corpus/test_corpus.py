"""Every case of the corpus comes to what it says, and the corpus says enough."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from streamcodec import ErrorCode
from streamcodec.engine.json import text as jsontext
from tests.corpus.expecting import check
from tests.corpus.reading import Case, read_corpus, read_rules
from tests.corpus.running import run

CASES = read_corpus()
RULES = read_rules()
LEAST_ACCEPTED = 150
LEAST_REFUSED = 300

NEED_MORE_THAN_A_MESSAGE = {
    ErrorCode.TOO_SLOW,  # time: tests/server/connection/test_patience.py
    ErrorCode.MISDIRECTED,  # a list of hosts: tests/service/test_hosts.py
    ErrorCode.OUT_OF_MEMORY,  # a machine without memory: tests/engine/test_placement.py
    ErrorCode.UPLOAD_MISMATCH,  # an upload that an earlier message has begun: tests/service/uploads/test_uploads.py
}
"""Codes that no message alone can cause."""

OF_OTHER_FORMATS = {ErrorCode.INVALID_FRAME, ErrorCode.INVALID_CHECKSUM}
"""Codes that no message of V2 can cause: tests/formats."""

STATUSES = {200, 400, 403, 404, 405, 411, 413, 414, 415, 417, 431, 500, 501, 505}
"""What a server answers to a message alone: 408, 429 and 503 take time or load, see tests/server."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    check(case, run(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case_with_the_quick_json_parser(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "LEAST_BYTES", 0)
    check(case, run(case, is_cut=False))


def test_names_are_unique() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []


def test_there_are_enough_cases() -> None:
    refused = sum(case.is_refused for case in CASES)
    assert refused >= LEAST_REFUSED
    assert len(CASES) - refused >= LEAST_ACCEPTED


def test_every_case_shows_a_rule_that_there_is() -> None:
    assert [str(case) for case in CASES if not case.rules or not set(case.rules) <= set(RULES)] == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_both_kinds_of_cases(rule: str) -> None:
    kinds = {case.is_refused for case in CASES if rule in case.rules}
    words = RULES[rule]
    wanted = {False} if "(nothing to refuse" in words else {True} if "(nothing to accept" in words else {False, True}
    assert kinds == wanted


def test_every_status_is_the_answer_to_some_request() -> None:
    requests = " ".join(line for case in CASES if case.kind == "http-request" for line in case.expected)
    assert {status for status in STATUSES if not re.search(rf"(status=|answer ){status}\b", requests)} == set()


def test_every_code_is_the_outcome_of_some_case() -> None:
    lines = " ".join(line for case in CASES for line in case.expected)
    missing = {code for code in ErrorCode if f"code={code} " not in lines}
    assert missing == NEED_MORE_THAN_A_MESSAGE | OF_OTHER_FORMATS
