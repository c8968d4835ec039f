"""Windows: the inputs of a model that takes them row by row, while they arrive.

Such a model is called when the header has arrived. Its inputs have a shape, but no values yet. When the model asks for
the next window, the connection reads. The caller decides how to wait: it gives `pull`, which returns the decoder's next
event. This room only interprets the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import EndOfMessage, WindowReceived
from streamcodec.engine.memory.rows import Window
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.heads.messages import HttpEvent

Pull = Callable[[], HttpEvent]
"""Returns the next event of a request, after waiting for it as long as necessary."""

_ORDER: Final = "a model must take its windows input after input, in the order of the request"


def windows_of(spec: TensorSpec, header: RequestHeader, pull: Pull) -> Iterator[Window]:
    """Yield the windows of one input, each valid until the next is asked for.

    Raises:
        LocalProtocolError: the inputs are not taken one after the other, in the order of the request.
        RemoteProtocolError: what arrives breaks a rule.
    """
    is_last = False
    while not is_last:
        event = checked(pull(), spec)
        yield event.array
        is_last = event.is_last
    if spec is header.tensors[-1]:
        check_end(pull())


def checked(event: HttpEvent, spec: TensorSpec) -> WindowReceived:
    """Return the event if it is a window of that input.

    Raises:
        LocalProtocolError: it is another event, so the model does not take its inputs in order.
    """
    if not isinstance(event, WindowReceived) or event.spec is not spec:
        raise LocalProtocolError(f"{_ORDER}; it was not the turn of {spec.name!r}")
    return event


def check_end(event: HttpEvent) -> None:
    """Check that nothing follows the last window.

    Raises:
        LocalProtocolError: an input has been left out.
    """
    if not isinstance(event, EndOfMessage):
        raise LocalProtocolError(f"{_ORDER}; there was more input after the last one")
