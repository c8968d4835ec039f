"""Arrays of the format, right and wrong by one thing; and archives, made field by field."""

from __future__ import annotations

import io
import zipfile
from typing import Any, NamedTuple

import numpy as np

from streamcodec import Limits
from streamcodec.formats import npy
from streamcodec.testing import Outcome, run_push

USUAL = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n"
DATA = b"\1\0\2\0"


def file(
    text: str | bytes = USUAL, data: bytes = DATA, *, version: tuple[int, int] = (1, 0), length: int | None = None
) -> bytes:
    """A file of this header, whatever it says."""
    text = text if isinstance(text, bytes) else text.encode("latin-1")
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + size.to_bytes(2 if version == (1, 0) else 4, "little") + text + data


def changed(data: bytes = DATA, **members: str) -> bytes:
    """A file of which some members are other texts."""
    usual = {"descr": "'<i2'", "fortran_order": "False", "shape": "(2,)"}
    return file("{" + ", ".join(f"'{key}': {text}" for key, text in {**usual, **members}.items()) + "}", data)


def saved(array: np.ndarray[Any, Any]) -> bytes:
    """As numpy writes it."""
    target = io.BytesIO()
    np.save(target, array, allow_pickle=True)
    return target.getvalue()


def archived(**arrays: np.ndarray[Any, Any]) -> bytes:
    """As numpy writes them."""
    target = io.BytesIO()
    np.savez(target, **arrays)  # type: ignore[arg-type] # a name could be that of an option
    return target.getvalue()


def zipped(members: dict[str, bytes], **options: Any) -> bytes:  # noqa: ANN401 - of `zipfile`
    """As Python writes them: sizes in the short fields."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


def loaded(data: bytes) -> Any:  # noqa: ANN401 - an array, or several
    """What numpy makes of a file."""
    return np.load(io.BytesIO(data), allow_pickle=False)


def read(data: bytes, *, length: int | None = None, limits: Limits | None = None, **options: Any) -> Outcome:  # noqa: ANN401
    """What comes of one array."""
    return run_push(lambda: npy.decoder(length=length, limits=limits or Limits(), **options), [data])


def read_archive(data: bytes, *, limits: Limits | None = None, **options: Any) -> dict[str, np.ndarray[Any, Any]]:  # noqa: ANN401
    """Read an archive.

    Raises:
        RemoteProtocolError: it is refused.
    """
    archive = npy.Archive(limits or Limits())
    arrays = {}
    while not archive.is_complete:
        outcome = run_push(lambda: archive.decoder(**options), [data])
        if outcome.error is not None:
            raise outcome.error
        data = data[outcome.taken :]
        for event in outcome.tensors:
            arrays[event.spec.name] = event.array
    assert data == b""
    return arrays


class Refusal(NamedTuple):
    """A file, the code of its refusal, and words of the message."""

    data: bytes
    code: str
    words: str


SQUARE = np.arange(6, dtype="<i4").reshape(2, 3)

ACCEPTED = {
    "as numpy writes it": saved(SQUARE),
    "Fortran order": saved(np.asfortranarray(SQUARE)),
    "Fortran order of three dimensions": saved(np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))),
    "Fortran order of one dimension": changed(fortran_order="True"),
    "a scalar": saved(np.array(5)),
    "no elements": saved(np.zeros((3, 0))),
    "version 1.0": file(),
    "version 2.0": file(version=(2, 0)),
    "version 3.0": file(version=(3, 0)),
    "other quotes and another order": file(
        '  {"shape":(2),"descr":"<i2","fortran_order":False}'.replace("(2)", "(2,)")
    ),
    "white space everywhere": file("{ 'descr' :\n'<i2' , 'fortran_order'\t: False,'shape': ( 2 , ),\r\n}  \n\n"),
    "no comma at the end": changed(shape="(1, 2)"),
    "a comma at the end of the shape": changed(shape="(1, 2,)"),
    "datetimes": saved(np.array(["2026-11-22"], "M8[D]")),
    "units of 25 s": saved(np.array([3], "m8[25s]")),
    "strings": saved(np.array([["a", "bé"]])),
    "byte strings": saved(np.array([b"a", b"bcd"])),
    "bytes without type": saved(np.array([b"abc"], "V3")),
    "complex numbers": saved(np.array([1 + 2j])),
    "booleans": saved(np.array([True, False])),
    "big-endian floats": saved(np.array([1.5, -2], ">f4")),
    "big-endian integers": saved(np.array([1 << 40, -2], ">i8")),
    "big-endian complex numbers": saved(np.array([1 + 2j, -3j], ">c16")),
    "big-endian strings": saved(np.array(["a", "bé"], ">U2")),
    "big-endian dates": saved(np.array(["2026-11-22"], ">M8[D]")),
    "big-endian, in Fortran order": saved(np.asfortranarray(SQUARE.astype(">i4"))),
    "long doubles": saved(np.array([1.5], np.longdouble)),
}

_NESTED = 9_000

REFUSED = {
    "nothing": Refusal(b"", "truncated", ""),
    "another magic": Refusal(b"\x92" + file()[1:], "invalid-header", "npy file"),
    "version 4.0": Refusal(file(version=(4, 0)), "invalid-header", "version"),
    "version 1.1": Refusal(file(version=(1, 1)), "invalid-header", "version"),
    "a pickle": Refusal(b"\x80\x04K\x01." + bytes(20), "invalid-header", ""),
    "an archive": Refusal(archived(a=SQUARE), "invalid-header", ""),
    "a long header": Refusal(file(USUAL + " " * 10_000), "invalid-header-length", "10000 are allowed"),
    "2^32 - 1 bytes": Refusal(file(version=(2, 0), length=(1 << 32) - 1), "invalid-header-length", ""),
    "no dict": Refusal(file("[1]"), "invalid-header", "dict"),
    "no text": Refusal(file(""), "invalid-header", "dict"),
    "text behind": Refusal(file(USUAL + "x"), "invalid-header", "dict"),
    "a zero behind": Refusal(file(USUAL + "\0"), "invalid-header", "dict"),
    "a member missing": Refusal(file("{'descr': '<i2', 'shape': (2,)}"), "invalid-header", "dict"),
    "a member too many": Refusal(changed(x="1"), "invalid-header", "dict"),
    "a member twice": Refusal(file(USUAL.replace("}", "'shape': (2,)}")), "duplicate-key", "shape"),
    "no comma": Refusal(file(USUAL.replace("',", "'")), "invalid-header", "dict"),
    "two commas": Refusal(file(USUAL.replace("',", "',,")), "invalid-header", "dict"),
    "a string that does not end": Refusal(changed(descr="'<i2"), "invalid-header", ""),
    "two kinds of quotes": Refusal(changed(descr="'<i2\""), "invalid-header", ""),
    "an escape": Refusal(changed(descr=r"'\x3ci2'"), "invalid-header", ""),
    "a call": Refusal(changed(descr="print()"), "invalid-header", ""),
    "an order that is a number": Refusal(changed(fortran_order="0"), "invalid-header", ""),
    "an order that is a string": Refusal(changed(fortran_order="'C'"), "invalid-header", "dict"),
    "a shape that is true": Refusal(changed(shape="True"), "invalid-header", "dict"),
    "a shape that is a list": Refusal(changed(shape="[2]"), "invalid-header", ""),
    "a shape that is a number": Refusal(changed(shape="(2)"), "invalid-shape", "tuple"),
    "a shape with a space for a number": Refusal(changed(shape="( 2 )"), "invalid-shape", "tuple"),
    "a lonely comma": Refusal(changed(shape="(,)"), "invalid-shape", "tuple"),
    "a size below zero": Refusal(changed(shape="(-1,)"), "invalid-shape", ""),
    "a size that is a float": Refusal(changed(shape="(2.0,)"), "invalid-shape", ""),
    "a size with a zero in front": Refusal(changed(shape="(02,)"), "invalid-shape", ""),
    "a long size": Refusal(changed(shape="(2L,)"), "invalid-shape", ""),
    "an underline": Refusal(changed(shape="(1_0,)"), "invalid-shape", ""),
    "2^63 elements": Refusal(changed(shape=f"({1 << 63},)"), "limit-exceeded", "elements"),
    "an overflow": Refusal(changed(shape=f"({1 << 62}, {1 << 62})"), "limit-exceeded", "elements"),
    "an overflow without elements": Refusal(changed(shape=f"(0, {1 << 62}, {1 << 62})"), "limit-exceeded", "elements"),
    "65 dimensions": Refusal(changed(shape=f"({'1,' * 65})"), "limit-exceeded", "dimensions"),
    "objects": Refusal(saved(np.array([None])), "unknown-datatype", "objects"),
    "a structure": Refusal(saved(np.zeros(2, "i2,f4")), "unknown-datatype", "structures"),
    "a big-endian structure": Refusal(saved(np.zeros(2, ">i2,>f4")), "unknown-datatype", "structures"),
    "the machine's order": Refusal(changed(descr="'=i2'"), "unknown-datatype", "'=i2'"),
    "no order": Refusal(changed(descr="'i2'"), "unknown-datatype", "'i2'"),
    "a name": Refusal(changed(descr="'int16'"), "unknown-datatype", "'int16'"),
    "no dtype": Refusal(changed(descr="'<i3'"), "unknown-datatype", "'<i3'"),
    "no bytes": Refusal(changed(descr="'|S0'"), "unknown-datatype", "'|S0'"),
    "no such unit": Refusal(changed(descr="'<M8[x]'"), "unknown-datatype", ""),
    "several at once": Refusal(changed(descr="'<i2,<i2'"), "unknown-datatype", ""),
    "letters": Refusal(changed(descr="'<é2'"), "unknown-datatype", ""),
    "parentheses": Refusal(file("(" * _NESTED + ")" * _NESTED, version=(2, 0)), "invalid-header-length", ""),
    "nesting": Refusal(file("[" * _NESTED), "invalid-header", ""),
    "nesting in the shape": Refusal(changed(shape="(" * _NESTED), "invalid-header", ""),
    "minus signs": Refusal(changed(shape="(" + "-" * _NESTED + "1,)"), "invalid-shape", ""),
    "spaces in the shape": Refusal(changed(shape="(" + " " * _NESTED + "x)"), "invalid-shape", ""),
    "a boolean of 2": Refusal(changed(b"\1\2", descr="'|b1'"), "invalid-bool", ""),
    "a byte missing": Refusal(file(data=DATA[:-1]), "truncated", "1 byte too early"),
}

STRICTER = {
    "a size with a zero in front",
    "the machine's order",
    "no order",
    "a name",
    "a big-endian structure",
    "an escape",
    "a structure",
    "a boolean of 2",
    "a member twice",
    "65 dimensions",
    "an underline",
    "a long size",
    "no bytes",
}
"""Files that numpy may load, and we do not."""
