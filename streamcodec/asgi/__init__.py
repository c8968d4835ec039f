"""The V2 service for ASGI servers, and its decoder for your own endpoints."""

from streamcodec.asgi.app import App
from streamcodec.asgi.endpoint import pieces, receive_request, send_response
from streamcodec.runtime.memory.sharing import SharedBudget

__all__ = ["App", "SharedBudget", "pieces", "receive_request", "send_response"]
