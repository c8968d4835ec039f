"""The V2 service for aiohttp, and its decoder for a user's own handlers. It needs aiohttp installed."""

import warnings

from streamcodec.aiohttp.app import App
from streamcodec.aiohttp.endpoint import receive_request, send_response
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.runtime.memory.sharing import SharedBudget

__all__ = ["App", "SharedBudget", "leave_expectation", "receive_request", "send_response"]


def __getattr__(name: str) -> object:
    """Return what had another name before 0.2.0."""
    if name != "Handler":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    warnings.warn("streamcodec.aiohttp.Handler is App now, and goes in 0.4.0", DeprecationWarning, stacklevel=2)
    return App
