"""JSON tensors of 16 to 1,048,576 floats, over one connection: `python -m tests.benchmarks.jsonsizes`.

The model is `identity`. The floats come as JSON, and go back in binary or as JSON. They have up to 9 digits, as FP32
that was not widened. The client is a raw socket, which throws answers away.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import numpy as np

from streamcodec import EncodedMessage, Tensor, encode_request
from tests.benchmarks import alone, load
from tests.benchmarks.beside import Rate, report
from tests.benchmarks.figures import INLINE, Figures, Options, Scenario, at_least
from tests.benchmarks.measure import in_turn
from tests.benchmarks.peers import TRITON, Running

_COUNTS: Final = (16, 256, 4_096, 65_536, 1_048_576)
_WAYS: Final = {
    "JSON in, binary out": ({"binary_data_output": True}, at_least(1)),
    "JSON in and out": (None, at_least(0.8)),
}
_BLOCK_FLOATS: Final = 1 << 17
_MOST_IN_BLOCK: Final = 200


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON], found.missing)]
    found.name(servers)
    for way, (parameters, bound) in _WAYS.items():
        for count in _COUNTS:
            values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
            message = encode_request([Tensor(name="x", array=values, is_binary=False)], parameters=parameters)
            taken = _measure(servers, message, count, rounds=options.choose(15, 4))
            report(found, f"{way}, {count:,} floats", taken, bound)
    return found


def _measure(servers: list[Running], message: EncodedMessage, count: int, *, rounds: int) -> dict[str, list[Rate]]:
    """Send blocks of requests, over one connection to each server."""
    body = b"".join(message.buffers)
    size = max(1, min(_MOST_IN_BLOCK, _BLOCK_FLOATS // count))
    with ExitStack() as stack:
        blocks = {}
        for server in servers:
            connection = stack.enter_context(closing(load.Connection(server)))
            request = load.Request(load.head_of(server, "identity", message.headers), [body])
            blocks[server.name] = partial(_block, connection, request, size)
        return in_turn(blocks, rounds)


def _block(connection: load.Connection, request: load.Request, count: int) -> Rate:
    samples = [connection.timed(request) for _ in range(count)]
    return Rate(count / sum(sample.wall for sample in samples), sum(sample.cpu for sample in samples) / count)


SCENARIO = Scenario(title="JSON tensors of all sizes", about=__doc__, run=run, served=INLINE, is_wide=True)

if __name__ == "__main__":
    alone.main(SCENARIO)
