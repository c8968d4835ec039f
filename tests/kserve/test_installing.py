"""What `install` does to a server, in a process of KServe's environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kserve.conftest import INTERPRETER

_ROOT = Path(__file__).parents[2]

_CODE = """
import pickle
from kserve import ModelServer, model_server
from streamcodec import Limits, LocalProtocolError
from streamcodec.kserve import dataplane, install

dataplane.default_budget = lambda: 400 << 20  # that of the machine changes meanwhile


def intakes():
    return [layer.kwargs["intake"] for layer in model_server.app.user_middleware if "intake" in layer.kwargs]


server = ModelServer(workers=4, enable_grpc=False)
theirs = server.dataplane
install(server, limits=Limits(max_tensors=7), max_pool_bytes=1 << 20)
assert server.dataplane is not theirs and isinstance(server.dataplane, type(theirs))
assert server.dataplane.model_registry is server.registered_models

(intake,) = intakes()
assert intake.options.max_memory_bytes == 100 << 20, "all workers together have the half"
assert intake.frontend.service.limits.max_tensors == 7
assert intake.frontend.service.pool.max_idle_bytes == 1 << 20

try:
    install(server)
except LocalProtocolError as error:
    assert "already" in str(error)
else:
    raise AssertionError("installed twice")
assert len(intakes()) == 1

# A worker process gets the data plane pickled: it installs its own middleware, with the same settings.
plane, registry = pickle.loads(pickle.dumps((server.dataplane, server.registered_models)))
assert plane.model_registry is registry, "what the repository's routes load is what is served"
assert type(plane) is type(server.dataplane)
again, first = intakes()
assert first is intake and again.options == intake.options
assert again.frontend.service.limits == intake.frontend.service.limits
assert again.frontend.budget is not intake.frontend.budget
print("ok")
"""


def test_it_is_installed_once_for_each_process() -> None:
    done = subprocess.run(
        [os.environ[INTERPRETER], "-c", _CODE], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["ok"], done.stderr
