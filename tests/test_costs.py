"""Costs: CPU time grows with the bytes and no faster, and who is refused costs no more than who is accepted.

Calls would not show it: one call of `json` or of numpy may do anything. So these are times, of CPU and of this thread
alone, the shortest of several, with bounds that are wide: what they are to find grows 16-fold, or costs 30 times more.
"""

from __future__ import annotations

import gc
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from streamcodec import Inflater, Limits, RemoteProtocolError
from tests.attacks import ATTACKS, Attack
from tests.forms import FORMS, IN_FORMS, receive
from tests.hostile import TEXTS

pytestmark = pytest.mark.quiet

_SCALE = 2
_GROWTH = 4
_MAX_RATIO = 6.0
_MAX_REFUSAL = 4.0
"""Times what is accepted: 3, and what it takes to say where it stood."""
_TEXT_BYTES = 64 << 10
_ROUNDS = 3
_TRIES = 3
_LEAST_SECONDS = 0.002
"""What takes less is measured by doing it again: caches and the clock would have too much of a say."""
_FIXED_SECONDS = 0.0005
"""What may be added whatever the size is."""


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """When the garbage collector runs depends on all objects there are."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def seconds_of(act: Callable[[], object]) -> float:
    """Return the CPU seconds of one act, the least of some."""
    least = _once(act, 1)
    count = max(1, int(_LEAST_SECONDS / max(least, 1e-6)))
    return min([least, *(_once(act, count) for _ in range(_ROUNDS - 1))])


def _once(act: Callable[[], object], count: int) -> float:
    began = time.thread_time()
    for _ in range(count):
        act()
    return (time.thread_time() - began) / count


def _assert_within(times: float, act: Callable[[], object], usual: Callable[[], object]) -> None:
    """Judge how much longer one act takes than another; again if it was too long, as the machine may be busy."""
    taken = [(seconds_of(act), seconds_of(usual))]
    while taken[-1][0] > times * taken[-1][1] + _FIXED_SECONDS:
        if len(taken) == _TRIES:
            words = ", ".join(f"{one / other:.1f} ({one * 1e3:.1f} ms)" for one, other in taken)
            pytest.fail(f"it takes {words} times as long, and not {times:.1f}")
        taken.append((seconds_of(act), seconds_of(usual)))


def _assert_linear(attack: Attack) -> None:
    (small_bytes, small), (large_bytes, large) = attack(_SCALE), attack(_GROWTH * _SCALE)
    _assert_within(_MAX_RATIO / _GROWTH * large_bytes / small_bytes, large, small)


@pytest.mark.parametrize("name", ATTACKS)
def test_four_times_the_bytes_take_four_times_as_long(name: str) -> None:
    _assert_linear(ATTACKS[name])


@pytest.mark.parametrize("name", IN_FORMS)
def test_so_they_do_in_every_form(name: str) -> None:
    _assert_linear(IN_FORMS[name])


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "undeclared"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_refusal_costs_little_more_than_an_acceptance(name: str, form: str, is_declared: bool) -> None:
    pair = TEXTS[name](_TEXT_BYTES)

    def act(text: bytes) -> Callable[[], RemoteProtocolError | None]:
        return partial(receive, FORMS[form](text), len(text) if is_declared else None)

    refused, accepted = act(pair.refused), act(pair.accepted)
    assert isinstance(refused(), RemoteProtocolError)
    assert accepted() is None
    _assert_within(_MAX_REFUSAL, refused, accepted)


def test_finding_out_that_a_checksum_is_wrong_costs_little() -> None:
    """It stands behind everything, and nothing of what came before may be lost, whatever the cuts."""
    body = gzip.compress(Random(1).randbytes(60_000), 1, mtime=0)  # noqa: S311 - to be the same every time

    def inflate(data: bytes) -> None:
        with suppress(RemoteProtocolError):
            for _ in Inflater("gzip", Limits()).inflate(data):
                pass

    _assert_within(_MAX_REFUSAL, partial(inflate, body[:-8] + bytes(8)), partial(inflate, body))
