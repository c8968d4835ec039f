"""Received: a whole message in one call, for callers that do not need its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic

import numpy as np

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import (
    EndOfMessage,
    HeaderReceived,
    HeaderT,
    TensorReceived,
    WindowReceived,
)
from streamcodec.engine.record import record

MessageEvent = HeaderReceived[HeaderT] | TensorReceived | WindowReceived | EndOfMessage
"""The events of a decoder for one message, except those that ask for something."""


@record()
class Received(Generic[HeaderT]):
    """A complete message."""

    header: HeaderT
    """The header of the message."""
    tensors: Mapping[str, TensorReceived]
    """Tensors by name, in the order of the message; discarded tensors are missing."""

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays by name, in the order of the message. BYTES are object arrays of `bytes`."""
        return {name: tensor.array for name, tensor in self.tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return the array with that name."""
        return self.tensors[name].array

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a tensor with that name."""
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the tensors, as a mapping does."""
        return iter(self.tensors)  # without this method, Python would ask for the tensors 0, 1, ...

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.tensors)


class Collecting(Generic[HeaderT]):
    """Collects the events of a message until it ends."""

    def __init__(self) -> None:
        """Begin before the header."""
        self._header: HeaderT | None = None
        self._tensors: dict[str, TensorReceived] = {}

    def receive(self, event: MessageEvent[HeaderT]) -> Received[HeaderT] | None:
        """Take an event; return the message after its last event.

        Raises:
            LocalProtocolError: a tensor comes in windows, whose memory is reused; or the header's event was taken
                elsewhere.
        """
        if isinstance(event, HeaderReceived):
            self._header = event.header
        elif isinstance(event, TensorReceived):
            self._tensors[event.spec.name] = event
        elif isinstance(event, WindowReceived):
            msg = f"the tensor {event.spec.name!r} comes in windows, which do not last; take the events one by one"
            raise LocalProtocolError(msg)
        elif self._header is None:
            msg = "events of this message have already been taken; take the others one by one, too"
            raise LocalProtocolError(msg)
        else:
            return Received(header=self._header, tensors=self._tensors)
        return None
