"""The V2 service for WSGI servers, and its decoder for a user's own views."""

from streamcodec.runtime.memory.sharing import SharedBudget
from streamcodec.wsgi.answer import pieces_of, send_response
from streamcodec.wsgi.app import App
from streamcodec.wsgi.endpoint import receive_request

__all__ = ["App", "SharedBudget", "pieces_of", "receive_request", "send_response"]
