"""The V2 service as a handler of aiohttp, and its decoder for a user's own handlers. It needs aiohttp installed."""

from streamcodec.aiohttp.endpoint import receive_request, send_response
from streamcodec.aiohttp.handler import Handler
from streamcodec.aiohttp.peer import leave_expectation
from streamcodec.runtime.memory.sharing import SharedBudget

__all__ = ["Handler", "SharedBudget", "leave_expectation", "receive_request", "send_response"]
