"""The package: what it has, and what it does without."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from streamcodec import testing


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_it_works_without_hypothesis_pytest_h11_and_anyio() -> None:
    code = """
import sys
for name in ("hypothesis", "pytest", "h11", "anyio", "ml_dtypes", "msgspec"):
    sys.modules[name] = None
import streamcodec
from streamcodec import testing
body = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}}]}  ' + bytes([1, 2])
make = lambda: streamcodec.request_decoder(header_length=len(body) - 2, body_length=len(body))
outcome = testing.assert_split_invariant(make, body)
testing.assert_read_as_by_oracle(outcome, body, len(body) - 2)
print(outcome.arrays[0].tolist())
"""
    assert run(code) == "[1, 2]"


@pytest.mark.parametrize("name", testing.__all__)
def test_each_name_is_documented(name: str) -> None:
    value = getattr(testing, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)
        assert value.__module__.startswith("streamcodec.testing.")


@pytest.mark.slow
def test_assertions_hold_under_optimisation() -> None:
    """What fails has to fail where Python leaves `assert` out, too."""
    code = """
from streamcodec import testing
try:
    testing.run_push(lambda: type("Broken", (), {"next_event": lambda self: 5})(), [b""])
except AssertionError as failure:
    print(failure)
"""
    command = [sys.executable, "-O", "-c", code]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "next_event() returned int, which is no event"
