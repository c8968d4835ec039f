"""The cache: keys that were made are found only by what is made in the same way."""

from __future__ import annotations

from streamcodec.engine.cache import Cache


def test_bytes_do_not_find_a_key_that_was_made() -> None:
    store: Cache[bytes | tuple[bytes | int, ...], str] = Cache(8, 64)
    store.put(b"a\0\0b", "received")
    store.put((b"a", 2, b"b"), "made")
    store.put((b"a\0\0b",), "left over")
    assert [store.get(key) for key in (b"a\0\0b", (b"a", 2, b"b"), (b"a\0\0b",))] == ["received", "made", "left over"]
    assert store.get(b"a\x02b") is None


def test_a_made_key_has_the_length_of_its_texts() -> None:
    store: Cache[tuple[object, ...], int] = Cache(8, 8)
    store.put((b"1234", ("56", None), b"7"), 1)
    store.put((b"1234", ("56", None), b"78"), 2)
    store.put((None,) * 9, 3)
    assert len(store) == 1
