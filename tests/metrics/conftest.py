"""Every page that these tests ask for is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True, scope="package")
def _new_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("prometheus_client"):
            patch.setattr("streamcodec.metrics.prometheus._SHOWN_AGAIN", 0)
        yield
