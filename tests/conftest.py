"""The two JSON parsers, for whatever must come to the same with both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamcodec.core import jsontext


@pytest.fixture(params=["standard", "msgspec"], scope="module")
def json_parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have every text, whatever its size, parsed by the standard library alone, or by the quick parser first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "LEAST_BYTES", 0 if request.param == "msgspec" else 1 << 62)
        yield request.param
