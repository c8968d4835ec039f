"""HTTP/1.1, sans-IO: the server's and the client's end of a connection. h11 judges heads that are not plain."""

from streamcodec.http.body import Receiver
from streamcodec.http.client import ClientConnection
from streamcodec.http.collector import Collector
from streamcodec.http.fed import FedBody, fed_head
from streamcodec.http.messages import ConnectionClosed, Fields, RequestHead, ResponseHead
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
