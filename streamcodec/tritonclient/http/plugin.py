"""Plugin: what a program may do to the header fields of every request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Request:
    """What a plugin sees of a request.

    Attributes:
        headers: the fields of the request by name, those of the message included; a plugin may change them.
    """

    def __init__(self, headers: dict[str, Any] | None) -> None:
        """Begin with these fields; None for none."""
        self.headers: dict[str, Any] = {} if headers is None else headers


class InferenceServerClientPlugin(ABC):
    """Base class of plugins: objects that are called with every `Request`."""

    @abstractmethod
    def __call__(self, request: Request) -> None:
        """Change the fields of a request, before it is sent. Clients with several threads call it in each of them."""
