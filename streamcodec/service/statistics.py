"""Statistics: what has been counted of one model and version, in the words of Triton's statistics extension.

Counting is one call for each request that has ended. It knows no clock: how long what has taken, and what time it is,
is told by the caller, which is the server.
"""

from __future__ import annotations

from typing import Any, Final

_NANOSECONDS: Final = 1_000_000_000
_MILLISECONDS: Final = 1_000


class ModelStatistics:
    """Counts the requests of one model and version, for one thread at a time: that of the event loop."""

    __slots__ = ("_body", "_ended", "_failed", "_failures", "_inferences", "_model", "_send", "_successes", "_waiting")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._successes = self._failures = self._inferences = 0
        self._waiting = self._body = self._model = self._send = self._failed = self._ended = 0.0

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
        if not is_success:
            self._failures += 1
            self._failed += waiting + body + model + send
            return
        self._successes += 1
        self._inferences += batch_size
        self._waiting += waiting
        self._body += body
        self._model += model
        self._send += send
        self._ended = ended

    def document(self, name: str, version: str) -> dict[str, Any]:
        """Return what has been counted, as Triton's extension writes it.

        One request is one execution, since requests are not joined to batches here. There is no cache, and nothing is
        counted by the size of a batch.
        """
        successes = self._successes
        total = self._waiting + self._body + self._model + self._send
        return {
            "name": name,
            "version": version,
            "last_inference": round(self._ended * _MILLISECONDS),
            "inference_count": self._inferences,
            "execution_count": successes,
            "inference_stats": {
                "success": _span(successes, total),
                "fail": _span(self._failures, self._failed),
                "queue": _span(successes, self._waiting),
                "compute_input": _span(successes, self._body),
                "compute_infer": _span(successes, self._model),
                "compute_output": _span(successes, self._send),
                "cache_hit": _span(0, 0.0),
                "cache_miss": _span(0, 0.0),
            },
            "batch_stats": [],
        }


def _span(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NANOSECONDS)}
