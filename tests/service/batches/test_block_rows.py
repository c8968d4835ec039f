"""Rows of blocks: which are used, which are free, what they take, and that a model that answers keeps its blocks."""

from __future__ import annotations

import pytest

from streamcodec.service.batches.blocks import Block, Seat
from streamcodec.service.memory.budget import Reservation
from tests.service.batches.test_batch_blocks import Room

WIDTH = 16 << 10
"""Values of a row that is worth a seat: 64 KiB."""

ROW_BYTES = 4 * WIDTH


def _seats(room: Room, *rows: int) -> list[Seat]:
    found = [room.seat(count, WIDTH) for count in rows]
    return [seat for seat in found if seat is not None]


def _free(block: Block) -> list[int]:
    return [row for row in range(4) if block.has_free(row, row + 1)]


def test_the_rows_of_a_request_that_has_left_are_free_and_no_others() -> None:
    seats = _seats(Room(1 << 24), 1, 1, 1)
    block = seats[0].block
    assert _free(block) == [3]
    seats[1].leave()
    assert _free(block) == [1, 3]


def test_rows_that_are_taken_of_a_closed_block_are_used() -> None:
    [seat, _] = _seats(Room(1 << 24), 1, 1)
    block = seat.block
    block.close()
    assert (block.most, _free(block)) == (2, [2, 3])
    block.use(3, 4)
    assert (block.most, _free(block)) == (4, [2])
    block.use(2, 3)
    assert (block.most, _free(block)) == (4, [])


@pytest.mark.parametrize("rows", [(1,), (2, 1)])
def test_a_block_that_others_wait_for_keeps_the_bytes_of_its_seats(rows: tuple[int, ...]) -> None:
    room = Room(8 * 4 * ROW_BYTES)
    seats = _seats(room, *rows)
    other = Reservation(room.budget)
    assert not other.ask(room.budget.max_bytes - sum(rows) * ROW_BYTES)
    for now in (0.0, 2.0):
        room.budget.look(now)
    assert not other.missing
    assert room.budget.reserved == room.budget.max_bytes
    other.release()
    assert room.budget.reserved == sum(rows) * ROW_BYTES
    del seats
