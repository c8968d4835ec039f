"""Rulebook, "Framing", compressed bodies: cut anywhere, damaged anywhere, bounded always."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DEFAULT_LIMITS,
    ENCODINGS,
    ErrorCode,
    Inflater,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
)
from streamcodec.engine.compression.inflate import FREE_BYTES, SHORT_INPUT_BYTES, inflate_short
from streamcodec.engine.errors import OutOfMemoryError
from tests.effort import examples

PLAIN = b'{"inputs":[]}' * 20 + bytes(range(256))
PIECE = 64 << 10


def raw_deflate(data: bytes) -> bytes:
    """The bare stream that some clients send as `deflate`."""
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("encoding", "data", "words"),
    [
        ("gzip", b"plain text", "it does not begin as its Content-Encoding does"),
        ("gzip", gzip.compress(PLAIN)[:-8] + bytes(8), "its content does not have the checksum at its end"),
        ("gzip", gzip.compress(PLAIN)[:-4] + bytes(4), "its content does not have the length at its end"),
        ("deflate", zlib.compress(PLAIN)[:-4] + bytes(4), "its content does not have the checksum at its end"),
        ("deflate", b"\x78\x9c\x07\x07\x07", "invalid block type"),
        ("deflate", b"\x78\xbb\0\0\0\1\0", "it was compressed with a dictionary of its own"),
    ],
)
def test_what_is_damaged_is_said_in_words(encoding: str, data: bytes, words: str) -> None:
    assert str(refused(encoding, [data])) == f"the compressed body is damaged: {words}"


def two_members(data: bytes) -> bytes:
    """Two gzip members, which are one body."""
    half = len(data) // 2
    return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)


FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", lambda data: gzip.compress(data, mtime=0)),
    "gzip-of-two-members": ("gzip", two_members),
    "gzip-with-empty-members": ("gzip", lambda data: gzip.compress(b"") * 2 + gzip.compress(data) + gzip.compress(b"")),
    "zlib": ("deflate", zlib.compress),
    "zlib-stored": ("deflate", lambda data: zlib.compress(data, 0)),
    "raw-deflate": ("deflate", raw_deflate),
}


def inflate(encoding: str, chunks: Iterable[bytes | bytearray | memoryview], limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Decompress a whole body."""
    inflater = Inflater(encoding, limits)
    pieces = [piece for chunk in chunks for piece in inflater.inflate(chunk)]
    inflater.finish()
    assert all(len(piece) <= PIECE for piece in pieces)
    return b"".join(pieces)


def refused(encoding: str, chunks: Iterable[bytes], limits: Limits = DEFAULT_LIMITS) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        inflate(encoding, chunks, limits)
    return caught.value


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> tuple[str, Callable[[bytes], bytes]]:
    """Each of the forms of a compressed body."""
    return FORMS[request.param]


Form = tuple[str, Callable[[bytes], bytes]]


def test_encodings() -> None:
    assert ENCODINGS == ("gzip", "deflate")


@pytest.mark.parametrize("plain", [b"", b"x", PLAIN, bytes(PIECE), bytes(PIECE + 1), bytes(3 * PIECE)], ids=len)
def test_whole(form: Form, plain: bytes) -> None:
    encoding, compress = form
    assert inflate(encoding, [compress(plain)]) == plain


def test_cut_anywhere(form: Form) -> None:
    encoding, compress = form
    data = compress(PLAIN)
    for cut in range(len(data) + 1):
        assert inflate(encoding, [data[:cut], b"", data[cut:]]) == PLAIN
    assert inflate(encoding, [data[i : i + 1] for i in range(len(data))]) == PLAIN
    assert inflate(encoding, [bytearray(data)]) == PLAIN
    assert inflate(encoding, [memoryview(data)]) == PLAIN


def test_truncated_anywhere(form: Form) -> None:
    encoding, compress = form
    data = compress(PLAIN)
    ends = {len(data)}
    if encoding == "gzip":  # a body may end after each member
        rest = data
        while rest:
            stream = zlib.decompressobj(31)
            stream.decompress(rest)
            rest = stream.unused_data
            ends.add(len(data) - len(rest))
    for length in set(range(len(data))) - ends:
        error = refused(encoding, [data[:length]])
        assert (error.code, error.status_hint) == (ErrorCode.INVALID_COMPRESSION, 400)
        assert "too early" in error.message


def test_nothing_at_all(form: Form) -> None:
    assert refused(form[0], []).code is ErrorCode.INVALID_COMPRESSION


@pytest.mark.parametrize(
    "tail", [b"\0", b"x", b"\x1f", b"\x1f\x8b", bytes(20), b"\x1f\x8b\x08" + b"\xff" * 20], ids=repr
)
def test_trailing_bytes(form: Form, tail: bytes) -> None:
    encoding, compress = form
    data = compress(PLAIN)
    for chunks in ([data + tail], [data, tail], [data, *(tail[i : i + 1] for i in range(len(tail)))]):
        error = refused(encoding, chunks)
        assert (error.code, error.status_hint) == (ErrorCode.INVALID_COMPRESSION, 400)


def test_every_damaged_byte_is_noticed_or_harmless() -> None:
    data = zlib.compress(PLAIN)
    for i in range(len(data)):
        damaged = data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]
        assert refused("deflate", [damaged]).code is ErrorCode.INVALID_COMPRESSION


@pytest.mark.parametrize(("place", "name"), [(-8, "checksum"), (-1, "length")])
def test_damaged_trailer_of_gzip(place: int, name: str) -> None:
    data = bytearray(gzip.compress(PLAIN))
    data[place] ^= 1
    error = refused("gzip", [bytes(data)])
    assert error.code is ErrorCode.INVALID_COMPRESSION
    assert "damaged" in error.message
    assert f"the {name} at its end" in error.message


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        pytest.param("gzip", PLAIN, id="plain-as-gzip"),
        pytest.param("gzip", zlib.compress(PLAIN), id="zlib-as-gzip"),
        pytest.param("deflate", gzip.compress(PLAIN), id="gzip-as-deflate"),
        pytest.param("deflate", b"\x78\xbb" + bytes(8), id="needs-a-dictionary"),
        pytest.param("deflate", b"\xff\xff\xff", id="no-block"),
    ],
)
def test_not_compressed_like_that(encoding: str, data: bytes) -> None:
    assert refused(encoding, [data]).code is ErrorCode.INVALID_COMPRESSION


def test_output_before_the_damage_comes_first_however_the_body_is_cut() -> None:
    plain = bytes(range(256)) * 1000
    data = bytearray(zlib.compress(plain))
    data[-1] ^= 1
    for chunks in ([bytes(data)], [bytes(data[i : i + 1]) for i in range(len(data))]):
        assert _up_to_the_error(chunks) == plain


def test_damage_behind_a_full_piece_when_all_input_has_been_taken() -> None:
    """One block of 64 KiB and a byte of zeros, then a distance without a code, both in the last byte of the input."""

    def number(value: int, width: int) -> str:
        return f"{value:0{width}b}"[::-1]  # numbers stand lowest bit first, codes do not

    def zeros(count: int) -> str:
        return "0" + number(count - 11, 7)

    # Codes of code lengths: 18 (zeros) is 0, 1 is 10, 2 is 11; their own lengths come in the order of RFC 1951, 3.2.7.
    order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1]
    bits = "1" + number(2, 2) + number(286 - 257, 5) + number(0, 5) + number(len(order) - 4, 4)
    bits += "".join(number({18: 1, 1: 2, 2: 2}.get(symbol, 0), 3) for symbol in order)
    # Length 258 is 0, literal 0 is 10, end of block is 11; distance 1 is 0, and 1 is no distance.
    bits += "11" + zeros(138) + zeros(117) + "11" + zeros(28) + "10" + "10"
    bits += "10" * 5 + "00" * 254 + "01"
    bits += "0" * (-len(bits) % 8)
    data = bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))
    for chunks in ([data], [data[i : i + 1] for i in range(len(data))]):
        assert _up_to_the_error(chunks) == bytes(PIECE)


def _up_to_the_error(chunks: list[bytes]) -> bytes:
    """Decompress a damaged `deflate` body; return what comes out before the error."""
    inflater = Inflater("deflate", DEFAULT_LIMITS)
    pieces: list[bytes] = []

    def consume() -> None:
        for chunk in chunks:
            pieces.extend(inflater.inflate(chunk))

    with pytest.raises(RemoteProtocolError, match="damaged"):
        consume()
    return b"".join(pieces)


# Bounds


@pytest.mark.parametrize("form", ["gzip", "zlib", "raw-deflate"], indirect=True)
def test_output_that_is_much_longer_than_a_piece_comes_whole(form: Form) -> None:
    encoding, compress = form
    plain = bytes(10 << 20)
    assert inflate(encoding, [compress(plain)], Limits(max_compression_ratio=1100)) == plain


@pytest.mark.slow
@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_output_at_the_borders_of_pieces(form: Form, size: int) -> None:
    encoding, compress = form
    plain = bytes(size)
    data = compress(plain)
    limits = Limits(max_compression_ratio=2000)
    assert inflate(encoding, [data], limits) == plain
    assert inflate(encoding, [data[i : i + 1] for i in range(len(data))], limits) == plain


@pytest.mark.parametrize("size", [20 * PIECE + 5, 40 * PIECE])
def test_ratio_at_the_limit_passes_and_beyond_it_is_refused_however_the_body_is_cut(size: int) -> None:
    plain = bytes(size)
    data = zlib.compress(plain)
    bytewise = [data[i : i + 1] for i in range(len(data))]

    def passes(ratio: int, chunks: list[bytes]) -> bool:
        try:
            return inflate("deflate", chunks, Limits(max_compression_ratio=ratio)) == plain
        except LimitExceededError as error:
            assert (error.limit, error.status_hint, error.offset) == ("max_compression_ratio", 413, None)  # noqa: PT017
            return False

    # Beyond 64 KiB, which are free; the last piece may come before it is looked at.
    exact = (len(plain) - PIECE) / len(data)
    least = next(ratio for ratio in range(1, 2000) if passes(ratio, [data]))
    assert exact * (1 - 3 * PIECE / size) <= least <= exact + 10
    assert not passes(least - 1, [data])
    assert passes(least, bytewise)
    assert not passes(least - 1, bytewise)


def test_bomb_is_stopped_with_little_memory() -> None:
    bomb = gzip.compress(bytes(100 << 20))
    inflater = Inflater("gzip", Limits(max_compression_ratio=100))
    tracemalloc.start()
    with pytest.raises(LimitExceededError):
        for _ in inflater.inflate(bomb):
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_pieces_are_made_only_as_they_are_taken() -> None:
    inflater = Inflater("gzip", DEFAULT_LIMITS)
    pieces = inflater.inflate(gzip.compress(bytes(50 << 20)))
    tracemalloc.start()
    assert len(next(pieces)) == PIECE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def outcome(encoding: str, data: bytes, cuts: Iterable[int], limits: Limits) -> tuple[bytes, str | None]:
    """What comes out, and how it ends."""
    inflater = Inflater(encoding, limits)
    plain = bytearray()
    position = 0
    try:
        for count in cuts:
            for piece in inflater.inflate(data[position : position + count]):
                plain += piece
            position += count
        inflater.finish()
    except RemoteProtocolError as error:
        return bytes(plain), str(error)
    return bytes(plain), None


@given(
    runs=st.lists(st.tuples(st.sampled_from([b"", b"a", bytes(range(256))]), st.integers(1, 300_000)), max_size=4),
    encoding=st.sampled_from(ENCODINGS),
    flips=st.lists(st.integers(0, 1 << 30), max_size=2),
    ratio=st.sampled_from([3, 100, 1032]),
    step=st.integers(1, 9000),
)
@settings(max_examples=examples(60))
def test_no_cut_changes_what_comes_out_or_the_verdict(
    runs: list[tuple[bytes, int]], encoding: str, flips: list[int], ratio: int, step: int
) -> None:
    plain = b"".join((unit * count)[:count] for unit, count in runs)
    data = bytearray(gzip.compress(plain, mtime=0) if encoding == "gzip" else zlib.compress(plain))
    for flip in flips:
        data[flip // 8 % len(data)] ^= 1 << flip % 8
    limits = Limits(max_compression_ratio=ratio)
    whole = outcome(encoding, bytes(data), [len(data)], limits)
    assert outcome(encoding, bytes(data), [1] * len(data), limits) == whole
    assert outcome(encoding, bytes(data), [step] * (len(data) // step + 1), limits) == whole


def test_an_encoding_that_is_not_understood_is_a_mistake_of_ours() -> None:
    with pytest.raises(LocalProtocolError, match="gzip or deflate, not 'br'"):
        Inflater("br", DEFAULT_LIMITS)


@pytest.mark.parametrize("length", range(1, 40))
def test_bare_deflate_that_begins_like_zlib_is_told_by_both_bytes(length: int) -> None:
    data = bytes(range(length))
    # A stored block whose padding looks like zlib's method; only one second byte of 31 would make it zlib's header.
    block = b"\x08" + length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little") + data
    if (0x0800 | length) % 31:
        assert inflate("deflate", [block + b"\x01\0\0\xff\xff"]) == data
    else:
        assert refused("deflate", [block + b"\x01\0\0\xff\xff"]).code is ErrorCode.INVALID_COMPRESSION


def test_bytes_behind_the_end_are_named() -> None:
    error = refused("deflate", [zlib.compress(PLAIN) + b"x"])
    assert str(error) == "bytes follow the end of the compressed body"
    assert str(refused("gzip", [gzip.compress(PLAIN)[:-1]])) == "the compressed body ends too early"


def test_a_lack_of_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib takes memory for its window when it needs it, and tells of what is missing as of damage."""

    class Scarce:
        eof = False

        def copy(self) -> Scarce:
            return self

        def decompress(self, *_: object) -> bytes:
            raise zlib.error("Error -4 while decompressing data")

    monkeypatch.setattr(zlib, "decompressobj", lambda _: Scarce())
    for encoding in ENCODINGS:
        with pytest.raises(OutOfMemoryError, match=r"^there is no memory to decompress the body$") as caught:
            inflate(encoding, [gzip.compress(PLAIN) if encoding == "gzip" else zlib.compress(PLAIN)])
        assert caught.value.status_hint == 503
    assert inflate_short(memoryview(gzip.compress(PLAIN))) is None


def test_a_bomb_is_told_how_often_it_may_be_its_size() -> None:
    error = refused("gzip", [gzip.compress(bytes(1 << 20))], Limits(max_compression_ratio=3))
    assert str(error) == "the body decompresses to more than 3 times its size"


def test_a_short_body_is_inflated_at_once_as_piece_by_piece() -> None:
    for count in (0, 1, 1_000, FREE_BYTES, FREE_BYTES + 1):
        data = bytes(range(256)) * (count // 256) + bytes(count % 256)
        text = gzip.compress(data)
        at_once = inflate_short(memoryview(text))
        assert at_once == (data if count <= FREE_BYTES else None)
        for end in (1, 5, 9, len(text) - 1):
            assert inflate_short(memoryview(text[:end])) is None
            assert inflate_short(memoryview(text[:end] + bytes([text[end] ^ 255]) + text[end + 1 :])) in {None, data}
        assert inflate_short(memoryview(text + b"\0")) is None
        assert inflate_short(memoryview(text + text)) is None
    wild = random.Random(0).randbytes(SHORT_INPUT_BYTES)  # noqa: S311 - not for secrets
    assert inflate_short(memoryview(gzip.compress(wild))) is None
