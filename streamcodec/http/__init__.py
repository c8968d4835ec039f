"""HTTP/1.1, sans-IO: the server's and the client's end of a connection. h11 judges heads that are not plain."""

from streamcodec.http.bodies.body import Receiver
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.bodies.fed import FedBody, fed_head
from streamcodec.http.client import ClientConnection
from streamcodec.http.heads.messages import ConnectionClosed, Fields, RequestHead, ResponseHead
from streamcodec.http.server import ServerConnection

__all__ = [
    "ClientConnection",
    "Collector",
    "ConnectionClosed",
    "FedBody",
    "Fields",
    "Receiver",
    "RequestHead",
    "ResponseHead",
    "ServerConnection",
    "fed_head",
]
