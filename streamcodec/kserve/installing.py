"""Installing: one line that gives KServe's ModelServer our decoder and encoder."""

from __future__ import annotations

from kserve import ModelServer
from kserve.protocol.dataplane import DataPlane

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.kserve.dataplane import install_here
from streamcodec.runtime.memory.available import default_budget
from streamcodec.runtime.options import ServerOptions
from streamcodec.service.service import MAX_POOL_BYTES


def install(
    server: ModelServer,
    options: ServerOptions | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    max_pool_bytes: int = MAX_POOL_BYTES,
) -> None:
    """Have a KServe ModelServer receive binary V2 requests tensor by tensor, in bounded memory.

    Its transformers and explainers call with our `InferenceRESTClient`.

    Call it before `server.start(models)`. Models, hooks, routes, errors, metrics, gRPC and everything but binary V2
    inference over REST stay as they are. With `workers > 1`, each worker process installs it for itself.

    Args:
        server: not yet started, with the data plane that KServe gives it.
        options: bounds on memory and time, for each worker process. Options about connections, heads and threads have
            no effect. By default all workers together may use half of the memory that there is.
        limits: bound every request.
        max_pool_bytes: the most idle memory that each process keeps for the next tensors.

    Raises:
        LocalProtocolError: the server has another data plane already, or `max_pool_bytes` is negative.
    """
    if type(server.dataplane) is not DataPlane:
        msg = f"the server has a {type(server.dataplane).__qualname__} already, in the place of KServe's data plane"
        raise LocalProtocolError(msg)
    if options is None:
        options = ServerOptions(max_memory_bytes=max(1, default_budget() // server.workers))
    server.dataplane = install_here(server.dataplane.model_registry, options, limits, max_pool_bytes)
