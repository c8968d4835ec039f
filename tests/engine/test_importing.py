"""What is imported at its first use can be imported before, where it is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from streamcodec.engine.datatypes import find_bfloat16
from streamcodec.engine.json.quick import find_parser


@pytest.mark.parametrize(("find", "package"), [(find_parser, "msgspec"), (find_bfloat16, "ml_dtypes")])
def test_a_package_is_found_or_done_without(find: object, package: str) -> None:
    assert callable(find)
    find()
    assert (package in sys.modules) == (find_spec(package) is not None)
