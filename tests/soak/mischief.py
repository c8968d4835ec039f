"""Mischief: what clients do that are wrong, slow, gone, or ask for too much.

Each act takes a connection, which is of no use afterwards, and returns a word for what it came to. What no server may
do (answer 500, accept what is wrong, wait for 256 MiB before it refuses) is an `AssertionError`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import request_of
from tests.soak.asking import FullError, Sending, ask, check_answer
from tests.soak.good import Maker, Request
from tests.soak.program import MAX_MESSAGE_BYTES
from tests.soak.wire import Head, Line

Act = Callable[[Line, Random, Maker], Awaitable[str]]

_STATUS = re.compile(r"(?:status=|^answer )([0-9]{3})\b", re.MULTILINE)
_FULL = 503
_TOO_SLOW = 408
_TOO_LARGE = 413
_SERVER_ERROR = 500
_LARGE = 256 << 20


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A case of the corpus, as it goes over the wire."""

    name: str
    message: bytes
    status: int


def bad_requests() -> list[BadRequest]:
    """Return the refused cases of the corpus that need no server with limits of their own."""
    cases = (case for case in read_corpus() if case.kind in {"request", "http-request"} and not case.options)
    return [bad for case in cases if case.is_refused and (bad := _bad_request(case)) is not None]


def _bad_request(case: Case) -> BadRequest | None:
    found = _STATUS.search("\n".join(case.expected))
    if found is None or int(found[1]) == _SERVER_ERROR:  # a model's failure, which is logged as such
        return None
    return BadRequest(str(case), request_of(case), int(found[1]))


_BAD_REQUESTS = bad_requests()


async def bad(line: Line, random: Random, _: Maker) -> str:
    """Send what must be refused, and its end with it."""
    request = random.choice(_BAD_REQUESTS)
    try:
        await line.send([request.message])
        line.end()
        statuses = await _statuses(line)
    except OSError:
        return "lost"  # refused and closed while it was still being sent
    assert request.status in statuses or {_TOO_LARGE, _FULL} & set(statuses), (
        f"{request.name}: {statuses}, not {request.status}"  # or 413: the limits of this server are its own
    )
    return "refused"


async def cut(line: Line, random: Random, maker: Maker) -> str:
    """Go away anywhere within a good request, or within its answer, in one of three ways."""
    request = maker.next()
    size = request.nbytes
    end = random.choice([size, random.randrange(size), random.randrange(min(size, 2000))])
    try:
        await line.send(_up_to(request, end))
        if end == size:
            await line.some(random.choice([1, 100, 10_000]))
        return await _leave(line, random, request, is_whole=end == size)
    except OSError:
        return "lost"


async def _leave(line: Line, random: Random, request: Request, *, is_whole: bool) -> str:
    match random.randrange(3):
        case 0:
            return "closed"
        case 1:
            line.reset()
            return "reset"
        case _ if is_whole:
            return "closed"
    line.end()
    statuses = await _statuses(line)
    expected = {400, 411, _FULL, *_begun(request)}
    assert set(statuses) <= expected, f"{request.kind} without its end: {statuses}"
    return "half-closed"


_DRIP_SECONDS = 0.03
"""Thirty such pauses are a third of `read_timeout`, and a busy machine makes each of them longer."""


async def dripping(line: Line, random: Random, maker: Maker) -> str:
    """Send a good request with a byte now and then, somewhere; it must be answered all the same."""
    request = maker.next()
    start = random.choice(
        [0, len(request.head), len(request.head) + len(request.text), random.randrange(request.nbytes)]
    )
    count = min(random.randint(3, 30), request.nbytes - start)
    data = b"".join(request.parts)
    for index in range(start, start + count):
        await line.send([data[:start] + data[index : index + 1] if index == start else data[index : index + 1]])
        await asyncio.sleep(random.uniform(0, _DRIP_SECONDS))
    try:
        await ask(line, [request], sending=[data[start + count :] if count else data])
    except FullError:
        return "full"
    return "answered"


async def stalling(line: Line, random: Random, maker: Maker) -> str:
    """Stop in the middle of a request, and wait for what is said about that."""
    request = maker.next()
    await line.send(_up_to(request, random.randrange(1, request.nbytes)))
    statuses = await _statuses(line)
    expected = {_TOO_SLOW, _FULL, *_begun(request)}
    assert expected & set(statuses), f"{request.kind} that stopped: {statuses}"
    return "given up"


async def slow_reader(line: Line, random: Random, maker: Maker) -> str:
    """Take the beginning of an answer in small pieces; then the rest, which must be right, or nothing."""
    request = maker.of_bytes(random.randint(1 << 20, 4 << 20))
    async with Sending(line, request.parts):
        await _read_slowly(line, random)
        if random.random() < 1 / 3:
            line.reset()
            return "reset"
        try:
            await check_answer(line, await line.head(), request)
        except FullError:
            return "full"
    return "answered"


async def _read_slowly(line: Line, random: Random) -> None:
    with suppress(ConnectionResetError):  # after an answer that is short: the server is full
        for _ in range(random.randint(5, 30)):
            await asyncio.sleep(random.uniform(0, 0.1))
            await line.prefetch(4 << 10)


async def huge(line: Line, random: Random, _: Maker) -> str:
    """Declare what can never be right, or is too much, and send the first kilobytes of it."""
    name, message, wanted = random.choice(_HUGE)
    await line.send([message])
    head = await line.head()
    # While others have the memory, nobody has looked at it yet.
    assert head.status in {*wanted, _FULL}, f"{name}: {head.status}, not {wanted}"
    await line.document(head)
    return "refused"


def _declared(shape: list[int], size: int, body_length: int | None = None, fields: str = "") -> bytes:
    tensor = {"name": "x", "datatype": "UINT8", "shape": shape, "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [tensor]}).encode()
    length = len(text) + size if body_length is None else body_length
    head = (
        "POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\n"
        f"Content-Length: {length}\r\nInference-Header-Content-Length: {len(text)}\r\n{fields}\r\n"
    )
    return head.encode() + text + bytes(8 << 10)


def _with_header_of(nbytes: int) -> bytes:
    head = (
        "POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\n"
        f"Content-Length: {nbytes}\r\nInference-Header-Content-Length: {nbytes}\r\n\r\n"
    )
    return head.encode() + b'{"inputs":[{"name":"' + b"x" * 8000


_HUGE: list[tuple[str, bytes, set[int]]] = [
    ("256 MiB that do not fit the shape", _declared([4], _LARGE), {400, 413}),
    ("256 MiB that are too much", _declared([_LARGE], _LARGE), {413}),
    ("256 MiB, asked for first", _declared([_LARGE], _LARGE, fields="Expect: 100-continue\r\n"), {413}),
    ("more than a message may have", _declared([MAX_MESSAGE_BYTES], MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1), {413}),
    ("a shape of 2 ** 60", _declared([1 << 60], 1 << 60, 1 << 20), {400, 413}),
    ("a shape of 2 ** 126", _declared([1 << 63, 1 << 63], 8, 1 << 10), {400, 413}),
    ("a body of 2 ** 70", _declared([4], 4, 1 << 70), {400, 413}),
    ("a body of 10^4,000", _declared([4], 4, 10**4000), {400, 413}),
    ("a JSON header of 100 MiB", _with_header_of(100 << 20), {400, 413}),
    ("a head without end", b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (64 << 10), {400, 431}),
    ("a target without end", b"GET /v2/" + b"y" * (64 << 10), {400, 414}),
    ("65,536 fields", b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 65_536, {400, 431}),
]

ACTS: dict[str, tuple[int, Act]] = {
    "bad": (15, bad),
    "cut": (15, cut),
    "dripping": (4, dripping),
    "stalling": (1, stalling),
    "slow reader": (2, slow_reader),
    "huge": (6, huge),
}
"""By name, with how often each is chosen, next to the good requests' `GOOD_WEIGHT`."""

GOOD_WEIGHT = 57


async def _statuses(line: Line) -> list[int]:
    """Read answers until the server closes the connection; return their statuses."""
    statuses = []
    try:
        while True:
            head: Head = await line.head()
            statuses.append(head.status)
            assert head.status != _SERVER_ERROR, "a request that is not good is answered 500"
            await line.exactly(head.body_length)
    except ConnectionResetError:
        return statuses


def _begun(request: Request) -> set[int]:
    """Return the status that a request may be answered with although it ends too early."""
    return {200} if request.kind == "mirrored" else set()


def _up_to(request: Request, end: int) -> list[memoryview]:
    """Return the first bytes of a request."""
    parts = []
    for part in request.parts:
        parts.append(memoryview(part)[:end])
        end = max(0, end - len(part))
    return parts
