"""Quickness: whether a model's function may run on an event loop, by what its calls so far have taken. Without a clock.

A thread costs more than a function that only looks at its inputs. So a function that was quick so many times in a row,
in threads, runs on the event loop. How long it takes may depend on anything that a client sends. So the judgement can
be wrong, and must not cost the other clients much:

- Quick calls vouch for requests of about their size, and for no larger ones.
- A call that has waited for anything is not quick, however short the wait was: the next wait may have no end.
- A call that holds up the event loop ends all of this for some time: a thousand times as long as the call has taken,
  and at least twice as long as the time before. So whoever knows how to make a quick function slow gets hold of the
  event loop for a thousandth of the time, and of ever less.

Nothing can stop a call on the event loop. So a function that a client can make run for any time, or that may wait for
ever, has to say so (`Model.is_inline=False`): its first slow call would be the last one.
"""

from __future__ import annotations

import math
from typing import Final

_QUICK_SECONDS: Final = 0.0005
"""A call that takes no longer may run on an event loop: it takes as long as some small requests."""

STALL_SECONDS: Final = 0.002
"""A call on the event loop that takes longer has held it up."""

_LEAST_CALLS: Final = 16
"""Quick calls in a row, in threads, before the next one runs on an event loop."""

_PAUSE_FACTOR: Final = 1000
_LEAST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 3600.0
"""Seconds in threads after a call that has held up the event loop."""

_FORGIVEN_AFTER: Final = 10
"""Times the last pause: after so long without another such call, its length does not count any more."""


class Quickness:
    """The judgement of one model. Any thread may use it."""

    def __init__(self) -> None:
        """Begin with a model that is not known."""
        self._calls: dict[int, int] = {}
        """Quick calls in a row, by size. Replaced at a stall: what a thread still adds to the old one is lost."""
        self._pause = 0.0
        self._end_of_pause = -math.inf

    def may_run_inline(self, nbytes: int) -> bool:
        """Return whether the next call may run on an event loop.

        Args:
            nbytes: size of the request's body.
        """
        return self._calls.get(nbytes.bit_length(), 0) >= _LEAST_CALLS

    def ran_in_thread(self, nbytes: int, seconds: float, now: float, *, has_waited: bool) -> None:
        """Take the time of a call in a thread, with its reply.

        Args:
            nbytes: size of the request's body.
            seconds: that it took.
            now: seconds, on any clock.
            has_waited: whether the thread has waited meanwhile: for a lock, a file, the network or other threads.
        """
        calls, size = self._calls, nbytes.bit_length()
        if has_waited or seconds > _QUICK_SECONDS:
            calls[size] = 0
        elif now >= self._end_of_pause:
            calls[size] = calls.get(size, 0) + 1

    def has_stalled(self, seconds: float, now: float) -> None:
        """Report that a call has failed on an event loop, or held it up for so many seconds."""
        if now - self._end_of_pause > _FORGIVEN_AFTER * self._pause:
            self._pause = 0.0
        self._pause = min(max(_LEAST_PAUSE, _PAUSE_FACTOR * seconds, 2 * self._pause), _LONGEST_PAUSE)
        self._end_of_pause = now + self._pause
        self._calls = {}
