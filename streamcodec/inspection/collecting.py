"""Collecting: the tensors of a message pass through one window, and what is reported about them stays.

Windows of the engine are of whole rows, and one row may be the whole tensor. Here the windows are runs of elements, so
that no shape needs more memory. All tensors share the memory of one window, because the decoder waits after each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.events import TensorReceived
from streamcodec.engine.memory.placement import Placement, Slab, aligned_bytes, placed_bytes
from streamcodec.engine.spec import TensorSpec
from streamcodec.inspection.pictures import Sampler
from streamcodec.inspection.report import TensorReport
from streamcodec.inspection.statistics import Running, numbers

_WINDOW_BYTES: Final = 1 << 20
_FIRST_VALUES: Final = 8
_VALUE_CHARACTERS: Final = 40
_MOST_PICTURES: Final = 16
_MOST_ALIGNMENT: Final = 4096


class TensorCollector:
    """Collects what is reported about the tensors of a message."""

    def __init__(self) -> None:
        """Begin before the first tensor."""
        self._specs: list[tuple[TensorSpec, int]] = []
        self._tensors: dict[int, _Tensor] = {}
        self._memory = np.empty(0, np.uint8)
        self._pictures = 0

    def expect(self, specs: Iterable[TensorSpec], base: int) -> None:
        """Add the tensors of a header.

        Args:
            specs: the tensors.
            base: bytes before those that their offsets count.
        """
        self._specs += [(spec, base) for spec in specs]

    def place(self, spec: TensorSpec) -> Placement:  # noqa: ARG002 - the signature of `Place`
        """Place a tensor in windows of elements."""
        return self

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        """Yield the window, as often as the tensor needs it."""
        itemsize, dtype, left = spec.datatype.itemsize, spec.datatype.dtype, placed_bytes(spec)
        most = max(_WINDOW_BYTES // itemsize, 1) * itemsize
        if len(self._memory) < min(most, left):
            self._memory = aligned_bytes(max(most, _WINDOW_BYTES))
        while True:
            memory = self._memory[: min(most, left)]
            array: np.ndarray[Any, Any] = np.ndarray((len(memory) // itemsize,), dtype, memory)
            yield Slab(buffer=memory.data, array=array, must_wait=True, is_new=True)
            left -= len(memory)
            if not left:
                return

    def add(self, event: TensorReceived) -> None:
        """Count in a window of a tensor, or a whole BYTES tensor."""
        tensor = self._tensors.get(id(event.spec))
        if tensor is None:
            tensor = self._tensors[id(event.spec)] = _Tensor(event.spec, has_picture=self._pictures < _MOST_PICTURES)
            self._pictures += tensor.sampler is not None
        if event.spec.datatype.is_bytes:
            tensor.add_elements(event.elements)
        else:
            tensor.add_values(event.array)

    @property
    def reports(self) -> tuple[TensorReport, ...]:
        """Describe all tensors, also those that have not come."""
        return tuple(_describe(spec, base, self._tensors.get(id(spec))) for spec, base in self._specs)


class _Tensor:
    """One tensor, as far as it has come."""

    def __init__(self, spec: TensorSpec, *, has_picture: bool) -> None:
        self.spec = spec
        self.running = Running()
        self.first_values: list[str] = []
        self.seen = 0
        # In Fortran order the values come in another order than that of the shape.
        is_plain = has_picture and not spec.datatype.is_bytes and "fortran_order" not in spec.parameters
        self.sampler = Sampler.of(spec.shape, is_octet=spec.datatype.dtype == np.uint8) if is_plain else None

    def add_values(self, array: np.ndarray[Any, Any]) -> None:
        """Count in the next values."""
        values = numbers(array, self.spec.datatype)
        if not self.seen:
            shown = array if values is None or array.dtype.kind == "b" else values
            self.first_values = [_cut(str(value)) for value in shown[:_FIRST_VALUES]]
        if values is None:
            self.sampler = None
        else:
            self.running.add(values)
        if self.sampler is not None and values is not None:
            self.sampler.add(self.seen, values)
        self.seen += array.size

    def add_elements(self, elements: Elements) -> None:
        """Count in all elements of a BYTES tensor."""
        self.first_values = [_cut(repr(elements[index])) for index in range(min(len(elements), _FIRST_VALUES))]
        self.running.add(np.diff(elements.offsets) - PREFIX_BYTES)


def _describe(spec: TensorSpec, base: int, tensor: _Tensor | None) -> TensorReport:
    offset = None if spec.offset is None else base + spec.offset
    sampler = None if tensor is None else tensor.sampler
    return TensorReport(
        name=spec.name,
        datatype=spec.datatype.name,
        shape=spec.shape,
        nbytes=spec.nbytes,
        offset=offset,
        alignment=None if offset is None else min(offset & -offset or _MOST_ALIGNMENT, _MOST_ALIGNMENT),
        statistics=None if tensor is None else tensor.running.result(),
        first_values=() if tensor is None else tuple(tensor.first_values),
        picture=None if sampler is None else sampler.picture(),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}..."
