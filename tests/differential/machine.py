"""Machine: histories of requests, played against one way in, and held against what a fresh server answers.

A history is a list of steps of a few clients: they ask, cut what they send where Hypothesis wants it, ask again before
they have been answered, stop in the middle, or leave. First, a fresh server answers each request of the history, alone
and whole; what it says is kept by the exact bytes. Then the history is played against another fresh server. Each answer
has to be the same, with the state of its connection, and so has what the observer was told. At the end, a request that
needs all of the memory shows that nothing of it is kept.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from hypothesis import strategies as st

from tests.differential.client import END, GET_LIVE, Answer, Connection, ask_alone
from tests.differential.fronts import Front
from tests.differential.models import HASTY_SECONDS, MEMORY_BYTES, Events
from tests.differential.requests import LENGTH, Request, written

_CLIENTS: Final = (0, 0, 0, 1, 2)
"""One of them asks most, so that much is asked on a connection that is known."""
_OURS: Final = b'{"error":'
_SECONDS: Final = 20.0
_A_MOMENT: Final = 0.2
"""For a record that there may never be."""


_TOO_SLOW: Final = 408
_MEMORY_STEP: Final = 256


class Finding(AssertionError):  # noqa: N818 - it is what this is about
    """A difference. Each kind has a class of its own, since that is how Hypothesis tells findings apart."""


@cache
def _kind(name: str) -> type[Finding]:
    return type(name, (Finding,), {})


class SlowMachineError(Exception):
    """A client that has not stopped was too slow for a server with little time: this history says nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A client asks, some times."""

    client: int
    request: Request
    times: int = 1


@dataclass(frozen=True, slots=True)
class Cut:
    """A client sends some of the bytes that it has not sent yet, and the server sees them."""

    client: int
    size: int


@dataclass(frozen=True, slots=True)
class Read:
    """A client sends all it has to send, and takes its answers."""

    client: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A client closes its connection, wherever it is."""

    client: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A client sends a request up to somewhere in the body, and then nothing more."""

    client: int
    request: Request
    at: int

    @property
    def sent(self) -> int | None:
        """How many bytes; None for all, if there is no body."""
        count = self.request.body_bytes
        return self.request.head_bytes + min(self.at, count - 1) if count else None


Step = Ask | Cut | Read | Leave | Stop


@dataclass(frozen=True, slots=True)
class Script:
    """A history."""

    is_hasty: bool
    """Whether clients stop, and the server has little time; then nothing is cut, so that nobody else is slow."""
    is_patient: bool
    """Whether clients wait for an answer before they ask again; else a read may bring several requests."""
    steps: list[Step]


@st.composite
def scripts(draw: st.DrawFn, front: Front) -> Script:
    """Draw a history."""
    requests = draw(front.families)
    client = st.sampled_from(_CLIENTS)
    ask = st.builds(Ask, client, requests, st.sampled_from((1, 2, 2, 3)))
    is_patient = draw(st.booleans())
    if draw(st.integers(0, 7)) == 7:
        at = st.sampled_from((0, 0, 1, 50, 1 << 20))
        stops = st.builds(Stop, client, requests.filter(front.stops), at)
        return Script(True, is_patient, [*draw(st.lists(ask, max_size=4)), draw(stops)])
    size = st.integers(1, 60) | st.integers(1, 400)
    others = st.one_of(st.builds(Cut, client, size), st.builds(Read, client), st.builds(Leave, client))
    return Script(False, is_patient, draw(st.lists(st.one_of(ask, ask, ask, others), min_size=6, max_size=14)))


def _large(nbytes: int) -> Request:
    """Return a request that takes so much memory."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    text = json.dumps({"inputs": [tensor]}).encode().ljust(nbytes)
    lines = [(b"Host", b"x"), *((name, b"%d" % len(text)) for name in (LENGTH, b"Content-Length"))]
    return written(b"POST /v2/models/count/infer HTTP/1.1", lines, text)


_MARK: Final = Request(GET_LIVE, len(GET_LIVE))
"""It shows that a connection goes on, and is in step."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a fresh server does with one request."""

    answer: Answer
    is_kept: bool
    """Whether the connection goes on."""
    records: list[Events]
    """What its observer was told: of one request, or of none, if it is refused before the service is asked."""
    is_of_service: bool
    """Whether the service has answered."""


@dataclass(slots=True)
class _Client:
    connection: Connection
    unsent: bytes = b""
    due: deque[tuple[Request, Expected]] = field(default_factory=deque)


class Machine:
    """Plays histories.

    Attributes:
        count: of histories, of requests in them, and of requests that a fresh server was asked.
    """

    def __init__(self, front: Front) -> None:
        self.front = front
        self.count: Counter[str] = Counter()
        self._known: dict[tuple[bytes, int | None], Expected] = {}
        self._clients: dict[int, _Client] = {}
        self._is_patient = False
        self._told: dict[str, list[Events]] = {}
        self._largest = self._find_largest()
        self.expected(_MARK)

    def _find_largest(self) -> Request:
        """Return a request that takes all of the memory, if nobody else has any."""
        nbytes, step = 0, MEMORY_BYTES // 2
        while step >= _MEMORY_STEP:
            if self.expected(_large(nbytes + step)).answer.status == 200:
                nbytes += step
            step //= 2
        assert nbytes
        return _large(nbytes)

    def play(self, script: Script) -> None:
        """Play a history.

        Raises:
            Finding: something is not as it is with a fresh server.
        """
        self.count["histories"] += 1
        for step in script.steps:
            if isinstance(step, Ask | Stop):
                self.expected(step.request)
            if isinstance(step, Stop):
                self.expected(step.request, step.sent)
        self.front.refresh(is_hasty=script.is_hasty)
        self._is_patient = script.is_patient
        self._told = {}
        try:
            for step in script.steps:
                self._do(step, is_hasty=script.is_hasty)
            for number in list(self._clients):
                self._settle(number)
            self._check_memory(is_hasty=script.is_hasty)
            self._check_records()
        except SlowMachineError:
            self.count["given up"] += 1
        finally:
            for client in self._clients.values():
                client.connection.__exit__(None, None, None)
            self._clients.clear()

    def expected(self, request: Request, sent: int | None = None) -> Expected:
        """Return what a fresh server does with a request, or with a part of it that stops."""
        key = request.wire, sent
        if key not in self._known:
            self.count["fresh"] += 1
            found = self._alone(request, sent)
            if sent is not None and self.front.interrupts and self._known[request.wire, None].answer.status < 400:
                _check(found.answer.status == _TOO_SLOW, f"stopped: {found.answer.status}", found, request)
            self._known[key] = found
        return self._known[key]

    def _alone(self, request: Request, sent: int | None) -> Expected:
        self.front.refresh(is_hasty=sent is not None)
        with self.front.connect() as connection:
            self._send(connection, request, sent)
            answer = connection.answer(request.method)
            _check(answer.status > 0, f"alone: {answer.status}", answer, request)
            is_own = answer.status != 500 or request.method == b"HEAD" or answer.body.startswith(_OURS)
            _check(is_own, f"alone: {answer.status} is not ours", answer, request)
            is_kept = False
            # aiohttp sends a page with its own refusal of a HEAD, which is no answer of ours.
            is_in_step = self.front.is_ours or request.method != b"HEAD" or answer.status < 400
            if is_in_step and not answer.says_close and not self._is_left(sent):
                connection.send(GET_LIVE)
                marked = connection.answer()
                _check(marked is END or marked.status == 200, f"alone: {answer.status} out of step", marked, request)
                is_kept = marked is not END
            records = self._records_of(connection.name, 1 + is_kept, _A_MOMENT)
        records = records[:-1] if is_kept else records
        return Expected(answer, is_kept, records, bool(records) or not self.front.is_observed)

    def _send(self, connection: Connection, request: Request, sent: int | None) -> None:
        """Send a request, or a part of it; the rest comes late, where nobody says that it does not come."""
        connection.send(request.wire[:sent])
        if sent is not None and not self.front.interrupts:
            time.sleep(2 * HASTY_SECONDS)
            connection.send(request.wire[sent:])

    def _is_left(self, sent: int | None) -> bool:
        """Whether a request stays as it is, so that nothing can follow it on its connection."""
        return sent is not None and self.front.interrupts

    def _do(self, step: Step, *, is_hasty: bool) -> None:
        match step:
            case Ask(number, request, times):
                for _ in range(times):
                    self._ask(number, request)
                    if is_hasty:
                        self._settle(number, is_hasty=True)
            case Cut(number, size):
                client = self._clients.get(number)
                if client is not None and client.unsent:
                    client.connection.send(client.unsent[:size])
                    client.unsent = client.unsent[size:]
                    self._let_it_see()
            case Read(number):
                self._settle(number)
            case Leave(number):
                if (client := self._clients.pop(number, None)) is not None:
                    self._told.pop(client.connection.name)
                    client.connection.__exit__(None, None, None)
            case Stop(number, request):
                self._settle(number)
                client = self._client(number)
                self._send(client.connection, request, step.sent)
                client.due.append((request, self.expected(request, step.sent)))
                self._settle(number, is_left=self._is_left(step.sent))

    def _client(self, number: int) -> _Client:
        if number not in self._clients:
            self._clients[number] = client = _Client(self.front.connect())
            self._told[client.connection.name] = []
        return self._clients[number]

    def _ask(self, number: int, request: Request) -> None:
        expected = self.expected(request)
        if (client := self._client(number)).due and not self._may_follow(client.due[-1][1], expected):
            self._settle(number)
            client = self._client(number)
        self.count["requests"] += 1
        client.unsent += request.wire
        client.due.append((request, expected))

    def _may_follow(self, before: Expected, expected: Expected) -> bool:
        """Whether a request may be sent before the one before it is answered.

        Another's server that refuses a request by itself may drop those that came with it, as aiohttp does; or close
        the connection of one that was refused before its end had come, as granian does.
        """
        is_safe = self.front.is_ours or (expected.is_of_service and before.answer.status < 400)
        return not self._is_patient and self.front.pipelines and before.is_kept and is_safe

    def _let_it_see(self) -> None:
        """Wait until the server has had the chance to see what was sent: it answers another client."""
        answer = ask_alone(self.front.address, GET_LIVE)
        _check(answer.status == 200, f"another client: {answer.status}", answer, GET_LIVE)

    def _settle(self, number: int, *, is_hasty: bool = False, is_left: bool = False) -> None:
        """Send the rest, and take all answers that are due; `is_left` if the last one is to a request that stops."""
        client = self._clients.get(number)
        if client is None:
            return
        client.connection.send(client.unsent)
        client.unsent = b""
        while client.due:
            request, expected = client.due.popleft()
            answer = client.connection.answer(request.method)
            if is_hasty and answer.status == _TOO_SLOW != expected.answer.status:
                raise SlowMachineError
            is_theirs = answer.status >= 400 and not self.front.is_ours
            _check_answer(answer, expected, request, is_left=is_left or is_theirs)
            self._told[client.connection.name] += expected.records
            if is_theirs or not expected.is_kept:
                if self.front.is_ours and not is_left:  # who says that he closes may be in no hurry
                    _check(client.connection.ends(), f"{answer.status}: kept", answer, request)
                client.connection.__exit__(None, None, None)
                del self._clients[number]

    def _check_memory(self, *, is_hasty: bool) -> None:
        expected = self.expected(self._largest).answer  # known since the beginning
        answer = ask_alone(self.front.address, self._largest.wire)
        if is_hasty and answer.status == _TOO_SLOW:
            raise SlowMachineError
        _check(answer == expected, f"memory: {answer.status}", answer, "all of the memory")

    def _check_records(self) -> None:
        for client in self._clients.values():
            client.connection.send(GET_LIVE)
            answer = client.connection.answer()
            _check(answer.status == 200, f"out of step at the end: {answer.status}", answer, None)
        for client in self._clients.values():
            self._told[client.connection.name] += self.expected(_MARK).records
        for name, events in self._told.items():
            told = self._records_of(name, len(events), _SECONDS)
            told.sort(key=str)  # threads of one connection end in any order
            events.sort(key=str)
            _check(told == events, f"record: {_first_difference(told, events)}", told, events)

    def _records_of(self, name: str, count: int, seconds: float) -> list[Events]:
        """Return what was told of the requests of a connection, as soon as there are so many."""
        end = time.monotonic() + seconds
        while self.front.is_observed:
            found = [events for client, events in self.front.records() if client == name]
            if len(found) >= count or time.monotonic() > end:
                return found
            time.sleep(0.005)
        return []


def _check_answer(answer: Answer, expected: Expected, request: Request, *, is_left: bool) -> None:
    """Compare answers. Where a server refuses by itself, only the status counts: the rest is not ours.

    Where a request is left in the middle, or refused there, each server decides about its connection, and says so or
    not.
    """
    wanted = expected.answer
    if is_left:
        answer, wanted = answer.without_connection(), wanted.without_connection()
    if answer.status != wanted.status:
        _check(False, f"{wanted.status} became {answer.status}", (answer, wanted), request)
    if expected.is_of_service:
        part = "fields" if answer.fields != wanted.fields else "body"
        _check(answer == wanted, f"{wanted.status}: other {part}", (answer, wanted), request)


def _first_difference(told: list[Events], expected: list[Events]) -> str:
    """Return in a word what an observer was told otherwise."""
    if len(told) != len(expected):
        return f"{len(told)} in place of {len(expected)}"
    for events, others in zip(told, expected, strict=True):
        for event, other in zip(events, others, strict=False):
            if event != other:
                return str(event[0])
    return "another number of events"


def _check(is_so: bool, kind: str, found: object, request: object) -> None:
    if not is_so:
        raise _kind(kind)(f"{kind}\nfound {found!r}\nasked {request!r}")
