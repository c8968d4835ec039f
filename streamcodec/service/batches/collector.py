"""BatchCollector: which requests go together, and when. A state machine: time is an argument, and nothing is called.

Requests with the same key form a group. All groups of a model share its queue, and its places for calls at once. While
a place is free, a group is closed

- because it is *full*: no further request can be sure to find room in it;
- because it has a *preferred* number of rows;
- because of the *delay*: its oldest request has waited for `max_delay`.

Requests that have waited so long come before full groups. So no group is passed over for ever. While no place is free,
groups grow. A closed batch takes the oldest requests of its group, as many as have room.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from streamcodec.engine.record import record
from streamcodec.service.models.batching import Batch

_ItemT = TypeVar("_ItemT")

FULL: Final = "full"
PREFERRED: Final = "preferred"
DELAY: Final = "delay"


class Waiting(Generic[_ItemT]):
    """One request in the queue.

    Attributes:
        item: the request.
        rows: its rows.
        since: when it came, in seconds.
    """

    __slots__ = ("group", "item", "rows", "since")

    def __init__(self, item: _ItemT, rows: int, since: float, group: _Group[_ItemT]) -> None:
        """Keep these."""
        self.item = item
        self.rows: int = rows
        self.since: float = since
        self.group: _Group[_ItemT] = group


class _Group(Generic[_ItemT]):
    """The waiting requests of one key, the oldest first."""

    __slots__ = ("key", "most", "rows", "waiting")

    def __init__(self, key: Hashable, most: int) -> None:
        self.key = key
        self.most = most
        self.rows = 0
        self.waiting: OrderedDict[Waiting[_ItemT], None] = OrderedDict()


@record()
class Closed(Generic[_ItemT]):
    """A batch that is complete."""

    items: list[_ItemT]
    """Its requests, the oldest first."""
    rows: int
    """Of all of them."""
    reason: str
    """Why it was closed: `full`, `preferred` or `delay`."""
    waited: list[float]
    """Seconds that each request has waited."""


class BatchCollector(Generic[_ItemT]):
    """The queue of one model.

    Attributes:
        rows: that wait.
        running: calls of the model now. `take` adds one, its caller takes it away when the call has ended.
    """

    def __init__(self, batch: Batch) -> None:
        """Begin with an empty queue."""
        self._batch = batch
        self._groups: dict[Hashable, _Group[_ItemT]] = {}
        self._waiting: OrderedDict[Waiting[_ItemT], None] = OrderedDict()
        self._ripe: OrderedDict[_Group[_ItemT], None] = OrderedDict()
        self.rows: int = 0
        self.running: int = 0

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._waiting)

    @property
    def oldest(self) -> Waiting[_ItemT] | None:
        """The request that has waited for the longest time."""
        return next(iter(self._waiting), None)

    @property
    def is_ripe(self) -> bool:
        """Whether `take` returns a batch without waiting."""
        return bool(self._ripe) and self.running < self._batch.max_running

    @property
    def due(self) -> float:
        """When `take` will return a batch if no other request comes, in seconds; infinite if it will not."""
        if not self._waiting or self.running >= self._batch.max_running:
            return math.inf
        return -math.inf if self._ripe else next(iter(self._waiting)).since + self._batch.max_delay

    def put(
        self, item: _ItemT, key: Hashable, rows: int, now: float, *, most: int | None = None
    ) -> Waiting[_ItemT] | None:
        """Add a request.

        Args:
            item: the request.
            key: of its group.
            rows: that it has. One without rows counts as one row.
            now: seconds, on the clock of this queue.
            most: rows with which the group is full, if these are fewer than `max_rows`.

        Returns:
            None if the queue is full.
        """
        counted = rows or 1
        if self.rows + counted > self._batch.max_queue_rows:
            return None
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key, self._batch.max_rows)
        if most is not None:
            group.most = most
        waiting = Waiting(item, counted, now, group)
        self._waiting[waiting] = group.waiting[waiting] = None
        self._count(group, counted)
        return waiting

    def remove(self, waiting: Waiting[_ItemT]) -> bool:
        """Remove a request that does not want to wait any more; return whether it was still in the queue."""
        if waiting not in self._waiting:
            return False
        self._drop(waiting.group, [waiting])
        return True

    def take(self, now: float) -> Closed[_ItemT] | None:
        """Close a batch, if one has to be closed; its call takes one of the places."""
        if self.due > now:
            return None
        oldest = next(iter(self._waiting))
        is_late = now >= oldest.since + self._batch.max_delay
        group = oldest.group if is_late else next(iter(self._ripe))
        reason = FULL if self._is_full(group) else PREFERRED if group in self._ripe else DELAY
        taken, rows = [], 0
        for waiting in group.waiting:
            if rows + waiting.rows > self._batch.max_rows:
                break
            taken.append(waiting)
            rows += waiting.rows
        self._drop(group, taken)
        self.running += 1
        waited = [now - waiting.since for waiting in taken]
        return Closed(items=[waiting.item for waiting in taken], rows=rows, reason=reason, waited=waited)

    def _drop(self, group: _Group[_ItemT], dropped: list[Waiting[_ItemT]]) -> None:
        for waiting in dropped:
            del self._waiting[waiting], group.waiting[waiting]
        self._count(group, -sum([waiting.rows for waiting in dropped]))
        if not group.waiting:
            del self._groups[group.key]

    def _count(self, group: _Group[_ItemT], rows: int) -> None:
        self.rows += rows
        group.rows += rows
        if self._is_full(group) or group.rows in self._batch.preferred_rows:
            self._ripe[group] = None
        else:
            self._ripe.pop(group, None)

    def _is_full(self, group: _Group[_ItemT]) -> bool:
        return group.rows >= group.most
