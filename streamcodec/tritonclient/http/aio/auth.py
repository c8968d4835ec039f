"""Auth: the plugin of `http.auth`, where programs of the asynchronous client look for it."""

from streamcodec.tritonclient.http.auth import BasicAuth

__all__ = ["BasicAuth"]
