"""The pool: a block is returned when the last view of it is deleted, and never before."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    HeaderReceived,
    LocalProtocolError,
    OutOfMemoryError,
    Pool,
    RemoteProtocolError,
    TensorReceived,
    TensorSpec,
    request_decoder,
)
from tests.formats.v2.messages import binary, jsonic, request

Values = np.ndarray[Any, Any]
KIB = 1 << 10


def spec_of(nbytes: int, datatype: str = "UINT8") -> TensorSpec:
    kind = DATATYPES[datatype]
    return TensorSpec(name="x", datatype=kind, shape=(nbytes // kind.itemsize,), nbytes=nbytes)


def lease(pool: Pool, nbytes: int, datatype: str = "UINT8") -> Values:
    """Take memory as a decoder does; return the array."""
    (slab,) = pool.slabs(spec_of(nbytes, datatype))
    assert len(slab.buffer) == nbytes
    assert slab.array is not None
    return slab.array


def address(array: Values) -> int:
    return int(array.ctypes.data)


def small_pool(max_idle_bytes: int = 1 << 20) -> Pool:
    return Pool(max_idle_bytes=max_idle_bytes, min_bytes=KIB)


@pytest.fixture(autouse=True)
def no_collector() -> Any:  # noqa: ANN401 - a generator
    """Only what reference counting frees is freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("datatype", ["UINT8", "FP32", "FP64", "BF16", "BOOL"])
def test_arrays_of_a_pool_are_like_any_others(datatype: str) -> None:
    array = lease(small_pool(), 64 * KIB, datatype)
    assert array.dtype == DATATYPES[datatype].dtype
    assert array.ctypes.data % 64 == 0
    assert array.flags.writeable
    assert array.flags.c_contiguous
    array[:] = 1
    assert pickle.loads(pickle.dumps(array)).tobytes() == copy.copy(array).tobytes() == array.tobytes()  # noqa: S301 - our own


def test_a_block_comes_back_when_its_array_has_died_and_is_used_again() -> None:
    pool = small_pool()
    array = lease(pool, 64 * KIB)
    where = address(array)
    assert pool.idle_bytes == 0
    del array
    assert pool.idle_bytes == 64 * KIB
    again = lease(pool, 64 * KIB, "FP32")
    assert address(again) == where
    assert pool.idle_bytes == 0


def last_base(array: Any) -> Any:  # noqa: ANN401 - arrays and whatever is beneath
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


class Interface:
    """Shows an array's memory by numpy's other protocol."""

    def __init__(self, array: Values) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda array: array[3:5],
    "slice of a slice": lambda array: array[8:][::2][1:],
    "reshape": lambda array: array.reshape(-1, 64),
    "transpose": lambda array: array.reshape(-1, 64).T,
    "view": lambda array: array.view("<i4"),
    "subclass": lambda array: array.reshape(-1, 64).view(np.recarray),
    "element": lambda array: array[0:1].reshape(()),
    "memoryview": lambda array: array.data,
    "memoryview of a slice": lambda array: array[100:200].data,
    "cast memoryview": lambda array: array.data.cast("b")[5:],
    "frombuffer": lambda array: np.frombuffer(array[6:], "<u2"),
    "frombuffer of a memoryview": lambda array: np.frombuffer(array.data, np.int8)[1:],
    "asarray of the base": lambda array: np.asarray(array.base),
    "end of the bases": last_base,
    "array of the last base": lambda array: np.asarray(last_base(array)),
    "strides": lambda array: np.lib.stride_tricks.as_strided(array, (4,), (1,)),
    "ndarray over it": lambda array: np.ndarray((4,), "u1", array),
    "dlpack": np.from_dlpack,
    "pickle buffer": lambda array: pickle.PickleBuffer(array.data),
    "interface": lambda array: np.asarray(Interface(array)),
    "iterator": lambda array: array.flat,
    "broadcast": lambda array: np.broadcast_to(array, (2, len(array))),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_whatever_shows_the_memory_keeps_it(name: str) -> None:
    pool = small_pool()
    array = lease(pool, 64 * KIB)
    array[:] = 7
    kept = KEEPERS[name](array)
    del array
    assert pool.idle_bytes == 0
    other = lease(pool, 64 * KIB)
    other[:] = 9
    assert 9 not in np.asarray(kept if not isinstance(kept, np.flatiter) else kept.base)
    del kept
    assert pool.idle_bytes == 64 * KIB


def test_a_view_that_dies_in_another_thread_gives_the_block_back() -> None:
    pool = small_pool()
    box = [lease(pool, 64 * KIB)[5:]]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool.idle_bytes == 64 * KIB


def test_a_view_within_a_cycle_gives_the_block_back_when_the_cycle_is_collected() -> None:
    pool = small_pool()
    cycle: list[Any] = [lease(pool, 64 * KIB)]
    cycle.append(cycle)
    del cycle
    assert pool.idle_bytes == 0
    gc.collect()
    assert pool.idle_bytes == 64 * KIB


def test_arrays_outlive_their_pool() -> None:
    pool = small_pool()
    array = lease(pool, 64 * KIB)
    del pool
    array[:] = 7
    assert array.sum() == 7 * 64 * KIB


@pytest.mark.parametrize(("nbytes", "is_same"), [(65_536, True), (52_429, True), (52_428, False), (65_537, False)])
def test_a_block_is_used_for_what_is_at_most_a_fifth_smaller(nbytes: int, is_same: bool) -> None:
    pool = small_pool()
    array = lease(pool, 65_536)
    where = address(array)
    del array
    again = lease(pool, nbytes)
    assert (address(again) == where) is is_same
    del again
    assert pool.idle_bytes == (65_536 if is_same else 65_536 + nbytes)


def test_the_block_that_fits_best_is_taken() -> None:
    pool = small_pool()
    arrays = {nbytes: lease(pool, nbytes) for nbytes in (70 * KIB, 64 * KIB, 66 * KIB)}
    wanted = address(arrays[66 * KIB])
    arrays.clear()
    assert address(lease(pool, 65 * KIB)) == wanted


def test_small_tensors_are_no_business_of_a_pool() -> None:
    pool = small_pool()
    for nbytes in (0, 1, KIB - 1):
        lease(pool, nbytes)
    assert pool.idle_bytes == 0
    Pool(min_bytes=0).slabs(spec_of(0))
    lease(Pool(min_bytes=0), 0)
    lease(pool, KIB)
    assert pool.idle_bytes == KIB


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    pool = small_pool(200 * KIB)
    first, second, third, fourth = (lease(pool, nbytes * KIB) for nbytes in (50, 60, 70, 80))
    where = address(fourth)
    del first, second, third
    assert pool.idle_bytes == 180 * KIB
    del fourth
    assert pool.idle_bytes == 150 * KIB
    assert address(lease(pool, 80 * KIB)) == where


def test_a_block_that_is_larger_than_all_that_may_be_kept_drops_no_others() -> None:
    pool = small_pool(100 * KIB)
    small, large = lease(pool, 50 * KIB), lease(pool, 101 * KIB)
    del small
    del large
    assert pool.idle_bytes == 50 * KIB


def test_a_pool_that_keeps_nothing() -> None:
    pool = small_pool(0)
    lease(pool, 2 * KIB)
    assert pool.idle_bytes == 0


def test_a_pool_is_trimmed_from_its_oldest_blocks_on() -> None:
    pool = small_pool()
    arrays = [lease(pool, nbytes * KIB) for nbytes in (50, 60, 70)]
    where = address(arrays[-1])
    used = lease(pool, 99 * KIB)
    while arrays:
        del arrays[0]
    pool.trim(180 * KIB)
    assert pool.idle_bytes == 180 * KIB
    pool.trim(129 * KIB)
    assert pool.idle_bytes == 70 * KIB
    assert address(lease(pool, 70 * KIB)) == where
    pool.trim()
    pool.trim()
    assert pool.idle_bytes == 0
    del used
    assert pool.idle_bytes == 99 * KIB, "what was in use is none of its business"


def test_a_block_that_comes_back_when_there_is_no_memory_is_not_kept() -> None:
    pool = small_pool()
    array = lease(pool, 64 * KIB)
    shelf = pool._shelf  # noqa: SLF001 - chance would bring it about too, but not each time
    shelf._blocks = Full()  # noqa: SLF001 - the same
    del array  # nothing is raised, and nothing is written to standard error
    assert pool.idle_bytes == 0


class Full(dict[int, Any]):
    """What a shelf keeps, where nothing can be kept any more."""

    def __setitem__(self, key: int, value: object) -> None:
        raise MemoryError


@pytest.mark.parametrize("arguments", [{"max_idle_bytes": -1}, {"min_bytes": -1}])
def test_numbers_that_could_never_be_meant(arguments: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError, match="not negative"):
        Pool(**arguments)


@pytest.mark.skipif(sys.maxsize < 1 << 61, reason="with 32 bits, so much cannot even be addressed")
def test_memory_that_cannot_be_had_is_the_messages_fault() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(1 << 61,), nbytes=1 << 61)
    with pytest.raises(OutOfMemoryError, match="memory at once"):
        next(small_pool().slabs(spec))


def test_threads_that_lease_and_drop_share_no_memory_and_keep_to_the_bound() -> None:
    pool = small_pool(300 * KIB)
    failures: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        kept: list[tuple[int, Values]] = []
        for turn in range(300):
            array = lease(pool, chance.choice([64, 60, 90]) * KIB)
            mark = (seed * 300 + turn) % 251
            array[:] = mark
            kept.append((mark, array))
            if len(kept) > 3:
                mark, array = kept.pop(chance.randrange(4))
                if array.min() != mark or array.max() != mark:
                    failures.append(f"{seed} {turn}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert pool.idle_bytes <= 300 * KIB


class Contested(dict[int, Any]):
    """What a shelf keeps, while another thread is always quicker to take it."""

    def __init__(self, blocks: dict[int, Any]) -> None:
        super().__init__(blocks)
        self.taken_by_others: list[Any] = []

    def pop(self, key: int, default: Any = None) -> Any:  # noqa: ANN401 - typeshed's own
        self.taken_by_others.append(super().pop(key))
        return default


def test_a_block_that_another_thread_was_quicker_to_take_is_not_used() -> None:
    pool = small_pool(128 * KIB)
    arrays = [lease(pool, 64 * KIB) for _ in range(2)]
    addresses = set(map(address, arrays))
    arrays.clear()
    shelf = pool._shelf  # noqa: SLF001 - chance would bring it about too, but not each time
    shelf._blocks = blocks = Contested(shelf._blocks)  # noqa: SLF001 - the same
    assert address(lease(pool, 64 * KIB)) not in addresses
    assert len(blocks.taken_by_others) == 2


def test_a_block_that_another_thread_was_quicker_to_take_makes_no_room() -> None:
    pool = small_pool(128 * KIB)
    first, second = (lease(pool, size * KIB) for size in (70, 100))
    del first
    shelf = pool._shelf  # noqa: SLF001 - chance would bring it about too, but not each time
    shelf._blocks = Contested(shelf._blocks)  # noqa: SLF001 - the same
    del second
    assert pool.idle_bytes == 0  # the second one, too, was in the way then


# With a decoder


VALUES = np.arange(64 * KIB, dtype="<i4")
MESSAGE = request(binary("INT32", [64 * KIB], VALUES.nbytes), payload=VALUES.tobytes())


def test_tensors_are_received_into_the_pool() -> None:
    pool = Pool()
    addresses = set()
    for _ in range(3):
        decoder = request_decoder(
            header_length=MESSAGE.header_length, body_length=len(MESSAGE.body), place=lambda _: pool
        )
        decoder.feed(MESSAGE.body)
        assert isinstance(decoder.next_event(), HeaderReceived)
        event = decoder.next_event()
        assert isinstance(event, TensorReceived)
        np.testing.assert_array_equal(event.array, VALUES)
        addresses.add(address(event.array))
        del event, decoder
        assert pool.idle_bytes == VALUES.nbytes
    assert len(addresses) == 1


def test_tensors_of_json_have_arrays_of_their_own_that_were_filled_while_their_text_came() -> None:
    pool = small_pool()
    message = request(jsonic("INT16", [600], list(range(600))))
    decoder = request_decoder(header_length=len(message.body), body_length=None, place=lambda _: pool)
    decoder.feed(message.body)
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert event.array.tolist() == list(range(600))
    del event
    assert pool.idle_bytes == 0


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_message_that_is_given_up_leaves_the_pool_whole(is_filled: bool) -> None:
    pool = Pool()
    decoder = request_decoder(header_length=MESSAGE.header_length, body_length=None, place=lambda _: pool)
    decoder.feed(MESSAGE.body if is_filled else MESSAGE.body[:-1])
    buffer = None if is_filled else decoder.get_buffer()
    del decoder
    assert pool.idle_bytes == (VALUES.nbytes if is_filled else 0)
    del buffer
    assert pool.idle_bytes == VALUES.nbytes


def test_a_truncated_message_leaves_the_pool_whole_although_its_error_is_kept() -> None:
    pool = Pool()
    decoder = request_decoder(header_length=MESSAGE.header_length, body_length=None, place=lambda _: pool)
    decoder.feed(MESSAGE.body[:-1])
    decoder.receive_eof()
    decoder.next_event()
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_event()
    assert caught.value.offset is not None
    assert pool.idle_bytes == VALUES.nbytes


@pytest.mark.slow
def test_the_interpreter_ends_in_silence_while_arrays_are_around() -> None:
    code = """
import atexit, sys, numpy, threading
from streamcodec import DATATYPES, Pool, TensorSpec
pool = Pool(min_bytes=1)
spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(99999,), nbytes=99999)
kept = [next(pool.slabs(spec)).array for _ in range(3)]
sys.kept = kept[0][3:]
cycle = [next(pool.slabs(spec)).array]
cycle.append(cycle)
numpy.kept = next(pool.slabs(spec)).array
atexit.register(lambda array: None, next(pool.slabs(spec)).array)
threading.kept = pool
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def test_blocks_that_are_used_again_are_counted_while_they_are_in_use() -> None:
    pool = Pool(min_bytes=1)
    first = lease(pool, 100)
    assert pool.reused_bytes == 0
    del first
    again = lease(pool, 90)
    assert pool.reused_bytes == 100, "the whole block is there"
    del again
    assert pool.reused_bytes == 0


NO_MEMORY = """
import os, sys, _testcapi
from streamcodec import Pool
from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.spec import TensorSpec

spec = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(1 << 18,), nbytes=1 << 18)
pool = Pool()
list(pool.slabs(spec))
ends = set()
for number in range(120):
    if not (child := os.fork()):
        _testcapi.set_nomemory(number, number + 1)
        try:
            list(pool.slabs(spec))
        except MemoryError:
            os._exit(2)
        os._exit(0)
    ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(sorted(ends))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this interpreter has no way to let allocations fail")
def test_no_allocation_that_fails_ends_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[0, 2]"
