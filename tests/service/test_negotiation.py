"""`Accept-Encoding` (RFC 9110, section 12.5.3): what each list of preferences comes to."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcodec import ENCODINGS
from streamcodec.service.negotiation import accepted_encoding

CASES = {
    # What known clients send
    "gzip": "gzip",  # Go, tritonclient when it is told to
    "deflate": "deflate",  # tritonclient when it is told to
    "gzip, deflate": "gzip",  # Python requests, and tritonclient's aio client unawares
    "gzip, deflate, br, zstd": "gzip",  # browsers
    "identity": None,
    # Letter case, blanks, aliases
    "GZIP": "gzip",
    "Deflate ; Q=1": "deflate",
    "x-gzip": "gzip",
    "\tgzip\t;\tq=0.5 , identity;q=0.1": "gzip",
    ",, gzip ,": "gzip",
    # Weights
    "gzip;q=0.5, deflate": "deflate",
    "gzip;q=0.5, deflate;q=0.5": "gzip",
    "deflate, gzip": "gzip",
    "gzip;q=0.001": "gzip",
    "gzip;q=1.000": "gzip",
    "gzip;q=1.": "gzip",
    "gzip;q=0": None,
    "gzip;q=0.000": None,
    "gzip;q=0, deflate;q=0.1": "deflate",
    "gzip;q=0.5, identity;q=0.8": None,
    "gzip;q=0.8, identity;q=0.5": "gzip",
    "gzip;q=0.001, identity;q=0.002": None,
    # With equal weights the plain body
    "gzip, identity": None,
    "gzip;q=0.3, identity;q=0.3": None,
    # Everything else
    "*": None,
    "*;q=0.5": None,
    "*, gzip;q=0.5": None,
    "*;q=0.5, gzip": "gzip",
    "gzip, *;q=0": "gzip",
    "*, identity;q=0.5": "gzip",
    "*, gzip;q=0, identity;q=0": "deflate",
    "*, identity;q=0": "gzip",
    "*;q=0.5, gzip;q=0.5": None,
    # Nothing that can be done: the plain body
    "": None,
    "br, zstd": None,
    "br;q=1, zstd;q=0.1": None,
    "identity;q=0": None,
    "*;q=0": None,
    "identity;q=0, br": None,
    # Members that are not well formed are not there
    "gzip;q=2": None,
    "gzip;q=1.001": None,
    "gzip;q=0.0001": None,
    "gzip;q=-1": None,
    "gzip;q=.5": None,
    "gzip;q=": None,
    "gzip;q=nan": None,
    "gzip;q=1e0": None,
    "gzip;x=1": None,
    "gzip;q=1;x=1": None,
    "gzip deflate": None,
    "gzip\0": None,
    '"gzip"': None,
    "gzip;q=2, deflate;q=0.1": "deflate",
    "gzip\u00e9, deflate": "deflate",
}


@pytest.mark.parametrize("field", CASES)
def test_one_field(field: str) -> None:
    assert accepted_encoding([field.encode("latin-1")]) == CASES[field]


def test_no_field_asks_for_nothing() -> None:
    assert accepted_encoding([]) is None


def test_several_fields_are_one_list() -> None:
    assert accepted_encoding([b"gzip;q=0.5", b"identity;q=0.8"]) is None
    assert accepted_encoding([b"gzip;q=0.5", b"", b"deflate"]) == "deflate"


def test_order_of_the_members_decides_nothing() -> None:
    for members in itertools.permutations([b"gzip;q=0.5", b"deflate;q=0.7", b"identity;q=0.2", b"*;q=0.1"]):
        assert accepted_encoding([b",".join(members)]) == "deflate"


def test_longest_field_that_a_head_can_hold() -> None:
    assert accepted_encoding([b"br;q=0.5," * 3000 + b"gzip"]) == "gzip"
    assert accepted_encoding([b"gzip" + b" " * 30_000 + b";q=x"]) is None


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_bytes_of_any_kind(values: list[bytes]) -> None:
    assert accepted_encoding(values) in {None, *ENCODINGS}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gzip", "deflate", "identity", "*", "br"]),
            st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        ),
        max_size=5,
    )
)
def test_what_is_chosen_is_preferred_to_the_plain_body_and_to_the_other(members: list[tuple[str, float]]) -> None:
    chosen = accepted_encoding([", ".join(f"{name};q={weight}" for name, weight in members).encode()])
    weights = dict(members)
    others = weights.get("*", 0.0)
    best = max(weights.get(name, others) for name in ENCODINGS)
    plain = weights.get("identity", others)
    assert (chosen is not None) is (best > plain)
    assert chosen is None or weights.get(chosen, others) == best
