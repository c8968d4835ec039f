"""Metrics and traces of a server, for Prometheus and OpenTelemetry.

Both are observers, and count what the server tells them. The server's own counters stay where they are: the statistics
of models (`/v2/models/stats`), the budget of memory, the pool, the threads. They are read when somebody asks for the
metrics, so nothing is counted twice, and all answers have the same numbers.

A label must not have as many values as clients can think of, because each value takes memory for ever. So the labels
`model` and `version` have only values that the registry has. Every other request is counted without them.

Each module needs its extra: `streamcodec.metrics.prometheus` needs `prometheus`, and `streamcodec.metrics.otel` needs
`otel`. This module imports neither.
"""

__all__: list[str] = []
