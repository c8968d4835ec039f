"""Clients of V2 servers, blocking and asynchronous."""

from streamcodec.client.aio import AsyncClient
from streamcodec.client.exchange import InferResult, ServerError
from streamcodec.client.sync import Client

__all__ = ["AsyncClient", "Client", "InferResult", "ServerError"]
