"""Clients of V2 servers, blocking and asynchronous."""

from streamcodec.client.aio import AsyncClient
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import InferResult
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.client.management import CallOptions
from streamcodec.client.sync import Client

__all__ = ["AsyncClient", "CallOptions", "Client", "InferResult", "MemoryLane", "ServerError", "Timeout"]
