"""Metrics of a server, for Prometheus.

An observer counts what the server tells it. The server's own counters stay where they are: the statistics
of models (`/v2/models/stats`), the budget of memory, the pool, the threads. They are read when somebody asks for the
metrics, so nothing is counted twice, and all answers have the same numbers.

A label must not have as many values as clients can think of, because each value takes memory for ever. So the labels
`model` and `version` have only values that the registry has. Every other request is counted without them.

`streamcodec.metrics.prometheus` needs the extra `prometheus`. This module does not import it.
"""

__all__: list[str] = []
