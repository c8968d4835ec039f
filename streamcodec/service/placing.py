"""Placing: a `place` of the embedding program's, whose misfortunes are no fault of the connection's.

A placement makes files, or asks a device for memory; both can fail as the system likes. A server that saw an `OSError`
would think that its client has gone, and the client would see a broken connection; so it is a refusal, to be tried
again later.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamcodec.engine.errors import OutOfMemoryError, shown
from streamcodec.engine.placement import Place, Placement, Slab
from streamcodec.engine.spec import TensorSpec


def guarded(place: Place) -> Place:
    """Return a `place` whose placements refuse the message where the system has nothing left."""
    return lambda spec: _Guarded(place, spec)


class _Guarded:
    def __init__(self, place: Place, spec: TensorSpec) -> None:
        self._placement = _or_refused(place, spec)

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the slabs of the placement.

        Raises:
            RemoteProtocolError: `out-of-memory`, status 503.
        """
        try:
            yield from self._placement.slabs(spec)
        except (OSError, MemoryError) as error:
            raise _refusal(spec) from error


def _or_refused(place: Place, spec: TensorSpec) -> Placement:
    try:
        return place(spec)
    except (OSError, MemoryError) as error:
        raise _refusal(spec) from error


def _refusal(spec: TensorSpec) -> OutOfMemoryError:
    return OutOfMemoryError(f"the server has no room for tensor {shown(spec.name)} of {spec.nbytes} bytes now")
