"""The soak of the server, with a guard in front of it: good, bad, slow, cut and huge requests at once.

The clients are those of `tests.soak`. They hold every answer against what it must be. Here also every request is looked
at that reaches the server behind: none of them may break a rule of HTTP or of the message.
`STREAMCODEC_SOAK_SECONDS` says for how long; 2 s otherwise.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack

import pytest

from streamcodec import Limits
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.errors import ErrorCode
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.rules.allowing import BodyCheck
from streamcodec.guard.rules.gate import Gate
from streamcodec.http import RequestHead
from streamcodec.server import ServerOptions
from streamcodec.service import RequestRecord, Service
from streamcodec.service.observing import Observer
from tests.guard.serving import guarding
from tests.server.programs import server_here
from tests.soak.health import HealthChecks
from tests.soak.models import models
from tests.soak.processes import client_process
from tests.soak.program import MAX_MESSAGE_BYTES
from tests.soak.soaking import SERVER_OPTIONS

SECONDS = float(os.environ.get("STREAMCODEC_SOAK_SECONDS", "0")) or 2.0
CONNECTIONS = 24
LARGEST_BYTES = 4 << 20

_OF_MODELS = {ErrorCode.NOT_FOUND, ErrorCode.METHOD_NOT_ALLOWED, ErrorCode.MODEL_MISMATCH, ErrorCode.NOT_OFFERED}
"""The guard does not know the models."""
_ENDED_EARLY = {ErrorCode.TRUNCATED, ErrorCode.CONNECTION_CLOSED}
"""The guard has ended a request whose tensors were wrong, or whose client has left."""

_OTHER_STATUS = "[400], not 404"
"""The same holds for the order of checks: a request that breaks a rule is refused for that. And a path with dot
segments is none."""


class _Behind(Observer):
    """Counts what comes to the server behind."""

    def __init__(self) -> None:
        self.codes: Counter[ErrorCode | None] = Counter()
        self.wrong: list[str] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.codes[request.code] += 1
        is_allowed = request.code in {None, *_OF_MODELS, *_ENDED_EARLY}
        if not is_allowed and (request.head is None or _is_checked(request.head)):
            self.wrong.append(f"{request.code}: {request.method} {request.target} {request.raw_head!r}")


def _is_checked(head: RequestHead) -> bool:
    """Whether the guard looks at the body: of an inference that is not raw."""
    return Gate(allowed=["all"]).judge(head).check is BodyCheck.MESSAGE and header_length_of(head.fields) != 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["uvloop", "trio"])
def test_a_guard_under_everything_at_once_keeps_its_promises(backend: str) -> None:
    behind = _Behind()
    service = Service(models(), limits=Limits(max_message_bytes=MAX_MESSAGE_BYTES))
    limits = replaced(GUARD_LIMITS, max_message_bytes=MAX_MESSAGE_BYTES)
    patient = Timeout(connect=10, read=30, write=30, pool=30)
    with ExitStack() as stack:
        _, (host, port) = stack.enter_context(server_here(service, backend="uvloop", observer=behind))
        guard = stack.enter_context(
            guarding(
                f"http://{host}:{port}",
                options=ServerOptions(**SERVER_OPTIONS),  # type: ignore[arg-type]  # all are numbers
                limits=limits,
                timeout=patient,
                backend=backend,
                allowed=["all"],
            )
        )
        clients = [
            stack.enter_context(client_process(guard, number * CONNECTIONS // 2, CONNECTIONS // 2, LARGEST_BYTES))
            for number in range(2)
        ]
        with HealthChecks(guard) as health:
            for client in clients:
                client.order({"seed": "guard", "seconds": SECONDS, "pause": 0.02, "without": ["headerless"]})
            reports = [client.report() for client in clients]
    counts: Counter[str] = sum((Counter(report["counts"]) for report in reports), Counter())
    assert not behind.wrong, behind.wrong[:5]
    assert not [text for report in reports for text in report["broken"] if not text.endswith(_OTHER_STATUS)]
    assert not health.failures
    assert sum(count for name, count in counts.items() if name.startswith("good ")) > CONNECTIONS
    assert counts["bad: refused"] > 0
    assert behind.codes[None] > CONNECTIONS
