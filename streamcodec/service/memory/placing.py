"""Placing: turns failures of the embedding program's `place` into refusals.

A placement may make files or ask a device for memory. Both can fail with an `OSError`. A server that saw this error
would assume that its client has gone, and the client would see a broken connection. So the request is refused instead,
and the client may try again later.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamcodec.engine.errors import OutOfMemoryError, shown
from streamcodec.engine.memory.placement import Place, Slab, check_place, check_placement
from streamcodec.engine.spec import TensorSpec


def guarded(place: Place) -> Place:
    """Return a `place` whose placements refuse the message if the system has no memory or space left.

    Raises:
        LocalProtocolError: it is no function.
    """
    check_place(place)
    return lambda spec: _Guarded(place, spec)


class _Guarded:
    def __init__(self, place: Place, spec: TensorSpec) -> None:
        try:
            self._placement = place(spec)
        except (OSError, MemoryError) as error:
            raise _refusal(spec) from error

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the slabs of the placement.

        Raises:
            RemoteProtocolError: `out-of-memory`, status 503.
        """
        try:
            check_placement(self._placement)
            yield from self._placement.slabs(spec)
        except (OSError, MemoryError) as error:
            raise _refusal(spec) from error


def _refusal(spec: TensorSpec) -> OutOfMemoryError:
    return OutOfMemoryError(f"the server has no room for tensor {shown(spec.name)} of {spec.nbytes} bytes now")
