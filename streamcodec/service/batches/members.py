"""Members: the requests of a batch, and where their rows are.

The rows of a block that is full lie one after the other. If a client is late, or has left, its seat is a gap. Then the
longest run of rows that has room stays where it is, and grows until it has all rows of the batch: rows that lie beside
it already belong to it, and others are moved to free rows there. One gap near the beginning of 32 rows takes one move
instead of 31 copies to new memory, so this is worth it for any number of rows. If there is no room, all are gathered.

Nothing is moved to a seat for which bytes may still come, nor in a block of which a batch has been closed before: a
thread that was given up may still read that.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from streamcodec.service.batches.blocks import Block, Seat
from streamcodec.service.batches.keys import key_of
from streamcodec.service.models.batching import BatchPlace
from streamcodec.service.models.model import InferenceRequest, Outputs


class Failed:
    """What a call has raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        """Keep the exception."""
        self.error: BaseException = error


class Member:
    """One request that is a part of a batch.

    Attributes:
        request: with all of its arrays.
        rows: of each of its inputs.
        outcome: its own outputs, or what was raised for it; None before.
        has_begun: whether the model has been called with it.
        has_left: whether nobody wants its outputs any more.
        is_watched: whether somebody wants to know its place.
        place: in its batch, if it is watched; None before it is in one.
        seat: in a block; None if its rows came to memory of their own.
        block: where its rows are, or will be when it is moved; None if they are elsewhere.
        start: index of the first of them there.
        key: what agrees for requests that go together.
    """

    __slots__ = (
        "_moves_to",
        "block",
        "has_begun",
        "has_left",
        "is_watched",
        "key",
        "outcome",
        "place",
        "request",
        "rows",
        "seat",
        "start",
    )

    def __init__(self, request: InferenceRequest, seat: Seat | None = None, key: Hashable = None) -> None:
        """Begin before the call; without a key, it is found in the header of the request."""
        self.request = request
        self.seat: Seat | None = seat
        self.block: Block | None = None
        self.start: int = -1
        if seat is not None:
            self.block, self.start = seat.block, seat.start
        self._moves_to: Block | None = None
        self.key: Hashable = key_of(request.header, request.model_version) if key is None else key
        self.rows: int = request.header.tensors[0].shape[0]
        self.outcome: Outputs | Failed | None = None
        self.has_begun: bool = False
        self.has_left: bool = False
        self.is_watched: bool = False
        self.place: BatchPlace | None = None

    def move_to(self, block: Block, start: int) -> None:
        """Give it other rows, to which `move` copies its own: not on the event loop, because that takes time."""
        block.use(start, start + self.rows)
        self.block = self._moves_to = block
        self.start = start

    def move(self) -> None:
        """Copy its rows to where they have to be, unless they are there."""
        block, self._moves_to = self._moves_to, None
        if block is not None:
            block.write(self.start, self.request.inputs)


_MemberT = TypeVar("_MemberT", bound=Member)

_start_of: Final = attrgetter("start")


def group_of(member: Member) -> tuple[Hashable, int | None]:
    """Return the group of a request, and the most rows that it can have if the memory of its block is the limit."""
    key, seat = member.key, member.seat
    return (key, None) if seat is None or not seat.block.is_whole else ((key, id(seat.block)), seat.block.most)


def block_of(members: Sequence[Member]) -> Block | None:
    """Return the block in which the rows of several requests lie one after the other; None if there is none."""
    first = members[0]
    if first.block is None or len(members) == 1:
        return None
    start = first.start
    for member in members:
        if member.block is not first.block or member.start != start:
            return None
        start += member.rows
    return first.block


def arranged(members: Sequence[_MemberT]) -> list[_MemberT]:
    """Return the requests of a batch in the order of their rows. Nobody else gets a seat in their blocks.

    Rows that have to be moved are moved later; see `Member.move`.
    """
    ordered = sorted(members, key=_start_of)
    if (block := block_of(ordered)) is not None:
        block.close()
        return ordered
    was_whole = {member.block: member.block.is_whole for member in members if member.block is not None}
    for block in was_whole:
        block.close()
    for block, run in sorted(_runs(ordered), key=lambda found: -sum([member.rows for member in found[1]])):
        stay = {*run}
        moves = _moves(block, run, [member for member in ordered if member not in stay]) if was_whole[block] else None
        if moves is not None:
            for member, start in moves:
                member.move_to(block, start)
            return sorted(ordered, key=_start_of)
    return ordered


def _runs(members: Sequence[_MemberT]) -> list[tuple[Block, list[_MemberT]]]:
    """Return the requests of each block whose rows follow each other."""
    runs: list[tuple[Block, list[_MemberT]]] = []
    end = -1
    for member in sorted(members, key=lambda member: id(member.block)):
        if member.block is None:
            continue
        if runs and member.block is runs[-1][0] and member.start == end:
            runs[-1][1].append(member)
        else:
            runs.append((member.block, [member]))
        end = member.start + member.rows
    return runs


def _moves(block: Block, run: Sequence[_MemberT], others: Sequence[_MemberT]) -> list[tuple[_MemberT, int]] | None:
    """Return where some requests have to be moved, so that all of them lie beside a run; None if there is no room.

    The farthest are moved first, because those between them and the run may come to lie beside it.
    """
    start, end = run[0].start, run[-1].start + run[-1].rows
    left, moves = [*others], []
    while left:
        beside = next((m for m in left if m.block is block and (m.start == end or m.start + m.rows == start)), None)
        if beside is not None:
            left.remove(beside)
            start, end = min(start, beside.start), max(end, beside.start + beside.rows)
        elif block.has_free(start - left[0].rows, start):
            member = left.pop(0)
            start -= member.rows
            moves.append((member, start))
        elif block.has_free(end, end + left[-1].rows):
            member = left.pop()
            moves.append((member, end))
            end += member.rows
        else:
            return None
    return moves
