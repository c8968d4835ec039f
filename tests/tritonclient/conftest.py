"""A Triton server for all tests of this folder that want one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop.servers.processes import Peer, running


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    python = os.environ.get("STREAMCODEC_TRITON_PYTHON")
    if python is None:
        pytest.skip(
            "a Triton server is not here: STREAMCODEC_TRITON_PYTHON is not set; tests/interop/run installs what is "
            "missing"
        )
    with running(python, "tests.interop.servers.triton_program", tmp_path_factory.mktemp("triton")) as peer:
        yield peer
