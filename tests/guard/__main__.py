"""What the guard keeps from other servers: `python -m tests.guard`.

The probes of `streamcodec fuzz` are sent to Triton and KServe, without the guard and with it. A server that a probe
brings down is started again. The variables `STREAMCODEC_TRITON_PYTHON` and `STREAMCODEC_KSERVE_PYTHON` name the Python
of each server, as for `tests/interop/servers`; a server without one is left out.

The table counts the probes that break a rule, and what became of them: accepted silently, answered 5xx, not answered,
or the server was down or broken after them. It also gives the time of the refusals, from the connection on. What is
found with the guard is listed below. Some of it is no fault of the guard: valid requests that the server cannot answer,
and two requests that do not fit the model (`_OF_MODELS`), which the guard does not know, and which are not counted.
The exit status is 1 if a counted request has got through the guard.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streamcodec import DATATYPES
from streamcodec.blackbox.examination import Examiner, ProbeState, Result
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.learning import find_baseline
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation, Fault
from streamcodec.blackbox.wire import Pacer, Wire
from streamcodec.client.connections.address import Address
from tests.interop.servers.processes import running
from tests.processes import announced

_ROOT: Final = Path(__file__).parents[2]
_TIMEOUT: Final = 10.0
_SERVERS: Final = {
    "Triton": ("STREAMCODEC_TRITON_PYTHON", "tests.interop.servers.triton_program"),
    "KServe": ("STREAMCODEC_KSERVE_PYTHON", "tests.interop.servers.kserve_program"),
}
_RULES: Final = {Expectation.REFUSE, Expectation.REFUSE_OR_CLOSE, Expectation.ANSWER_ONCE}
_OF_MODELS: Final = {"members/input-missing", "members/input-unknown"}
_DOWN: Final = {Fault.CRASHED, Fault.BROKEN, Fault.BLOCKED}
_COLUMNS: Final = {
    "accepted": {Fault.ACCEPTED, Fault.CHANGED},
    "5xx": {Fault.SERVER_ERROR},
    "no answer": {Fault.CLOSED, Fault.HUNG, Fault.GARBLED, Fault.UNEXPLAINED, Fault.REFUSED},
    "down or broken": _DOWN,
}


@contextmanager
def _guarded(url: str, *, is_guarded: bool) -> Iterator[str]:
    """Run a guard in front of a server, or nothing; yield the URL to ask."""
    if not is_guarded:
        yield url
        return
    command = [sys.executable, "-m", "streamcodec", "guard", "--upstream", url, "--port", "0"]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield announced(process.stdout or ())
        finally:
            process.kill()


def _examiner(url: str) -> Examiner:
    address = Address.of(url)
    wire = Wire(address=(address.host, address.port), pacer=Pacer(max_requests=1_000_000, max_rate=1000.0))
    inputs = tuple(Input(name=name, datatype=DATATYPES[name], shape=(-1,)) for name in ("FP32", "BYTES", "BOOL"))
    target = Target(authority=address.authority, prefix="", model="identity", version=None, inputs=inputs)
    target, baseline = find_baseline(wire, target, _TIMEOUT)
    return Examiner(wire=wire, target=target, baseline=baseline, timeout=_TIMEOUT)


def _probes(target: Target) -> list[Probe]:
    light = [probe for probe in PROBES if not probe.is_heavy]
    heavy = [probe for probe in PROBES if probe.is_heavy]
    return [*light, *(mutation(target, name) for name in names(0, 50)), *heavy]


def _examine(python: str, program: str, *, is_guarded: bool) -> list[Result]:
    """Send all probes; start the server again when one has brought it down."""
    results: list[Result] = []
    while True:
        with (
            tempfile.TemporaryDirectory() as folder,
            running(python, program, Path(folder)) as peer,
            _guarded(peer.url, is_guarded=is_guarded) as url,
        ):
            examiner = _examiner(url)
            for result in examiner.examine(_probes(examiner.target)[len(results) :]):
                results.append(result)
                if result.finding is not None and result.finding.kind in _DOWN:
                    break
            os.killpg(peer.process.pid, signal.SIGKILL)  # a broken server may not stop by itself
            if len(results) == len(_probes(examiner.target)):
                return results


def _is_wrong(probe: Probe) -> bool:
    """Whether a probe breaks a rule."""
    return probe.expects in _RULES and probe.name not in _OF_MODELS


def _row(server: str, way: str, results: list[Result]) -> str:
    wrong = [result for result in results if _is_wrong(result.probe) and result.state is not ProbeState.NOT_APPLICABLE]
    kinds = Counter(result.finding.kind for result in wrong if result.finding is not None)
    counts = [sum(kinds[kind] for kind in column) for column in _COLUMNS.values()]
    refused = [result.seconds for result in wrong if result.finding is None]
    times = f"{statistics.median(refused) * 1e3:.1f} ms" if refused else "-"
    return f"| {server} {way} | {len(wrong)} | {' | '.join(map(str, counts))} | {times} |"


def main() -> None:
    """Examine each server in both ways."""
    print(f"| server | wrong requests | {' | '.join(_COLUMNS)} | refusal, median |")
    print(f"| --- | {'---: | ' * (len(_COLUMNS) + 2)}".rstrip())
    passed: list[str] = []
    has_failed = False
    for server, (variable, program) in _SERVERS.items():
        if (python := os.environ.get(variable)) is None:
            print(f"| {server}: {variable} is not set |")
            continue
        print(_row(server, "alone", _examine(python, program, is_guarded=False)), flush=True)
        results = _examine(python, program, is_guarded=True)
        print(_row(server, "with the guard", results), flush=True)
        for result in results:
            if result.finding is not None:
                has_failed |= _is_wrong(result.probe)
                passed.append(f"{server}, {result.probe.name}: {result.finding.kind}: {result.finding.detail}")
    print("\nWith the guard:", *(passed or ["nothing"]), sep="\n- ")
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
