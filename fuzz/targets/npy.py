"""npy and npz under any bytes: what is accepted is what numpy reads, and can be written again."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any, Final

import numpy as np

from streamcodec import RemoteProtocolError
from streamcodec.formats import npy
from streamcodec.testing import Outcome, run_push
from targets.stream import Case, decode, same

__all__ = ["Case", "check", "explain", "test_one_input"]

_ARCHIVE: Final = 1
"""The kind of case that is an archive; others are an array."""


def test_one_input(data: bytes) -> None:
    """Read one array or archive and check everything that can be said of the result."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Read one array or archive and check everything that can be said of the result."""
    if case.kind == _ARCHIVE:
        _check_archive(case)
        return
    outcome = read(case)
    if outcome.error is not None:
        return
    (event,) = outcome.tensors
    assert same(event.array, _loaded(case.stream[: outcome.taken])), "numpy reads it otherwise"
    written = b"".join(npy.encode(event.array).buffers)
    (again,) = run_push(npy.decoder, [written]).tensors
    assert same(again.array, _little_endian(event.array))


def _check_archive(case: Case) -> None:
    try:
        arrays = _read_archive(case)
    except RemoteProtocolError:  # a rule or a limit is broken: the one answer to bad bytes
        return
    try:
        expected = _loaded(case.stream)
    except (NotImplementedError, zipfile.BadZipFile) as error:
        # By the version that is needed nothing changes; fields of an extra kind that zipfile looks into are not ours.
        if "version" not in str(error) and "extra" not in str(error):
            raise
        return
    assert list(arrays) == list(expected)
    assert all(same(array, expected[name]) for name, array in arrays.items()), "numpy reads it otherwise"
    if all(name.isprintable() for name in arrays):
        written = b"".join(npy.encode_archive(arrays).buffers)
        again = _read_archive(Case(stream=written))
        assert all(same(_little_endian(array), again[name]) for name, array in arrays.items())


def _read_archive(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    archive = npy.Archive(case.limits)
    data = case.stream
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    while not archive.is_complete:
        outcome = run_push(archive.decoder, [data])
        if outcome.error is not None:
            raise outcome.error
        data = data[outcome.taken :]
        arrays |= {event.spec.name: event.array for event in outcome.tensors}
    assert not data
    return arrays


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Swap as the writers do."""
    return array.astype(array.dtype.newbyteorder("<"))


def _loaded(data: bytes) -> Any:  # noqa: ANN401 - an array, or several
    with warnings.catch_warnings(action="ignore"):
        return np.load(io.BytesIO(data), allow_pickle=False)


def read(case: Case) -> Outcome:
    """Return what comes of an array."""
    return decode(case, lambda: npy.decoder(length=case.length, limits=case.limits))


def explain(data: bytes) -> str:
    """Say what an input means, and what comes of it."""
    case = Case.read(data)
    return f"{case}\n{'' if case.kind == _ARCHIVE else read(case)}"
