"""Fortran order: the bytes of an array are those of its transpose, so the transpose is placed and filled."""

from __future__ import annotations

from collections.abc import Iterator

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.memory.placement import Place, Placement, Slab
from streamcodec.engine.record import record, replaced
from streamcodec.engine.spec import TensorSpec


def in_its_order(place: Place) -> Place:
    """Place arrays in Fortran order as their transposes."""

    def place_array(spec: TensorSpec) -> Placement:
        placement = place(spec)
        return _Transposed(placement=placement) if spec.parameters else placement

    return place_array


@record()
class _Transposed:
    """Placement of an array in Fortran order: the transpose is placed, and the event's array is transposed back."""

    placement: Placement

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield what the placement yields for the transpose."""
        for slab in self.placement.slabs(replaced(spec, shape=spec.shape[::-1])):
            if slab.row is not None:
                msg = "an array in Fortran order has no rows in a row, and cannot come in windows"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path="fortran_order")
            yield slab if slab.array is None else replaced(slab, array=slab.array.T)
