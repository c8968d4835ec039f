"""Examination: sends the probes, one after the other, and checks the health of the server after each.

A server may answer a probe and then crash, or go on and answer other requests wrongly. So two more requests follow each
probe, each over a connection of its own: a health check, and the good request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from streamcodec.blackbox.learning import Baseline
from streamcodec.blackbox.messages import AfterSending, RawRequest
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.target import HEALTH, NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation, Fault, Finding, describe, judge
from streamcodec.blackbox.wire import OutOfRequestsError, Wire, WireOutcome, WireResult

_OK = 200
_UNWELL = {Fault.BLOCKED, Fault.CRASHED, Fault.BROKEN}
"""After one of these findings, other probes would only show the same finding again."""
_RECOVERY_PAUSE = 0.5
"""Seconds between two health checks while a server is down."""
_USED_UP = "the requests that may be sent are used up; raise --max-requests"
_NOTHING = RawRequest(pieces=())


class ProbeState(Enum):
    """The state of a probe."""

    PASSED = "passed"
    FOUND = "found"
    NOT_APPLICABLE = "not applicable"
    """It has no meaning for this model."""
    NOT_RUN = "not run"
    """There were no requests left, or no server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a probe."""

    probe: Probe
    state: ProbeState
    note: str = ""
    """What the server answered, or why the probe was not run."""
    finding: Finding | None = None
    request: RawRequest = _NOTHING
    """The request that was sent."""
    seconds: float = 0.0
    """Seconds from the connection to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examiner:
    """Sends probes to a server."""

    wire: Wire
    target: Target
    baseline: Baseline
    timeout: float = 5.0
    """Seconds that an answer may take."""
    recovery: float = 5.0
    """Seconds to wait for a server that is down or broken."""

    def examine(self, probes: Iterable[Probe]) -> Iterator[Result]:
        """Run probes in their order; each probe has a result, also if the server crashes."""
        end = ""
        for probe in probes:
            if end:
                yield Result(probe=probe, state=ProbeState.NOT_RUN, note=end)
                continue
            try:
                result = self._run(probe)
            except OutOfRequestsError:
                end = _USED_UP
                result = Result(probe=probe, state=ProbeState.NOT_RUN, note=end)
            yield result
            if result.finding is not None and result.finding.kind in _UNWELL:
                end = self._wait(probe)

    def _run(self, probe: Probe) -> Result:
        try:
            request = probe.make(self.target)
        except NotApplicableError as reason:
            return Result(probe=probe, state=ProbeState.NOT_APPLICABLE, note=str(reason))
        if probe.expects is Expectation.ACCEPT and self.baseline.may_refuse(request):
            probe = replace(probe, expects=Expectation.EITHER)
        observation = self.wire.exchange(request, self.timeout)
        expected = self.baseline.expected(request)
        finding = judge(probe.expects, observation, expected=expected, also=probe.also)
        note = _noted(observation, request)
        try:
            finding = self._aftermath(note) or finding
        except OutOfRequestsError:
            if finding is None:  # it is not known whether the server has survived it
                raise
        state = ProbeState.PASSED if finding is None else ProbeState.FOUND
        return Result(
            probe=probe, state=state, note=note, finding=finding, request=request, seconds=observation.seconds
        )

    def _aftermath(self, note: str) -> Finding | None:
        """Check the server's health and the answer to the good request; `note` describes the answer to the probe."""
        trouble = self._trouble()
        if trouble is not None:
            return Finding(kind=trouble.kind, detail=f"{note}; then health: {trouble.detail}")
        finding = self.baseline.judge(self.wire, self.timeout)
        if finding is None:
            return None
        detail = f"{note}; then a good request: {finding.kind}: {finding.detail}"
        return Finding(kind=Fault.BROKEN, detail=detail)

    def _trouble(self) -> Finding | None:
        """Return the problem with the server's health; None if there is none."""
        observation = self.wire.exchange(self.target.get(HEALTH), self.timeout)
        if observation.outcome is WireOutcome.ANSWERED:
            answer = observation.answers[0]
            return None if answer.status == _OK else Finding(kind=Fault.BROKEN, detail=describe(answer))
        kind = Fault.BLOCKED if observation.outcome is WireOutcome.SILENT else Fault.CRASHED
        return Finding(kind=kind, detail=observation.detail)

    def _wait(self, probe: Probe) -> str:
        """Wait for the server: it may be restarted. Return the reason to stop; nothing if the server is well again."""
        deadline = time.monotonic() + self.recovery
        try:
            while time.monotonic() < deadline:
                time.sleep(min(_RECOVERY_PAUSE, self.recovery))
                if self._trouble() is None and self.baseline.judge(self.wire, self.timeout) is None:
                    return ""
        except OutOfRequestsError:
            return _USED_UP
        return f"the server has not recovered from {probe.name}"


def _noted(observation: WireResult, request: RawRequest) -> str:
    """Return a short description of an answer."""
    if request.ending is AfterSending.RESETS:
        return "reset by the probe"
    said = [describe(answer) for answer in observation.answers]
    if observation.outcome is not WireOutcome.ANSWERED:
        said.append(observation.detail)
    return ", then ".join(said)
