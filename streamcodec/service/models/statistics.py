"""Statistics: the counters of one model and version, in the terms of Triton's statistics extension.

Each request that has ended is counted by one call. This room has no clock: its caller, the server, gives all times.

Without batches, each request is one execution. A batch is counted with its first request, whose times are those of all:
the requests of a batch run at the same time.
"""

from __future__ import annotations

from typing import Any, Final

_NANOSECONDS: Final = 1_000_000_000
_MILLISECONDS: Final = 1_000


class ModelStatistics:
    """Counts the requests for one model and version. Only one thread at a time may use it: that of the event loop."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._successes = self._failures = self._inferences = self._executions = 0
        self._batches: dict[int, list[float]] = {}
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
        batch: int | None = None,
    ) -> None:
        """Count a request that has ended. For a failed request, Triton counts only its total time.

        Args:
            is_success: whether it was answered with the model's outputs.
            waiting: seconds of waiting for memory or a thread.
            body: seconds in which the body was received.
            model: seconds in which the model was called.
            send: seconds in which the answer was made and sent.
            ended: the current time, in seconds since 1970.
            batch_size: inferences in the request.
            batch: rows of the batch, if the request was the first one in it; 0 for others in it, None without a batch.
        """
        if not is_success:
            self._failures += 1
            self._failed += waiting + body + model + send
            return
        self._successes += 1
        self._executions += batch != 0
        if batch:
            counted = self._batches.setdefault(batch, [0, 0.0, 0.0, 0.0])
            for index, value in enumerate((1, body, model, send)):
                counted[index] += value
        self._inferences += batch_size
        self._waiting += waiting
        self._body += body
        self._model += model
        self._send += send
        self._ended = ended

    def document(self, name: str, version: str) -> dict[str, Any]:
        """Return the counters in the form of Triton's extension.

        There is no cache. `batch_stats` are those of models with a `Batch`.
        """
        successes = self._successes
        total = self._waiting + self._body + self._model + self._send
        return {
            "name": name,
            "version": version,
            "last_inference": round(self._ended * _MILLISECONDS),
            "inference_count": self._inferences,
            "execution_count": self._executions,
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
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": _span(int(count), body),
                    "compute_infer": _span(int(count), model),
                    "compute_output": _span(int(count), send),
                }
                for size, (count, body, model, send) in sorted(self._batches.items())
            ],
        }


def _span(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NANOSECONDS)}
