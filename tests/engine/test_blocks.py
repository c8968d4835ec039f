"""Blocks: memory for bytes, with numpy and without."""

from __future__ import annotations

from streamcodec.engine.memory import blocks
from streamcodec.engine.memory.placement import uninitialised_bytes


def test_every_maker_gives_memory_to_be_written() -> None:
    for make in blocks._makers:  # noqa: SLF001 - which one is used depends on what has been imported
        block = make(5)
        block[:] = b"12345"
        assert (bytes(block), block.format, block.c_contiguous) == (b"12345", "B", True)


def test_blocks_are_those_of_numpy_once_it_is_there() -> None:
    assert type(blocks.new_block(5).obj) is type(uninitialised_bytes(5).obj)
