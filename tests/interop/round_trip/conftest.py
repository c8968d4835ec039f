"""KServe's codec, one process for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.round_trip.kserve_codec import KServeCodec


@pytest.fixture(scope="session")
def kserve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KServeCodec]:
    with KServeCodec(tmp_path_factory.mktemp("kserve") / "stderr.txt") as codec:
        yield codec
