"""Reading archives: against numpy, wrong by one field, cut everywhere."""

from __future__ import annotations

import struct
import zipfile
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from streamcodec import Discard, LimitExceededError, Limits, LocalProtocolError, RemoteProtocolError, chosen
from streamcodec.formats import npy
from streamcodec.testing import assert_split_invariant, assert_stops_at_end, chunkings
from tests.formats.npy.files import SQUARE, archived, file, loaded, read_archive, saved, zipped

TWO = {"a.npy": saved(SQUARE), "b.npy": saved(np.array(5))}
ACCEPTED: dict[str, bytes] = {
    "as numpy writes it": archived(a=SQUARE, b=np.asfortranarray(SQUARE)),
    "nothing in it": archived(),
    "short fields": zipped(TWO),
    "letters": zipped({"é.npy": saved(SQUARE)}),
}


def member(name: bytes = b"a.npy", data: bytes = b"", **changes: Any) -> bytes:  # noqa: ANN401 - numbers, and bytes
    """A local header, and data."""
    data = data or saved(SQUARE)
    fields = {"version": 20, "flags": 0, "method": 0, "time": 0, "date": 33, "crc": crc32(data)}
    fields |= {"packed": len(data), "size": len(data), "name": len(name), "extra": len(changes.get("extra_data", b""))}
    extra: bytes = changes.pop("extra_data", b"")
    return b"PK\3\4" + struct.pack("<5H3I2H", *(fields | changes).values()) + name + extra + data


def central(name: bytes = b"a.npy", data: bytes = b"", offset: int = 0, **changes: Any) -> bytes:  # noqa: ANN401 - as above
    """An entry of the directory."""
    data = data or saved(SQUARE)
    extra: bytes = changes.pop("extra_data", b"")
    comment: bytes = changes.pop("comment_data", b"")
    fields = {"made": 20, "version": 20, "flags": 0, "method": 0, "time": 0, "date": 33, "crc": crc32(data)}
    fields |= {"packed": len(data), "size": len(data), "name": len(name), "extra": len(extra), "comment": len(comment)}
    fields |= {"disk": 0, "internal": 0, "external": 0, "offset": offset}
    return b"PK\1\2" + struct.pack("<6H3I5H2I", *(fields | changes).values()) + name + extra + comment


def end(entries: int, nbytes: int, start: int, **changes: int) -> bytes:
    """The last record."""
    fields = {"disk": 0, "first": 0, "count": entries, "all": entries, "size": nbytes, "offset": start, "comment": 0}
    return b"PK\5\6" + struct.pack("<4H2IH", *(fields | changes).values())


def archive(local: bytes | None = None, entry: bytes | None = None, last: bytes | None = None, **changes: int) -> bytes:
    """An archive of one member, with other records than usual."""
    local = member() if local is None else local
    entry = central() if entry is None else entry
    return local + entry + (end(1, len(entry), len(local), **changes) if last is None else last)


LONG = (1 << 32) - 1
NBYTES = len(saved(SQUARE))
SIZES = struct.pack("<2H2Q", 1, 16, NBYTES, NBYTES)
OTHER = struct.pack("<2H3s", 7, 3, b"abc")
ACCEPTED["an extra field"] = archive(
    member(extra_data=OTHER + SIZES, packed=LONG, size=LONG), central(extra_data=OTHER)
)
LARGE = struct.pack("<2H", 7, 40_000) + b"\1\0\7\0" * 10_000
ACCEPTED["a large extra field"] = archive(
    member(extra_data=LARGE + SIZES, packed=LONG, size=LONG), central(extra_data=LARGE)
)
ACCEPTED["sizes in both places, as older releases of zipfile have them"] = archive(member(extra_data=SIZES))
ACCEPTED["a long directory"] = archive(
    entry=central(extra_data=struct.pack("<2HQ", 1, 8, 0) + OTHER, offset=LONG),
)


def long_end(nbytes: int = 44, count: int = 1, *, at: int = 0, disks: int = 1, short: int = 1) -> bytes:
    """An archive with long records at its end."""
    local, entry = member(), central()
    place = len(local) + len(entry)
    records = b"PK\6\6" + struct.pack("<Q2H2I4Q", nbytes, 45, 45, 0, 0, count, count, len(entry), len(local))
    records += b"PK\6\7" + struct.pack("<IQI", 0, place + at, disks)
    numbers = (1, len(entry), len(local)) if short else (0xFFFF, LONG, LONG)
    return local + entry + records + end(*numbers)


ACCEPTED["long records at the end"] = long_end()
ACCEPTED["long records alone"] = long_end(short=0)

REFUSED = {
    "nothing": (b"", "truncated"),
    "no archive": (saved(SQUARE), "invalid-header"),
    "a compressed member": (zipped(TWO, compression=zipfile.ZIP_DEFLATED), "unsupported-encoding"),
    "an encrypted member": (archive(member(flags=1)), "unsupported-encoding"),
    "a data descriptor": (archive(member(flags=8)), "unsupported-encoding"),
    "two sizes": (archive(member(packed=NBYTES - 1)), "invalid-member"),
    "no long sizes": (archive(member(packed=LONG, size=LONG)), "invalid-member"),
    "one long size": (archive(member(packed=LONG, extra_data=SIZES)), "invalid-member"),
    "long sizes that differ from the short ones": (
        archive(member(extra_data=struct.pack("<2H2Q", 1, 16, len(saved(SQUARE)), 1))),
        "invalid-member",
    ),
    "one long size unused": (archive(member(extra_data=SIZES[:2] + b"\10\0" + SIZES[4:12])), "invalid-member"),
    "long sizes twice": (archive(member(packed=LONG, size=LONG, extra_data=SIZES * 2)), "invalid-member"),
    "long sizes cut": (archive(member(packed=LONG, size=LONG, extra_data=SIZES[:-1])), "invalid-member"),
    "2^64 - 1 bytes": (
        archive(member(packed=LONG, size=LONG, extra_data=struct.pack("<2H2Q", 1, 16, *[(1 << 64) - 1] * 2))),
        "binary-size-mismatch",
    ),
    "a size too small": (archive(member(packed=NBYTES - 1, size=NBYTES - 1)), "binary-size-mismatch"),
    "a size too large": (archive(member(packed=NBYTES + 1, size=NBYTES + 1)), "binary-size-mismatch"),
    "another checksum": (archive(member(crc=1)), "invalid-data"),
    "no npy file": (zipped({"a.txt": b"text"}), "invalid-member"),
    "a zero in a name": (archive(member(b"a\0.npy")), "invalid-member"),
    "a name that is no UTF-8": (archive(member(b"\xff.npy", flags=0x800)), "invalid-utf8"),
    "a name twice": (member() + member(), "duplicate-name"),
    "no npy file by its bytes": (zipped({"a.npy": b"another file's bytes"}), "invalid-header"),
    "a gap between": (member() + b"\0" + member(b"b.npy"), "invalid-header"),
    "another name": (archive(entry=central(b"b.npy")), "invalid-header"),
    "another offset": (archive(entry=central(offset=1)), "invalid-header"),
    "another size": (archive(entry=central(packed=NBYTES - 1, size=NBYTES - 1)), "invalid-header"),
    "two sizes in the directory": (archive(entry=central(packed=NBYTES - 1)), "invalid-header"),
    "a long size that is not there": (archive(entry=central(size=LONG)), "invalid-header"),
    "another method": (archive(entry=central(method=8)), "invalid-header"),
    "another flag": (archive(entry=central(flags=8)), "invalid-header"),
    "another disk": (archive(entry=central(disk=1)), "invalid-header"),
    "a comment on a member": (archive(entry=central(comment_data=b"x")), "invalid-header"),
    "no entry": (archive(entry=b""), "invalid-header"),
    "an entry too many": (archive(entry=central() * 2), "invalid-header"),
    "a count too large": (archive(count=2), "invalid-header"),
    "another size of the directory": (archive(size=1), "invalid-header"),
    "another place of the directory": (archive(offset=1), "invalid-header"),
    "another disk at the end": (archive(disk=1), "invalid-header"),
    "a comment": (archive(comment=1) + b"x", "invalid-header"),
    "a byte behind": (archive() + b"x", "trailing-bytes"),
    "another length of the long end": (long_end(45), "invalid-header"),
    "another count in the long end": (long_end(count=2), "invalid-header"),
    "another place of the long end": (long_end(at=1), "invalid-header"),
    "several disks": (long_end(disks=2), "invalid-header"),
    "another signature": (archive(last=b"PK\6\5" + bytes(18)), "invalid-header"),
}

SOME = partial(chunkings, at_most=30)


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_right_is_read_as_by_numpy(data: bytes) -> None:
    arrays, expected = read_archive(data), loaded(data)
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        assert (array.dtype, array.tolist()) == (expected[name].dtype, expected[name].tolist())


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused(name: str) -> None:
    data, code = REFUSED[name]
    with pytest.raises(RemoteProtocolError) as caught:
        read_archive(data)
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_member(name: str) -> None:
    if name in {"a compressed member", "another checksum", "another name"}:
        with pytest.raises(RemoteProtocolError, match=r"member 'a\.npy'"):
            read_archive(REFUSED[name][0])


def test_any_end_is_truncated() -> None:
    for data in (archived(a=SQUARE), long_end()):
        for length in range(len(data)):
            with pytest.raises(RemoteProtocolError) as caught:
                read_archive(data[:length])
            assert caught.value.code == "truncated"


def test_every_byte_changed_is_refused_or_read_as_by_numpy() -> None:
    data = archived(a=SQUARE)
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]
        try:
            arrays = read_archive(changed)
        except RemoteProtocolError:
            continue
        try:
            expected = loaded(changed)
        except NotImplementedError:  # for a version of zip files, by which nothing changes here
            continue
        assert {name: array.tolist() for name, array in arrays.items()} == {
            name: expected[name].tolist() for name in expected
        }


@pytest.mark.parametrize("data", [ACCEPTED["as numpy writes it"], *(data for data, _ in REFUSED.values())])
def test_cuts_change_nothing(data: bytes) -> None:
    assert_split_invariant(lambda: npy.Archive().decoder(), data, chunkings=SOME)


def test_cuts_of_the_directory_change_nothing() -> None:
    for data in (long_end(), archive(), archive() + b"x"):
        start = len(member())

        def make(first: bytes = data[:start]) -> Any:  # noqa: ANN401 - a decoder
            reading = npy.Archive()
            decoder = reading.decoder()
            decoder.feed(first)
            while not decoder.is_complete or decoder.next_event() is None:
                decoder.next_event()
            return reading.decoder()

        assert_split_invariant(make, data[start:])


def test_a_member_ends_where_the_next_begins() -> None:
    assert_stops_at_end(lambda: npy.Archive().decoder(), member())


def test_only_chosen_arrays() -> None:
    data = archived(a=SQUARE, b=SQUARE, c=SQUARE)
    assert list(read_archive(data, place=chosen({"b"}))) == ["b"]
    assert read_archive(data, place=lambda _: Discard()) == {}


def test_a_checksum_is_compared_of_what_nobody_wants_too() -> None:
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read_archive(archive(member(crc=1)), place=chosen(()))


def test_limits() -> None:
    data = archived(a=SQUARE, b=SQUARE)
    for limits in (Limits(max_tensors=1), Limits(max_header_bytes=150), Limits(max_tensor_bytes=20)):
        with pytest.raises(LimitExceededError):
            read_archive(data, limits=limits)
    names = zipped({f"{index:1000}.npy": saved(SQUARE) for index in range(4)})
    with pytest.raises(LimitExceededError) as caught:
        read_archive(names, limits=Limits(max_header_bytes=4_000))
    assert caught.value.limit == "max_header_bytes"


def test_one_message_after_the_other() -> None:
    reading = npy.Archive()
    reading.decoder()
    with pytest.raises(LocalProtocolError, match="one message after the other"):
        reading.decoder()


def test_nothing_more() -> None:
    reading = npy.Archive()
    decoder = reading.decoder()
    decoder.feed(archived())
    decoder.receive_eof()
    while not reading.is_complete:
        decoder.next_event()
    with pytest.raises(LocalProtocolError):
        reading.decoder()


def test_a_member_that_is_no_array() -> None:
    with pytest.raises(RemoteProtocolError, match="descr"):
        read_archive(zipped({"a.npy": file("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}")}))
