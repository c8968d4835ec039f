"""The V2 service for ASGI servers, and its decoder for endpoints of one's own."""

from streamcodec.asgi.app import App

__all__ = ["App"]
