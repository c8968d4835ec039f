"""KserveIntake: what all requests of one process share: the memory, the limits and the times.

KServe has its models, and our service needs none of them. So the service has one model that stands for all, and each
request is received as a request for that one. The model only keeps the request, for the call that has received it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from streamcodec.embedding.frontend import Frontend
from streamcodec.engine.limits import Limits
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service

_PATH: Final = "/v2/models/kserve/infer"

ROUTE: Final[dict[str, object]] = {"path": _PATH, "raw_path": _PATH.encode(), "root_path": "", "query_string": b""}
"""The members of an ASGI scope that ask for that model."""


class KserveIntake:
    """The shared part of all requests.

    Attributes:
        frontend: has the budget, the pool and the threads.
        options: how long requests may take.
    """

    def __init__(self, options: ServerOptions, limits: Limits, max_pool_bytes: int) -> None:
        """Prepare; for the arguments see `install`."""
        models = ModelRegistry.of([Model(name="kserve", predict=_keep, is_inline=True)])
        # KServe's models may do with a wish for classes whatever they like, so such a request is not refused.
        service = Service(models, limits=limits, max_pool_bytes=max_pool_bytes, allow_headerless=False, classifies=True)
        self.frontend: Frontend = Frontend(service, options)
        self.options = options


def kept() -> InferenceRequest | None:
    """Return the request that has just arrived in this task, once; None if it was refused."""
    request = _KEPT.get()
    _KEPT.set(None)
    return request


def _keep(request: InferenceRequest) -> dict[str, np.ndarray[Any, Any]]:
    """Keep a request. What it returns is not sent; it only has to be what was asked for."""
    _KEPT.set(request)
    return {output.name: _NOTHING for output in request.header.outputs or ()}


_KEPT: Final[ContextVar[InferenceRequest | None]] = ContextVar("_KEPT", default=None)
_NOTHING: Final = np.empty(0, np.uint8)
