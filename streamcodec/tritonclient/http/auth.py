"""Auth: a plugin for Basic authentication."""

from __future__ import annotations

from base64 import b64encode

from streamcodec.tritonclient.http.plugin import InferenceServerClientPlugin, Request

__all__ = ["BasicAuth"]


class BasicAuth(InferenceServerClientPlugin):
    """Sends a user and a password with every request (RFC 7617)."""

    def __init__(self, username: str, password: str) -> None:
        """Keep the credentials, which must be ASCII.

        Raises:
            UnicodeEncodeError: they are not.
        """
        self._field = f"Basic {b64encode(f'{username}:{password}'.encode('ascii')).decode()}"

    def __call__(self, request: Request) -> None:
        """Set the field `authorization`."""
        request.headers["authorization"] = self._field
