"""The mutators that know a format: what they make gets beyond the first checks, and is bounded in size and time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from mutators.safetensors import SafetensorsForm
from mutators.structured import Form, mutate
from mutators.v2 import FrameForm, HeaderForm, MessageForm
from targets import frame, header, oracle, safetensors, stream
from targets.case import Case, Kind

from tests.cputime import least_cpu_seconds
from tests.fuzz.inputs import CORPORA, failures

_COUNT = 500
_MOST_BYTES = 2_000
FORMS: dict[str, Form] = {
    "decoder": MessageForm(),
    "header": HeaderForm(),
    "frame": FrameForm(),
    "safetensors": SafetensorsForm(),
}
"""By target; `oracle` has the inputs of `decoder`."""
BY_TARGET = pytest.mark.parametrize("target", FORMS)


class Plainly:
    """Stands for a plain mutation: changes one byte, and says that it was asked for."""

    def __init__(self) -> None:
        self.is_used = False

    def __call__(self, data: bytes, max_size: int) -> bytes:
        """Change one byte."""
        self.is_used = True
        random = Random(len(data))  # noqa: S311 - nothing secret
        place = random.randrange(len(data) + 1)
        return (data[:place] + random.randbytes(1) + data[place + 1 :])[:max_size]


def mutated(target: str, data: bytes, seed: int, max_size: int = _MOST_BYTES) -> bytes:
    """Change an input of a target."""
    return mutate(data, max_size, seed, Plainly(), FORMS[target])


def chain(target: str, count: int) -> list[bytes]:
    """Make inputs, each of one of the corpus or of one that was made before."""
    found = [*CORPORA[target].values()]
    for seed in range(count):
        found.append(mutated(target, found[seed * 7 % len(found)], seed))
    return found[-count:]


def edited(target: str) -> list[bytes]:
    """Make inputs of those of the corpus; leave out those in which anything was changed plainly."""
    inputs, found = [*CORPORA[target].values()], []
    for seed in range(2 * _COUNT):
        plainly = Plainly()
        data = mutate(inputs[seed * 7 % len(inputs)], _MOST_BYTES, seed, plainly, FORMS[target])
        if not plainly.is_used:
            found.append(data)
    return found


# Verdicts


def _message_code(data: bytes) -> str | None:
    error = oracle.decode(oracle.case_of(data)).error
    return None if error is None else error.code


def _header_code(data: bytes) -> str | None:
    found, parts = header.read_strictly(header.Case.read(data))
    return parts[1] if found is None else None


def _frame_code(data: bytes) -> str | None:
    return next((str(entry[2]) for entry in frame.naive(frame.Case.read(data)) if entry[0] == "skipped"), None)


def _safetensors_code(data: bytes) -> str | None:
    error = safetensors.read(stream.Case.read(data)).error
    return None if error is None else error.code


CODES: dict[str, Callable[[bytes], str | None]] = {
    "decoder": _message_code,
    "header": _header_code,
    "frame": _frame_code,
    "safetensors": _safetensors_code,
}


@BY_TARGET
def test_many_are_accepted_and_many_refused_for_different_reasons(target: str) -> None:
    verdicts = Counter(map(CODES[target], chain(target, _COUNT)))
    assert verdicts[None] > 30, verdicts
    assert len(verdicts) > 8, verdicts


@pytest.mark.parametrize("target", [*FORMS, "oracle"])
def test_nothing_is_found(target: str) -> None:
    inputs = chain("decoder" if target == "oracle" else target, 100)
    assert failures(target, ((str(number), data) for number, data in enumerate(inputs))) == {}


# Framing


def _is_framed(body: bytes, key: str, declared: int | None) -> bool:
    """Tell whether a text ends where it is said to, and whether behind it are the bytes of its tensors."""
    root, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))  # of which each character is a byte
    entries = root.get(key)
    nbytes = sum(map(_size, entries)) if isinstance(entries, list) else 0
    header_length = len(body) - nbytes
    return declared in {None, header_length} and end <= header_length and not body[end:header_length].strip()


def _size(entry: Any) -> int:  # noqa: ANN401 - any JSON value
    parameters = entry.get("parameters") if isinstance(entry, dict) else None
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    return size if type(size) is int else 0


def _is_framed_message(data: bytes) -> bool:
    case = Case.read(data)
    key = "outputs" if case.kind is Kind.RESPONSE else "inputs"
    return case.body_length in {None, len(case.stream)} and _is_framed(case.stream, key, case.header_length)


def _is_framed_frame(data: bytes) -> bool:
    case = frame.Case.read(data)
    return not case.header_change and _is_framed(case.data, "outputs" if case.is_response else "inputs", None)


def _is_framed_file(data: bytes) -> bool:
    file = stream.Case.read(data).stream
    end = 8 + int.from_bytes(file[:8], "little")
    entries = json.loads(file[8:end].decode("latin-1")).values()
    position = end
    for start, stop in sorted(entry["data_offsets"] for entry in entries if _is_tensor(entry)):
        if end + start != position:
            return False
        position = end + stop
    return position == len(file)


def _is_tensor(entry: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(entry, dict) and isinstance(entry.get("dtype"), str)


@pytest.mark.parametrize(
    ("target", "is_framed"),
    [("decoder", _is_framed_message), ("frame", _is_framed_frame), ("safetensors", _is_framed_file)],
)
def test_nearly_all_that_is_edited_is_framed_rightly(target: str, is_framed: Callable[[bytes], bool]) -> None:
    inputs = edited(target)
    assert len(inputs) > _COUNT, "most mutations are no plain ones"
    share = sum(map(is_framed, inputs)) / len(inputs)
    assert 0.94 < share < 1, "some are to be framed wrongly"


# Bounds


@BY_TARGET
def test_the_same_seed_gives_the_same(target: str) -> None:
    data = max(CORPORA[target].values(), key=len)
    once, again = ([mutated(target, data, seed) for seed in range(50)] for _ in range(2))
    assert once == again
    assert len(set(once)) > 25


@BY_TARGET
@pytest.mark.parametrize("max_size", [0, 1, 17, 60, 200])
def test_a_result_has_no_more_bytes_than_it_may(target: str, max_size: int) -> None:
    inputs = [data[:max_size] for data in CORPORA[target].values()]
    assert max(len(mutated(target, inputs[seed % len(inputs)], seed, max_size)) for seed in range(100)) <= max_size


_HARD_TEXTS = {
    "deep": b'{"inputs":' + b"[" * 900 + b"]" * 900 + b"}",
    "deeper": b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "digits": b'{"inputs":[{"datatype":"INT8","shape":[' + b"9" * 4_000 + b"]}]}",
    "more digits": b'{"inputs":[{"datatype":"INT8","shape":[' + b"9" * 100_000 + b"]}]}",
    "dimensions": b'{"inputs":[{"datatype":"INT8","shape":[' + b"4611686018427387904," * 1_000 + b"1]}]}",
    "no elements": b'{"inputs":[{"datatype":"INT8","shape":[4611686018427387904,0],"data":[]}]}',
    "tensors": b'{"inputs":[' + b'{"datatype":"INT8","shape":[1],"data":[1]},' * 1_000 + b"{}]}",
    "values": b'{"inputs":[{"datatype":"INT8","shape":[1],"data":[' + b"1," * 20_000 + b"1]}]}",
    "braces": b"{" * 100_000,
    "surrogate": rb'{"inputs":[{"name":"\ud800"}]}',
}


def _cases(text: bytes) -> dict[str, Any]:
    """Return the inputs that have a text."""
    return {
        "decoder": Case(message=text),
        "header": header.Case(text=text),
        "frame": frame.Case(data=text),
        "safetensors": stream.Case(stream=len(text).to_bytes(8, "little") + text),
    }


@pytest.mark.parametrize("name", _HARD_TEXTS)
def test_time_and_size_are_bounded(name: str) -> None:
    text = _HARD_TEXTS[name]

    def mutate() -> None:
        for target, case in _cases(text).items():
            for seed in range(4):
                assert len(mutated(target, case.write(), seed, 1 << 24)) < 10 * len(text) + 10_000

    assert least_cpu_seconds(mutate, enough=5) < 5, "some hundredths of a second are usual"


@BY_TARGET
@pytest.mark.parametrize("text", [b"", b"[]", b"{x", b'{"a":}'])
def test_what_has_no_object_is_changed_plainly(target: str, text: bytes) -> None:
    data = _cases(text)[target].write()
    assert mutate(data, 100, 1, lambda _, size: bytes(size), FORMS[target]) == bytes(100)


@pytest.mark.parametrize(
    ("target", "case"),
    [("decoder", Case(message=b"{}", kind=Kind.RAW)), ("frame", frame.Case(data=b"{}", is_stream=True))],
)
def test_raw_requests_and_streams_are_changed_plainly(target: str, case: Case | frame.Case) -> None:
    for seed in range(20):
        assert mutate(case.write(), 100, seed, lambda _, size: bytes(size), FORMS[target]) == bytes(100)
