"""Received: a whole message in one call, for who does not want to look at it while it comes."""

from __future__ import annotations

from collections.abc import Mapping
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
"""What the decoder of one message tells, when it does not ask for anything."""


@record()
class Received(Generic[HeaderT]):
    """A message, all of it."""

    header: HeaderT
    """What the message says of itself."""
    tensors: Mapping[str, TensorReceived]
    """By name, in the order of the message, as they were received; those that were discarded are missing."""

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays by name, in the order of the message. BYTES are object arrays of `bytes`."""
        return {name: tensor.array for name, tensor in self.tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return the array of that name."""
        return self.tensors[name].array


class Collecting(Generic[HeaderT]):
    """Keeps what comes until the message ends."""

    def __init__(self) -> None:
        """Begin before the header."""
        self._header: HeaderT | None = None
        self._tensors: dict[str, TensorReceived] = {}

    def receive(self, event: MessageEvent[HeaderT]) -> Received[HeaderT] | None:
        """Take an event; return the message if that was its last one.

        Raises:
            LocalProtocolError: a tensor comes in windows, whose memory is used again; or the header came before.
        """
        if isinstance(event, HeaderReceived):
            self._header = event.header
        elif isinstance(event, TensorReceived):
            self._tensors[event.spec.name] = event
        elif isinstance(event, WindowReceived):
            msg = f"the tensor {event.spec.name!r} comes in windows, which do not last; take the events one by one"
            raise LocalProtocolError(msg)
        elif self._header is None:
            msg = "somebody else has taken events of this message; who goes on has to take them one by one"
            raise LocalProtocolError(msg)
        else:
            return Received(header=self._header, tensors=self._tensors)
        return None
