"""JSON floats: character for character what `repr` writes, for all kinds of floats that have their own difficulty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from streamcodec.formats.v2.json import floats as jsonfloats
from streamcodec.formats.v2.json.floats import floats_as_text

Floats = npt.NDArray[np.float64]

COUNT = 20_000
random = np.random.default_rng(53)


@pytest.fixture(autouse=True, params=["package", "numpy"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have floats written by the optional package, or as if it was not installed."""
    if request.param == "numpy":
        monkeypatch.setattr(jsonfloats, "write_floats", lambda _: None)


def written(values: npt.NDArray[np.floating]) -> tuple[str, int]:
    """Return the text, and how many floats were left to `repr`."""
    left = []

    def plain(some: npt.NDArray[np.floating]) -> list[str]:
        left.extend(some.tolist())
        return list(map(repr, some.tolist()))

    return floats_as_text(values, plain).decode(), len(left)


def neighbours(values: Floats) -> Floats:
    """Add the next 20 floats on both sides, and the negatives."""
    found = [values]
    up = down = values
    for _ in range(20):
        up, down = np.nextafter(up, np.inf), np.nextafter(down, 0)
        found += [up, down]
    return np.concatenate([*found, *(-some for some in found)])


def integers(bits: int) -> Floats:
    return random.integers(-(2**bits), 2**bits, COUNT).astype(float)


CASES: dict[str, npt.NDArray[np.floating]] = {
    "normal": random.normal(size=COUNT),
    "normal FP32": random.normal(size=COUNT).astype("f4"),
    "of 2 decimals": np.round(random.normal(size=COUNT) * 100, 2),
    "of 15 decimals": np.round(random.random(COUNT), 15),
    "of 16 decimals": np.round(random.random(COUNT), 16),
    "of 17 decimals": np.array([float(f"{value:.17f}") for value in random.random(COUNT)]),
    "integers": integers(50),
    "ties": integers(24) / 2.0 ** random.integers(0, 24, COUNT),
    "more ties": integers(53) / 2.0 ** random.integers(0, 53, COUNT),
    "limits met exactly": random.integers(10**15, 2**53, COUNT) * 1.0,
    "magnitudes from 0.001 to 10**16": 10.0 ** random.uniform(-2.9, 15.9, COUNT),
    "FP32 from 100 to 1000": random.uniform(100, 1000, COUNT).astype("f4"),
    "near powers of ten": neighbours(np.array([float(f"{m}e{e}") for e in range(-3, 16) for m in (1, 2, 5, 9.5)])),
    "zeros": np.array([0.0, -0.0, 1.0] * 100),
}


@pytest.mark.parametrize("name", CASES)
def test_as_repr_writes_them_and_nearly_always_without_it(name: str) -> None:
    values = CASES[name]
    text, left = written(values)
    assert text == "".join(f",{value!r}" for value in values.tolist())
    assert left <= len(values) * 0.03


POWERS_OF_TWO: Floats = np.ldexp(np.ones(2098), np.arange(-1074, 1024))

OTHERS: dict[str, npt.NDArray[np.floating]] = {
    "powers of two": POWERS_OF_TWO,
    "near powers of two": neighbours(POWERS_OF_TWO[1000:1200]),
    "at the edges": neighbours(np.array([1e-5, 1e-4, 1e-3, 1e15, 1e16, 1e17, 1e22, 1.7e308, 5e-324])),
    "no numbers": np.array([np.nan, np.inf, -np.inf, 1.5, 0.0, -2.5, 3.5, 1e-300]),
    "any": np.frombuffer(random.bytes(8 * COUNT), "f8"),
    "any FP32, big-endian": np.frombuffer(random.bytes(4 * COUNT), ">f4"),
    "magnitudes from 10**-5 to 10**18": 10.0 ** random.uniform(-5, 18, COUNT),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_left_to_repr_in_part(name: str) -> None:
    values = OTHERS[name]
    expected = "".join(f",{value!r}" for value in values.tolist())
    assert written(values)[0] == expected
    mixed = np.stack((values, np.full_like(values, 0.1))).T.reshape(-1)
    text, left = written(mixed)
    assert text == "".join(f",{value!r}" for value in mixed.tolist())
    assert 0 < left <= len(values)


@given(npst.arrays(st.sampled_from(["<f4", "<f8", ">f8"]), st.integers(1, 40)))
def test_any_floats(values: npt.NDArray[np.floating]) -> None:
    assert written(values)[0] == "".join(f",{value!r}" for value in values.tolist())


@given(st.lists(st.decimals(-(10**16), 10**16, allow_nan=False, places=5).map(float), min_size=1))
def test_floats_that_were_decimals(values: list[float]) -> None:
    assert written(np.array(values))[0] == "".join(f",{value!r}" for value in values)
