"""Caches: keys that were made are found only by what is made in the same way; what comes once need not be kept."""

from __future__ import annotations

from streamcodec.engine.cache import Cache, Repeated


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


def test_what_comes_again_is_worth_keeping() -> None:
    store: Repeated[bytes, int] = Repeated(4)
    assert [store.comes_again(key) for key in (b"a", b"b", b"a", b"a", b"c", b"d")] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert not store.comes_again(b"e"), "one too many: it is the first of the next four"
    assert not store.comes_again(b"a")
    assert store.get(b"a") is None


def test_of_too_many_values_the_last_is_kept() -> None:
    store: Repeated[int, str] = Repeated(2)
    for number in range(5):
        store.put(number, str(number))
    assert [store.get(number) for number in range(5)] == [None] * 4 + ["4"]
    assert len(store) == 1


class Alike(str):
    """A key whose hash is that of all others."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_keys_with_one_hash_are_not_confused() -> None:
    store: Repeated[Alike, str] = Repeated(4)
    assert [store.comes_again(Alike(key)) for key in "ab"] == [False, True]
    store.put(Alike("b"), "b")
    assert [store.get(Alike(key)) for key in "ab"] == [None, "b"]
