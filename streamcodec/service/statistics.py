"""Statistics: what has been counted of one model and version, in the words of Triton's statistics extension.

Counting is one call for each request that has ended. It knows no clock: how long what has taken, and what time it is,
is told by the caller, which is the server.
"""

from __future__ import annotations

from typing import Any, Final

_SPANS: Final = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
_NANOSECONDS: Final = 1_000_000_000
_MILLISECONDS: Final = 1_000


class ModelStatistics:
    """Counts the requests of one model and version, for one thread at a time: that of the event loop."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._counts = dict.fromkeys(_SPANS, 0)
        self._seconds = dict.fromkeys(_SPANS, 0.0)
        self._inferences = 0
        self._last = 0.0

    def count(
        self,
        *,
        is_success: bool,
        waiting: float,
        body: float,
        model: float,
        send: float,
        ended: float,
        batch_size: int = 1,
    ) -> None:
        """Count a request that has ended. Of one that failed, Triton counts no more than how long it took in all.

        Args:
            is_success: whether it was answered with the model's outputs.
            waiting: seconds of waiting for memory or a thread.
            body: seconds in which the body was received.
            model: seconds in which the model was called.
            send: seconds in which the answer was made and sent.
            ended: seconds since 1970, of now.
            batch_size: inferences that the request has asked for.
        """
        total = waiting + body + model + send
        spans = {"success": total, "queue": waiting, "compute_input": body, "compute_infer": model}
        spans = {**spans, "compute_output": send} if is_success else {"fail": total}
        for name, seconds in spans.items():
            self._counts[name] += 1
            self._seconds[name] += seconds
        if is_success:
            self._inferences += batch_size
            self._last = ended

    def document(self, name: str, version: str) -> dict[str, Any]:
        """Return what has been counted, as Triton's extension writes it.

        One request is one execution, since requests are not joined to batches here. There is no cache, and nothing is
        counted by the size of a batch.
        """
        spans = {
            name: {"count": self._counts[name], "ns": round(self._seconds[name] * _NANOSECONDS)} for name in _SPANS
        }
        nothing = {"count": 0, "ns": 0}
        return {
            "name": name,
            "version": version,
            "last_inference": round(self._last * _MILLISECONDS),
            "inference_count": self._inferences,
            "execution_count": self._counts["success"],
            "inference_stats": {**spans, "cache_hit": nothing, "cache_miss": nothing},
            "batch_stats": [],
        }
