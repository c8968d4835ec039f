"""The bundled server: the V2 service on sockets, as one call (`run`) or in your own event loop (`Server`)."""

from streamcodec.runtime.models.calls import call_model
from streamcodec.runtime.options import ServerOptions
from streamcodec.server.processes.accesslog import AccessLog, to_descriptor, to_logger
from streamcodec.server.processes.running import run
from streamcodec.server.processes.workers import run_workers
from streamcodec.server.serving import Server
from streamcodec.server.sockets.opening import open_listener
from streamcodec.server.sockets.securing import ClientCertificates, server_context
from streamcodec.server.sockets.unixsocket import UnixListener, open_unix_listener

__all__ = [
    "AccessLog",
    "ClientCertificates",
    "Server",
    "ServerOptions",
    "UnixListener",
    "call_model",
    "open_listener",
    "open_unix_listener",
    "run",
    "run_workers",
    "server_context",
    "to_descriptor",
    "to_logger",
]
