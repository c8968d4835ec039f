"""Short cuts of the ASGI application: a request is judged, timed and observed as if it were the first one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import anyio
import pytest

from streamcodec import ErrorCode, RemoteProtocolError, Rows, Windows
from streamcodec.asgi import App
from streamcodec.asgi.app import Message, Scope
from streamcodec.engine.limits import Limits
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, RequestRecord, Service
from tests.asgi.client import Exchanged, ask
from tests.asgi.clock import run as run_by_clock
from tests.asgi.test_app import X, app_of, infer, on_both, output, run

Change = Callable[[Scope], Scope]


class Records(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[list[bytes]] = []
        self.ended: list[RequestRecord] = []

    def request_begun(self, request: RequestRecord) -> None:
        self.begun.append(request.field(b"traceparent"))

    def request_ended(self, request: RequestRecord) -> None:
        self.ended.append(request)


def with_fields(scope: Scope, *fields: tuple[bytes, bytes]) -> Scope:
    return {**scope, "headers": [*scope["headers"], *fields]}


@pytest.mark.parametrize("is_inline", [False, True])
def test_observers_get_the_head_of_each_request(is_inline: bool) -> None:
    records = Records()
    app = app_of(is_inline=is_inline, observer=records)
    scope, body = infer()

    async def main() -> None:
        for number in range(3):
            other = with_fields(scope, (b"traceparent", b"00-%d" % number), (b"x-number", b" %d " % number))
            other["client"] = ("127.0.0.1", 1000 + number)
            other["query_string"] = b"a=%d" % (number % 2)
            await ask(app, other, [body])

    run(main)
    assert records.begun == [[b"00-0"], [b"00-1"], [b"00-2"]]
    assert len(records.ended) == 3
    for number, record in enumerate(records.ended):
        assert record.head is not None
        assert record.head.fields.values(b"traceparent") == [b"00-%d" % number]
        assert record.head.fields.values(b"x-number") == [b"%d" % number]
        assert (record.client, record.target) == (f"127.0.0.1:{1000 + number}", f"/v2/models/m/infer?a={number % 2}")


@on_both
@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize("limit", ["read_timeout", "header_timeout", "request_timeout"])
def test_a_body_has_a_time_limit_although_its_head_is_known(
    backend: str, is_inline: bool, pieces: int, limit: str
) -> None:
    records = Records()
    # A model in a thread takes real time, which a clock that jumps would not let it have.
    seconds, play = (0.05, run_by_clock) if is_inline else (0.5, run)
    app = app_of(is_inline=is_inline, observer=records, options=ServerOptions(**{limit: seconds}))  # type: ignore[arg-type]
    scope, body = infer()

    async def stuck() -> Exchanged:
        exchanged = Exchanged(deque([body[:7]] * pieces))

        async def receive() -> Message:
            if exchanged.received == pieces:
                await anyio.sleep_forever()
            return {**await exchanged.receive(), "more_body": True}

        with anyio.fail_after(30):  # else it would wait for ever
            await app(dict(scope), receive, exchanged.send)
        return exchanged

    async def main() -> None:
        cold = await stuck()
        for _ in range(3):
            assert (await ask(app, dict(scope), [body])).status == 200
        warm = await stuck()
        assert cold.status == warm.status == 408
        assert (cold.fields, cold.body) == (warm.fields, warm.body)

    play(main, backend=backend)
    first, last = records.ended[0], records.ended[-1]
    assert (first.code, first.status, first.model, first.bytes_in) == (
        last.code,
        last.status,
        last.model,
        last.bytes_in,
    )
    assert len(records.begun) == 5


def refusals(app: App, change: Change) -> list[int]:
    """Return the status of a changed request: as the first one, and after others."""
    scope, body = infer()

    async def main() -> list[int]:
        first = await ask(app, change(dict(scope)), [body])
        others = [(await ask(app, dict(scope), [body])).status for _ in range(3)]
        again = await ask(app, change(dict(scope)), [body])
        assert others == [200] * 3
        assert (first.fields, first.body) == (again.fields, again.body)
        return [first.status, again.status]

    statuses: list[int] = run(main)
    return statuses


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda scope: with_fields(scope, (b"x-y", b"a\x01b")), 400),
        (lambda scope: with_fields(scope, (b"x\x00y", b"ab")), 400),
        (lambda scope: with_fields(scope, *[(b"x-y", b"z")] * 20), 431),
        (lambda scope: with_fields(scope, (b"content-encoding", b"None")), 415),
        (lambda scope: {**scope, "raw_path": None, "path": "/v2/models/m/infer\n/v2/models/m/infer"}, 404),
        (lambda scope: {**scope, "raw_path": None, "path": "/v2/models/m/infer\n"}, 404),
    ],
)
def test_a_head_is_refused_although_what_means_something_in_it_is_known(change: Change, status: int) -> None:
    service = Service(
        ModelRegistry.of([Model(name="m", predict=lambda request: {"y": request.inputs["x"]}, is_inline=True)]),
        limits=Limits(max_head_fields=10),
    )
    assert refusals(App(service), change) == [status] * 2


def test_what_is_masked_in_one_header_is_not_found_by_another() -> None:
    app = app_of(is_inline=True)
    scope, body = infer(request_id="SECRET-A")
    masked = body.replace(b"SECRET-A", bytes(8))

    async def main() -> None:
        first = await ask(app, dict(scope), [masked])
        for _ in range(3):
            assert b'"id":"SECRET-A"' in (await ask(app, dict(scope), [body])).body
        again = await ask(app, dict(scope), [masked])
        assert (first.status, first.body) == (again.status, again.body)
        assert first.status == 400

    run(main)


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("status", [99, 199, 204, 205, 304, 499, 600])
def test_an_answer_has_the_body_that_its_status_allows(status: int, is_inline: bool) -> None:
    def refuse(_: InferenceRequest) -> None:
        raise RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status)

    app = app_of(refuse, is_inline=is_inline)
    scope, body = infer()

    async def main() -> None:
        for _ in range(3):
            exchanged = await ask(app, dict(scope), [body])
            assert exchanged.is_whole
            assert exchanged.status == (status if 200 <= status < 600 else 500)
            assert bool(exchanged.body) is (status not in {204, 205, 304})
            length = None if status in {204, 304} else str(len(exchanged.body))
            assert exchanged.fields.get("content-length") == length
            assert ("content-type" in exchanged.fields) is bool(exchanged.body)

    run(main)


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_model_that_takes_windows_gets_them_from_a_body_that_has_come_whole(pieces: int) -> None:
    def double(request: InferenceRequest) -> dict[str, Rows]:
        rows = request.rows["x"]
        return {"y": Rows("FP32", rows.shape, (window * 2 for window in cast("Iterable[Any]", rows.windows)))}

    app = app_of(double, windows=Windows(max_window_bytes=64))
    scope, body = infer()

    async def main() -> None:
        for _ in range(3):
            answer = await ask(app, dict(scope), [body] if pieces == 1 else [body[:9], body[9:]])
            assert answer.status == 200
            assert output(answer).tolist() == (X * 2).tolist()

    run(main)


@pytest.mark.parametrize("max_memory", [64 << 20, 100])
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body,
        lambda body: body.replace(b"FP32", b"FP33"),
        lambda body: body.replace(b"FP32", b"FP64"),
        lambda body: body.replace(b'"x"', b'"\xff"'),
        lambda body: body.replace(b"[6]", b"[7]"),
        lambda body: body.replace(b"{", b"["),
        lambda body: body.replace(b"FP32", b"BOOL").replace(b"[6]", b"[1]"),
    ],
)
def test_a_body_means_the_same_in_one_piece_and_in_two(change: Callable[[bytes], bytes], max_memory: int) -> None:
    records = Records()
    app = app_of(is_inline=False, observer=records, options=ServerOptions(max_memory_bytes=max_memory))
    scope, body = infer()
    body = change(body)
    assert len(body) == len(change(body))

    async def main() -> None:
        scope["headers"] = [
            (name, b"%d" % len(body) if name == b"content-length" else value) for name, value in scope["headers"]
        ]
        whole = [await ask(app, dict(scope), [body]) for _ in range(3)]
        cut = await ask(app, dict(scope), [body[:9], body[9:]])
        for each in whole:
            assert (each.status, each.fields, each.body) == (cut.status, cut.fields, cut.body)

    run(main)
    first, *others = records.ended
    assert {(record.code, record.model, record.bytes_in) for record in others} == {
        (first.code, first.model, first.bytes_in)
    }
