"""What a request costs the server: CPU time with TLS, with the default model, and with the access log.

A tensor is sent to a model that answers its size, over several kept connections at once: 8 for 600 KB, 4 for 64 MiB.
*Bare* is an inline model, without TLS and without an access log. Each of the others adds one thing to that, and the
last one adds all. *Default model* is the same function as most users write it, which may run in a thread. The log goes
to the null device. TLS is 1.3; a round has as many handshakes as connections.

Each way is a server of its own. All run at the same time and are asked by turns. CPU is that of the server's process,
by its requests. The arithmetic of [scaling](../scaling.md#the-arithmetic) counts with these figures.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import trustme

from tests.benchmarks import alone, load
from tests.benchmarks.figures import MIB, Figures, Options, Scenario
from tests.benchmarks.measure import in_turn, ratios
from tests.benchmarks.peers import ACCESS_LOG, Peers, Running
from tests.ray import clients

CPU: Final = "CPU per request"
BARE: Final = "bare"
WAYS: Final = (BARE, "TLS", "default model", "access log", "all three")
SIZES: Final = {"600 KB": 600_000, "64 MiB": 64 * MIB}
CONNECTIONS: Final = {"600 KB": 8, "64 MiB": 4}
_SECONDS: Final = 1.5


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    with ExitStack() as stack:
        servers = {way: stack.enter_context(_serving(options.peers, options.work, way)) for way in WAYS}
        for case in SIZES:
            variants = {way: partial(_cpu_of_a_request, server, way, case) for way, server in servers.items()}
            _report(found, case, in_turn(variants, options.choose(9, 2)))
    return found


def _report(found: Figures, case: str, taken: dict[str, list[float]]) -> None:
    for way, values in taken.items():
        found.add(case, CPU, way, "s", values)
    for way, values in taken.items():
        if way != BARE:
            found.add(case, f"{CPU}, ratio", f"{way} / {BARE}", "ratio", ratios(values, taken[BARE]))


@contextmanager
def _serving(peers: Peers, work: Path, way: str) -> Iterator[Running]:
    has_all = way == "all three"
    words = [ACCESS_LOG] if has_all or way == "access log" else []
    context = None
    if has_all or way == "TLS":
        authority = trustme.CA()
        file = work / f"{way}.pem"
        file.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
        words += ["--ssl-certfile", str(file), "--ssl-keyfile", str(file)]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(context)
    with peers.fresh_ours(*words) as server:
        yield replace(server, context=context)


def _cpu_of_a_request(server: Running, way: str, case: str) -> float:
    """Ask for a while over all connections; return the seconds of CPU of one request."""
    model = "default_sink" if way in {"default model", "all three"} else "sink"
    request = clients.request_to(server, model, load.message_for(SIZES[case]))
    cpu = server.cpu()
    with clients.hammering(server, request, CONNECTIONS[case]) as outcome:
        time.sleep(_SECONDS)
    if outcome.failed:
        raise RuntimeError(outcome.failed)
    return (server.cpu() - cpu) / len(outcome.seconds)


SCENARIO = Scenario(
    title="What a request costs the server",
    about=__doc__,
    run=run,
    served="inline without an access log, but where it says otherwise",
    is_wide=True,
)

if __name__ == "__main__":
    alone.main(SCENARIO)
