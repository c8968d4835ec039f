"""The V2 service for WSGI servers, and its decoder for a user's own views."""

import warnings

from streamcodec.runtime.memory.sharing import SharedBudget
from streamcodec.wsgi.app import App, pieces, send_response
from streamcodec.wsgi.endpoint import receive_request

__all__ = ["App", "SharedBudget", "pieces", "receive_request", "send_response"]


def __getattr__(name: str) -> object:
    """Return what had another name before 0.2.0."""
    if name != "pieces_of":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    warnings.warn("streamcodec.wsgi.pieces_of is pieces now, and goes in 0.4.0", DeprecationWarning, stacklevel=2)
    return pieces
