"""Endpoints of a user's own: `python -m tests.benchmarks.endpoints`.

FP32 that comes back as it is, binary both ways, sent by wrk over 1 and 16 connections. One endpoint is made of
`receive_request` and `send_response`. Next to it stands a naive one in the same server, which reads the whole body,
parses the JSON, looks at the tensor with `np.frombuffer`, and checks nothing.

Both run at the same time, each in a process of its own, and are asked by turns. What counts is the CPU time of the
process for a request, and the time from one answer to the next.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks import alone, requests, wrk
from tests.benchmarks.figures import Bound, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import Sample, in_turn, ratios
from tests.benchmarks.peers import Missing, Running, tool
from tests.embedding.servers import SERVERS, embedded
from tests.processes import cpu_clock

_SIZES: Final = {"64 B": 64, "4 KiB": 4 << 10, "64 KiB": 64 << 10}
_SERVERS: Final = {"ASGI": "uvicorn httptools", "WSGI": "gunicorn gthread", "aiohttp": "aiohttp plain"}
_APPS: Final = {"own endpoint": "own", "naive": "whole"}
_CONNECTIONS: Final = (1, 16)
_BOUND: Final = at_most(1.1)
_BOUNDS: Final[Mapping[tuple[str, str], Bound]] = {("ASGI", "4 KiB"): _BOUND}


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    try:
        program = tool("wrk", "wrk")
    except Missing as reason:
        found.missing.append(str(reason))
        return found
    for interface, server in _SERVERS.items():
        with ExitStack() as stack:
            running = {who: stack.enter_context(_running(server, app)) for who, app in _APPS.items()}
            for size, nbytes in _SIZES.items():
                file = wrk.write(options.work, [requests.floats(nbytes)])
                for count in _CONNECTIONS:
                    variants = {who: partial(_ask, program, each, file, count) for who, each in running.items()}
                    case = f"{interface}, {size}, {count} connection{'s'[: count > 1]}"
                    taken = in_turn(variants, options.choose(5, 2))
                    _report(found, case, taken, _BOUNDS.get((interface, size)))
    return found


def _report(found: Figures, case: str, taken: dict[str, list[Sample]], bound: Bound | None) -> None:
    own, naive = taken.values()
    for quantity, attribute in {"CPU": "cpu", "time": "wall"}.items():
        for who, samples in taken.items():
            found.add(case, quantity, who, "s", [getattr(sample, attribute) for sample in samples])
        both = ([getattr(sample, attribute) for sample in samples] for samples in (own, naive))
        found.add(case, quantity, "own endpoint / naive", "ratio", ratios(*both), bound=bound)


def _ask(program: str, server: Running, file: Path, connections: int) -> Sample:
    """Return what a request takes."""
    before = server.cpu()
    result = wrk.run(program, server, file, connections=connections, seconds=1)
    time.sleep(0.02)
    return Sample(wall=result.seconds / result.requests, cpu=(server.cpu() - before) / result.requests)


@contextmanager
def _running(server: str, app: str) -> Iterator[Running]:
    command, kind = SERVERS[server]
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(command, f"tests.embedding.measured:{app}_{kind}", Path(folder, "log")) as embedding,
    ):
        pid, (host, port) = embedding.pids[-1], embedding.address
        yield Running(name=f"{app} in {server}", version="", url=f"http://{host}:{port}", pid=pid, cpu=cpu_clock(pid))


SCENARIO = Scenario(
    title="Endpoints of one's own",
    about=__doc__,
    run=run,
    served="no model: the endpoints answer with their inputs; access log off",
    is_wide=True,
)

if __name__ == "__main__":
    alone.main(SCENARIO)
