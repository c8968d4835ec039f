"""Uploads that can be resumed, without sockets: who may begin, go on and end one, and what becomes of its memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    ErrorCode,
    LimitExceededError,
    MessageError,
    RemoteProtocolError,
    Windows,
    encode_request,
)
from streamcodec.http import RequestHead
from streamcodec.http.bodies.fed import FedBody
from streamcodec.runtime.uploads.folder import UploadFolder
from streamcodec.runtime.uploads.stored import StoredUploads
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Reply, Service
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.routes import without_secret
from streamcodec.service.uploads.deciding import UploadService
from streamcodec.service.uploads.kept import Uploads
from streamcodec.service.uploads.upload import UploadPart
from tests.service.requests import answer, head

KIB = 1 << 10
X = np.arange(64 * KIB, dtype=np.uint8)
MESSAGE = encode_request({"x": X, "y": X}, request_id="mine")
BODY = b"".join(MESSAGE.buffers)
SMALL = encode_request({"x": X[:16]})
FIELDS = [field for field in MESSAGE.headers if field[0] != "Content-Length"]
RECEIVE, WAIT, CALL, ANSWER = ExchangeStep.RECEIVE, ExchangeStep.WAIT, ExchangeStep.CALL, ExchangeStep.ANSWER
PART = ("Content-Type", "application/partial-upload")
LAST, MORE = ("Upload-Complete", "?1"), ("Upload-Complete", "?0")
BROKEN = RemoteProtocolError("broken", code=ErrorCode.TRUNCATED)


class Site:
    """A service with uploads, whose clock stands still."""

    def __init__(self, *, max_bytes: int = 1 << 30, max_uploads: int = 4, windows: Windows | None = None) -> None:
        self.now = 0.0
        self.model = Model(name="m", predict=lambda request: dict(request.inputs), windows=windows)
        self.models = ModelRegistry.of([self.model])
        self.budget = Budget(max_bytes)
        self.uploads = Uploads(
            self.budget,
            max_uploads=max_uploads,
            keep_seconds=60.0,
            lifetime_seconds=600.0,
            clock=lambda: self.now,
            new_id=partial(next, map(str, count())),
        )
        self.service = Service(self.models, max_pool_bytes=0, allowed_hosts=["here"])
        self.decides = UploadService(self.service, self.uploads)


class Files(Site):
    """The same, with its uploads in files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        files = UploadFolder(
            folder / "uploads",
            max_files=4,
            max_bytes=1 << 30,
            keep_seconds=60.0,
            lifetime_seconds=600.0,
            clock=lambda: self.now,
        )
        stored = StoredUploads(files, max_bytes=1 << 30, new_id=partial(next, map(str, count())))
        self.decides = UploadService(self.service, stored)


class Visit:
    """One request of a connection of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.exchange = Exchange(site.service, Reservation(site.budget), site.decides)
        self.body: FedBody | None = None
        self.has_left = False
        self.exchange.on_give_way = self.leave

    def leave(self) -> None:
        self.has_left = True

    def ask(
        self, method: str, target: str, *fields: tuple[str, str], length: int | None = 0, host: str = "here"
    ) -> ExchangeStep | None:
        request = head(target, method, [("Host", host), *fields], length)
        return self.do(request, lambda: self.exchange.begin(request))

    def begin(self, *fields: tuple[str, str], length: int | None = len(BODY)) -> ExchangeStep | None:
        return self.ask("POST", "/v2/models/m/infer", *FIELDS, *(fields or (LAST,)), length=length)

    def append(self, offset: int, nbytes: int, *fields: tuple[str, str], target: str = "0") -> ExchangeStep | None:
        named = (PART, ("Upload-Offset", str(offset)), *(fields or (LAST,)))
        return self.ask("PATCH", f"/v2/uploads/{target}", *named, length=nbytes)

    def do(self, request: RequestHead | None, act: Callable[[], ExchangeStep | None]) -> ExchangeStep | None:
        try:
            step = act()
        except MessageError as error:
            step = self.exchange.fail(error)
        if step is RECEIVE and request is not None:
            self.body = FedBody(request, self.exchange.decoder, self.site.service.limits, paced=True)
            self.exchange.arrival = self.body
        return step

    def bring(self, data: bytes) -> ExchangeStep | None:
        body, pieces = self.body, [data[at : at + 4 * KIB] for at in range(0, len(data), 4 * KIB)]
        assert body is not None
        while True:
            if self.exchange.is_held_up and (step := self.do(None, self.exchange.go_on)):
                return step
            try:
                event = body.next_event()
            except MessageError as error:
                return self.exchange.fail(error)
            if event is NEED_TURN:
                body.work()
            elif event is NEED_DATA and pieces:
                body.feed(pieces.pop(0))
            elif event is NEED_DATA:
                return None
            elif step := self.do(None, partial(self.exchange.receive, event)):
                return step

    def call(self) -> None:
        inference = self.exchange.inference
        assert inference is not None
        self.exchange.answer(inference.run())

    @property
    def status(self) -> int:
        return self.exchange.reply.status

    @property
    def fields(self) -> dict[str, str]:
        return dict(self.exchange.reply.headers)


def interrupted(site: Site, nbytes: int) -> None:
    """Begin an upload, and break off after so many bytes."""
    visit = Visit(site)
    assert visit.begin() is RECEIVE
    assert visit.bring(BODY[:nbytes]) is None
    visit.exchange.let_go()
    assert visit.exchange.reservation.nbytes == 0


def offset(site: Site, name: str = "0") -> int | None:
    visit = Visit(site)
    assert visit.ask("HEAD", f"/v2/uploads/{name}") is ANSWER
    return int(visit.fields["Upload-Offset"]) if visit.status == 204 else None


@pytest.mark.parametrize("nbytes", [0, 1, MESSAGE.header_length, 5000, 64 * KIB, len(BODY) - 1])
def test_an_upload_goes_on_where_it_broke(nbytes: int) -> None:
    site = Site()
    interrupted(site, nbytes)
    assert offset(site) == nbytes
    visit = Visit(site)
    assert visit.append(nbytes, len(BODY) - nbytes) is RECEIVE
    assert visit.bring(BODY[nbytes:]) is CALL
    assert len(site.uploads) == 0
    visit.call()
    assert visit.fields["Upload-Complete"] == "?1"
    outputs = answer(visit.exchange.reply).outputs
    assert np.array_equal(outputs["x"], X)
    assert np.array_equal(outputs["y"], X)
    visit.exchange.end()
    assert site.budget.reserved == 0


def test_no_byte_is_copied_or_received_twice() -> None:
    site = Site()
    interrupted(site, 5000)
    first = site.uploads.find("0").inference
    visit = Visit(site)
    visit.append(5000, len(BODY) - 5000)
    assert visit.exchange.inference is first
    target = memoryview(first.decoder.get_buffer())
    assert isinstance(visit.exchange.decoder, UploadPart)
    assert visit.exchange.decoder.get_buffers()[0] == target
    assert visit.body is not None
    visit.body.get_buffer()[:10] = BODY[5000:5010]
    visit.body.buffer_updated(10)
    assert first.decoder.offset == 5010
    assert bytes(target[:10]) == BODY[5000:5010], "it is in the array"


def test_a_client_that_leaves_before_the_answer_leaves_nothing_in_memory() -> None:
    """An upload in a file is kept for its client then; see the tests of `Files`."""
    site = Site()
    visit = Visit(site)
    visit.begin()
    assert visit.bring(BODY) is CALL
    visit.exchange.end()
    assert offset(site) is None
    assert len(site.uploads) == 0
    assert visit.exchange.reservation.nbytes == 0


def test_an_upload_may_come_in_many_pieces() -> None:
    site = Site()
    visit = Visit(site)
    assert visit.begin(MORE, ("Upload-Length", str(len(BODY))), length=0) is RECEIVE
    assert visit.bring(b"") is ANSWER
    assert (visit.status, visit.fields["Location"], visit.fields["Upload-Offset"]) == (201, "/v2/uploads/0", "0")
    visit.exchange.end()
    for at in range(0, len(BODY), 40_000):
        piece = BODY[at : at + 40_000]
        visit = Visit(site)
        assert visit.append(at, len(piece), MORE, ("Upload-Length", str(len(BODY)))) is RECEIVE
        assert visit.bring(piece) is ANSWER
        assert (visit.status, visit.fields["Upload-Offset"]) == (204, str(at + len(piece)))
        assert "Location" not in visit.fields
        visit.exchange.end()
    visit = Visit(site)
    assert visit.append(len(BODY), 0) is RECEIVE
    assert visit.bring(b"") is CALL
    visit.call()
    assert np.array_equal(answer(visit.exchange.reply).outputs["y"], X)


def test_all_may_have_come_before_the_client_says_that_it_is_complete() -> None:
    site = Site()
    visit = Visit(site)
    assert visit.begin(MORE, ("Upload-Length", str(len(BODY))), length=len(BODY)) is RECEIVE
    assert visit.bring(BODY) is ANSWER
    assert (visit.status, visit.fields["Upload-Offset"]) == (201, str(len(BODY)))
    visit.exchange.end()
    visit = Visit(site)
    assert visit.append(len(BODY), 0) is RECEIVE
    assert visit.bring(b"") is CALL


def test_pieces_end_in_the_middle_of_whatever_comes() -> None:
    """With pieces of one byte at the borders of the header and of both tensors."""
    length = MESSAGE.header_length or 0
    borders = sorted({0, 1, length - 1, length, length + 1, length + len(X) - 1, length + len(X), len(BODY)})
    site = Site()
    visit, step = Visit(site), None
    visit.begin(MORE, ("Upload-Length", str(len(BODY))), length=0)
    for at, end in pairwise(borders):
        visit = Visit(site)
        assert visit.append(at, end - at, LAST if end == len(BODY) else MORE) is RECEIVE
        step = visit.bring(BODY[at:end])
    assert step is CALL
    visit.call()
    assert np.array_equal(answer(visit.exchange.reply).outputs["x"], X)


def test_only_clients_of_this_draft_are_sent_104() -> None:
    for fields, names in (
        ((LAST,), []),
        ((LAST, ("Upload-Draft-Interop-Version", "6")), []),
        (
            (LAST, ("Upload-Draft-Interop-Version", "8")),
            ["Upload-Draft-Interop-Version", "Location", "Upload-Limit"],
        ),
    ):
        visit = Visit(Site())
        visit.begin(*fields)
        assert visit.exchange.portion is not None
        assert [name for name, _ in visit.exchange.portion.interim or ()] == names


def test_another_connection_takes_an_upload_over() -> None:
    """The client has lost the first connection, and the server does not know that."""
    site = Site()
    first = Visit(site)
    first.begin()
    first.bring(BODY[:5000])
    assert offset(site) == 5000
    assert first.has_left
    assert first.exchange.inference is None
    second = Visit(site)
    second.append(5000, len(BODY) - 5000)
    second.bring(BODY[5000:70_000])
    third = Visit(site)
    assert third.append(70_000, len(BODY) - 70_000) is RECEIVE
    assert second.has_left
    assert third.bring(BODY[70_000:]) is CALL


def test_a_carrier_without_an_owner_gives_way_too() -> None:
    site = Site()
    first = Visit(site)
    first.begin()
    first.exchange.on_give_way = None
    assert offset(site) == 0
    assert not first.has_left


@pytest.mark.parametrize("wrong", [0, 4999, 5001, len(BODY), len(BODY) + 1])
def test_another_offset_is_refused_and_nothing_is_lost(wrong: int) -> None:
    site = Site()
    interrupted(site, 5000)
    visit = Visit(site)
    assert visit.append(wrong, 10, MORE) is ANSWER
    assert (visit.status, visit.fields["Upload-Offset"], visit.fields["Upload-Complete"]) == (409, "5000", "?0")
    assert offset(site) == 5000


@pytest.mark.parametrize(
    ("nbytes", "fields"),
    [
        (len(BODY), (LAST,)),
        (len(BODY) - 4999, (MORE,)),
        (10, (LAST,)),
        (10, (MORE, ("Upload-Length", "99"))),
    ],
    ids=["beyond the end", "beyond the end in pieces", "too early the last", "another length"],
)
def test_a_piece_that_does_not_fit_the_length_is_refused(nbytes: int, fields: tuple[tuple[str, str], ...]) -> None:
    site = Site()
    interrupted(site, 5000)
    visit = Visit(site)
    assert visit.append(5000, nbytes, *fields) is ANSWER
    assert visit.status == 400
    assert offset(site) == 5000


@pytest.mark.parametrize(
    ("fields", "length", "status"),
    [
        ([LAST, ("Upload-Offset", "0")], 1, 415),
        ([PART, PART, LAST, ("Upload-Offset", "0")], 1, 415),
        ([PART, LAST, ("Upload-Offset", "0"), ("Content-Encoding", "gzip")], 1, 415),
        ([PART, LAST], 1, 400),
        ([PART, LAST, ("Upload-Offset", "+0")], 1, 400),
        ([PART, LAST, ("Upload-Offset", "0"), ("Upload-Offset", "0")], 1, 400),
        ([PART, LAST, ("Upload-Offset", "9" * 16)], 1, 400),
        ([PART, ("Upload-Offset", "0")], 1, 400),
        ([PART, LAST, LAST, ("Upload-Offset", "0")], 1, 400),
        ([PART, ("Upload-Complete", "1"), ("Upload-Offset", "0")], 1, 400),
        ([PART, LAST, ("Upload-Offset", "0")], None, 411),
    ],
)
def test_a_bad_piece_is_refused(fields: list[tuple[str, str]], length: int | None, status: int) -> None:
    site = Site()
    interrupted(site, 0)
    visit = Visit(site)
    assert visit.ask("PATCH", "/v2/uploads/0", *fields, length=length) is ANSWER
    assert visit.status == status
    assert offset(site) == 0


@pytest.mark.parametrize(
    ("fields", "length", "status"),
    [
        ([MORE], 0, 411),
        ([LAST], None, 411),
        ([LAST, ("Upload-Length", "5")], 10, 400),
        ([MORE, ("Upload-Length", "5")], 10, 400),
        ([LAST, ("Content-Encoding", "gzip")], 10, 415),
        ([MORE, ("Content-Encoding", "gzip"), ("Upload-Length", "10")], 0, 415),
        ([LAST], 1 << 40, 413),
    ],
)
def test_a_bad_beginning_is_refused(fields: list[tuple[str, str]], length: int | None, status: int) -> None:
    site = Site()
    visit = Visit(site)
    assert visit.begin(*fields, length=length) is ANSWER
    assert visit.status == status
    visit.exchange.end()
    assert (len(site.uploads), site.budget.reserved) == (0, 0)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/v2/models/no/infer", 404),
        ("POST", "/v2/repository/index", 200),
        ("POST", "/v2/nowhere", 404),
        ("POST", "http://[/v2/uploads/0", 421),
        ("PUT", "/v2/models/m/infer", 405),
        ("GET", "/v2/uploads/0", 405),
        ("HEAD", "/v2/uploads/", 404),
        ("HEAD", "/v2/uploads/1", 404),
        ("DELETE", "/v2/uploads/1", 404),
    ],
)
def test_other_requests_are_answered_as_ever(method: str, target: str, status: int) -> None:
    visit = Visit(Site())
    assert visit.ask(method, target, LAST) is ANSWER
    assert visit.status == status


def test_uploads_are_for_the_hosts_of_the_service() -> None:
    visit = Visit(Site())
    assert visit.ask("HEAD", "/v2/uploads/0", host="elsewhere") is ANSWER
    assert visit.status == 421


def test_a_model_that_takes_windows_is_refused() -> None:
    visit = Visit(Site(windows=Windows()))
    assert visit.begin() is ANSWER
    assert (visit.status, visit.exchange.reply.refusal.code) == (400, "not-offered")  # type: ignore[union-attr] # fails then


def test_an_upload_can_be_cancelled_while_it_runs() -> None:
    site = Site()
    first, second = Visit(site), Visit(site)
    first.begin()
    first.bring(BODY[:70_000])
    assert second.ask("DELETE", "/v2/uploads/0") is ANSWER
    assert second.status == 204
    assert first.has_left
    assert (len(site.uploads), site.budget.reserved) == (0, 0)


def test_the_number_is_limited() -> None:
    site = Site(max_uploads=3)
    carried = [Visit(site) for _ in range(3)]
    assert [visit.begin() for visit in carried] == [RECEIVE] * 3
    visit = Visit(site)
    assert visit.begin() is RECEIVE, "without resumption"
    assert visit.exchange.portion is None
    assert visit.bring(BODY) is CALL
    visit = Visit(site)
    assert visit.begin(MORE, ("Upload-Length", "10"), length=0) is ANSWER
    assert (visit.status, visit.fields["Retry-After"], visit.fields["Upload-Limit"]) == (503, "1", "max-size=0")
    assert len(site.uploads) == 3


def test_an_interrupted_upload_makes_room_for_a_new_one() -> None:
    """First one without a byte, whose client may not have got the first answer; then the one that waits longest."""
    site = Site(max_uploads=3)
    for nbytes in (1000, 0, 2000):
        interrupted(site, nbytes)
    interrupted(site, 3000)
    assert [offset(site, str(name)) for name in range(4)] == [1000, None, 2000, 3000]
    interrupted(site, 4000)
    assert [offset(site, str(name)) for name in range(5)] == [None, None, 2000, 3000, 4000]
    site.uploads.close()
    assert site.budget.reserved == 0


def test_an_interrupted_upload_is_kept_for_a_time() -> None:
    site = Site()
    interrupted(site, 70_000)
    site.now = 59.0
    site.uploads.expire()
    assert offset(site) == 70_000
    site.now = 60.0
    assert offset(site) is None
    assert site.budget.reserved == 0


def test_an_upload_that_never_ends_is_ended() -> None:
    """One byte each minute is fast enough to be kept, and too slow for its whole life."""
    site = Site()
    interrupted(site, 0)
    at = 0
    while offset(site) is not None:
        visit = Visit(site)
        visit.append(at, 1, MORE)
        assert visit.bring(BODY[at : at + 1]) is ANSWER
        site.now += 59.0
        at += 1
    assert at == 11
    assert len(site.uploads) == 0


def test_the_time_left_is_told() -> None:
    site = Site()
    interrupted(site, 0)
    for now, left in ((0.0, 60), (30.0, 60), (550.0, None)):
        site.now = now
        visit = Visit(site)
        visit.ask("HEAD", "/v2/uploads/0")
        assert visit.fields.get("Upload-Limit") == (None if left is None else f"max-size={1 << 30}, max-age={left}")


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_model_that_is_gone_ends_the_upload(change: str) -> None:
    site = Site()
    interrupted(site, 70_000)
    site.models.remove("m")
    if change == "replaced":
        site.models.add(Model(name="m", predict=lambda _: {}))
    visit = Visit(site)
    assert visit.append(70_000, len(BODY) - 70_000) is ANSWER
    assert visit.status == 404
    gone = "there is no model" if change == "removed" else "the model has been replaced since the upload began"
    assert answer(visit.exchange.reply).error.startswith(gone)
    assert (len(site.uploads), site.budget.reserved) == (0, 0)


@pytest.mark.parametrize("code", [ErrorCode.TRUNCATED, ErrorCode.TOO_SLOW, ErrorCode.CONNECTION_CLOSED])
def test_an_error_of_the_connection_keeps_the_upload(code: ErrorCode) -> None:
    site = Site()
    visit = Visit(site)
    visit.begin()
    visit.bring(BODY[:70_000])
    visit.exchange.fail(RemoteProtocolError("broken", code=code))
    visit.exchange.end()
    assert offset(site) == 70_000


def test_a_refused_upload_is_dropped() -> None:
    site = Site()
    visit = Visit(site)
    visit.begin()
    assert visit.bring(b"[" * len(BODY)) is ANSWER
    assert visit.status == 400
    assert "Upload-Complete" not in visit.fields
    visit.exchange.end()
    assert (len(site.uploads), site.budget.reserved) == (0, 0)


def test_an_upload_whose_bytes_are_wrong_does_not_go_on() -> None:
    """The connection breaks after the wrong byte, and before anybody has looked."""
    site = Site()
    visit = Visit(site)
    visit.begin()
    assert visit.body is not None
    visit.body.feed(b"[" * (MESSAGE.header_length or 0))
    visit.body.feed(b"what comes now is dropped")
    visit.exchange.fail(BROKEN)
    assert len(site.uploads) == 0


def test_interrupted_uploads_make_room_before_anybody_waits() -> None:
    site = Site(max_bytes=600 * KIB)
    for _ in range(4):
        interrupted(site, 5000)
    assert site.budget.reserved == 4 * len(BODY)
    other = Reservation(site.budget)
    assert other.ask(300 * KIB)
    assert [offset(site, name) for name in "0123"] == [None, None, 5000, 5000], "the oldest first"


def test_the_arrays_are_gone_before_others_get_their_memory() -> None:
    site = Site(max_bytes=200 * KIB)
    interrupted(site, 70_000)
    gc.collect()  # a visit refers to itself
    dropped = ref(site.uploads.find("0").inference)
    other, alive = Reservation(site.budget), []
    other.on_granted = lambda: alive.append(dropped())
    assert other.ask(150 * KIB)
    assert alive == [None]


def test_want_of_memory_for_the_bookkeeping_loses_no_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the connection tries again then."""
    site = Site()

    def fail(*_: object) -> None:
        raise MemoryError

    for way in ("let go", "answer"):
        visit = Visit(site)
        visit.begin()
        visit.bring(BODY[:5000])
        with monkeypatch.context() as patch:
            patch.setattr(site.uploads, "keep", fail)
            with pytest.raises(MemoryError):
                visit.exchange.let_go() if way == "let go" else visit.exchange.fail(BROKEN)
        visit.exchange.let_go()
    assert [offset(site, name) for name in "01"] == [5000, 5000]


def test_an_upload_that_breaks_while_others_wait_is_dropped() -> None:
    site = Site(max_bytes=200 * KIB)
    visit, other = Visit(site), Reservation(site.budget)
    visit.begin()
    visit.bring(BODY[:5000])
    assert not other.ask(150 * KIB)
    visit.exchange.let_go()
    assert not other.missing
    assert offset(site) is None


def test_an_upload_that_gives_way_to_those_who_wait_is_gone() -> None:
    site = Site(max_bytes=200 * KIB)
    visit, other = Visit(site), Reservation(site.budget)
    visit.begin()
    visit.bring(BODY[:5000])
    assert not other.ask(150 * KIB)
    assert offset(site) is None


def test_an_upload_waits_for_memory_as_every_request() -> None:
    site = Site(max_bytes=200 * KIB)
    other, visit = Reservation(site.budget), Visit(site)
    assert other.ask(150 * KIB)
    visit.begin()
    assert visit.bring(BODY[:5000]) is WAIT
    visit.exchange.let_go()  # the connection breaks meanwhile
    assert site.budget.waiting == 0
    other.release()
    at = offset(site) or 0
    visit = Visit(site)
    assert visit.append(at, len(BODY) - at) is RECEIVE
    assert visit.bring(BODY[at:]) is CALL


def test_a_refusal_for_memory_drops_the_upload() -> None:
    site = Site(max_bytes=200 * KIB)
    other, visit = Reservation(site.budget), Visit(site)
    assert other.ask(150 * KIB)
    visit.begin()
    assert visit.bring(BODY[:5000]) is WAIT
    visit.exchange.refuse_for_memory()
    visit.exchange.end()
    assert (len(site.uploads), site.budget.reserved) == (0, 150 * KIB)


def test_a_long_header_takes_its_memory_in_steps_after_a_break_too() -> None:
    site = Site(max_bytes=KIB << 10)
    long = encode_request({"x": np.zeros(100_000)}, parameters={"filler": "-" * 100_000})
    body, fields = b"".join(long.buffers), [field for field in long.headers if field[0] != "Content-Length"]
    visit = Visit(site)
    visit.ask("POST", "/v2/models/m/infer", *fields, LAST, length=len(body))
    visit.bring(body[:40_000])
    visit.exchange.let_go()
    visit = Visit(site)
    assert visit.append(40_000, len(body) - 40_000) is RECEIVE
    assert visit.bring(body[40_000:90_000]) is None
    assert 90_000 <= visit.exchange.reservation.nbytes < 140_000
    assert visit.bring(body[90_000:]) is CALL


def test_a_small_upload_is_an_upload_too() -> None:
    site, body = Site(), b"".join(SMALL.buffers)
    fields = [field for field in SMALL.headers if field[0] != "Content-Length"]
    visit = Visit(site)
    visit.ask("POST", "/v2/models/m/infer", *fields, LAST, length=len(body))
    visit.bring(body[:-1])
    visit.exchange.let_go()
    visit = Visit(site)
    assert visit.append(len(body) - 1, 1) is RECEIVE
    assert visit.bring(body[-1:]) is CALL


def test_nothing_is_kept_of_a_connection_that_brings_no_upload() -> None:
    site = Site()
    visit = Visit(site)
    visit.ask("POST", "/v2/models/m/infer", *FIELDS, length=len(BODY))
    visit.bring(BODY[:70_000])
    visit.exchange.let_go()
    assert len(site.uploads) == 0


def test_a_server_that_stops_drops_all() -> None:
    site = Site()
    for _ in range(3):
        interrupted(site, 70_000)
    site.uploads.close()
    assert (len(site.uploads), site.budget.reserved) == (0, 0)


def test_after_a_thousand_attacks_nothing_is_left() -> None:
    """Whatever a client does in whatever order, in the end there is neither an upload nor a byte of memory."""
    site = Site(max_bytes=1 << 20, max_uploads=8)
    chance = np.random.default_rng(7)
    visits: list[Visit] = []
    for _ in range(1000):
        visit, name = Visit(site), str(chance.integers(200))
        act, at = chance.integers(5), int(chance.integers(9000))
        match act:
            case 0:
                step = visit.begin()
            case 1:
                step = visit.begin(MORE, ("Upload-Length", str(len(BODY))), length=0)
            case 2:
                step = visit.append(at, 100, MORE, target=name)
            case _:
                step = visit.ask("HEAD" if act == 3 else "DELETE", f"/v2/uploads/{name}")
        visits.append(visit)
        if step is RECEIVE:
            visit.bring(BODY[:at])
        if chance.integers(3) == 0:
            ended = visits.pop(chance.integers(len(visits))).exchange
            ended.let_go()
            ended.end()
        site.now += 1.0
        assert len(site.uploads) <= 8
    for visit in visits:
        visit.exchange.let_go()
        visit.exchange.end()
    site.now += 60.0
    site.uploads.expire()
    assert (len(site.uploads), site.budget.reserved, site.budget.waiting) == (0, 0, 0)


def test_an_id_is_not_shown() -> None:
    assert without_secret("/v2/uploads/abcdefghijkl") == "/v2/uploads/abcd..."
    assert without_secret("http://h/v2/uploads/abcdefgh?x") == "http://h/v2/uploads/abcd..."
    assert without_secret("/v2/models/m/infer") == "/v2/models/m/infer"
    assert without_secret("/v2/uploads/") == "/v2/uploads/"


def test_more_than_the_budget_is_refused_when_it_is_known() -> None:
    visit = Visit(Site(max_bytes=KIB))
    with pytest.raises(LimitExceededError):
        visit.exchange.begin(head("/v2/models/m/infer", "POST", [*FIELDS, LAST, ("Host", "here")], len(BODY)))


class Told:
    """An observer of one request."""

    model: str | None = None
    version: str | None = None
    request_id: str | None = None

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, head: RequestHead | None) -> None:
        assert head is not None
        self.events.append(head.method)

    def asks(self, inference: Inference) -> None:
        inference.watch = self
        self.model = inference.resolved.model.name
        self.events.append("asks")

    def answered(self, reply: Reply) -> None:
        self.events.append(str(reply.status))

    def call_begun(self, request: InferenceRequest) -> None:
        self.events.append(f"calls {request.model_name}")

    def call_ended(self) -> None:
        self.events.append("called")


def test_each_message_is_observed_by_itself() -> None:
    site = Site()
    first, second = Visit(site), Visit(site)
    first.exchange.watch, second.exchange.watch = told = Told(), Told()
    first.begin()
    first.bring(BODY[:5000])
    first.exchange.fail(BROKEN)
    assert site.uploads.find("0").inference.watch is None, "what is over has no observer"
    second.append(5000, len(BODY) - 5000)
    second.bring(BODY[5000:])
    second.call()
    assert told[0].events == ["POST", "asks", "400"]
    assert told[1].events == ["PATCH", "asks", "calls m", "called", "200"]
    assert [(each.model, each.request_id) for each in told] == [("m", "mine")] * 2


def test_an_upload_in_a_file_goes_when_the_model_has_answered(tmp_path: Path) -> None:
    """And stays if nobody is left to hear the answer."""
    site = Files(tmp_path)
    visit = Visit(site)
    assert visit.begin() is RECEIVE
    assert visit.bring(BODY) is CALL
    assert visit.exchange.inference is not None
    visit.exchange.end()
    assert offset(site) == len(BODY)
    visit = Visit(site)
    assert visit.append(len(BODY), 0) is RECEIVE
    assert visit.bring(b"") is CALL
    visit.call()
    assert (visit.status, visit.fields["Upload-Complete"]) == (200, "?1")
    assert offset(site) is None
    site.decides.uploads.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork, and no uploads in files")
@pytest.mark.parametrize("nbytes", [5000, len(BODY)])
def test_an_upload_that_is_in_use_for_long_outlives_its_process(tmp_path: Path, nbytes: int) -> None:
    """While its bytes come, and while the model works."""
    process = os.fork()
    if not process:
        site = Files(tmp_path)
        visit = Visit(site)
        has_begun = visit.begin() is RECEIVE
        visit.bring(BODY[:nbytes])
        site.now += 300.0
        site.decides.uploads.expire()
        os._exit(0 if has_begun else 1)  # with its locks, as if it was killed
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    site = Files(tmp_path)
    site.now += 350.0
    assert offset(site) == nbytes
    site.decides.uploads.close()


def test_an_upload_that_another_process_has_is_asked_for(tmp_path: Path) -> None:
    first, second = Files(tmp_path), Files(tmp_path)
    lost = Visit(first)
    assert lost.begin() is RECEIVE
    assert lost.bring(BODY[:5000]) is None
    for method in ("HEAD", "PATCH"):
        visit = Visit(second)
        fields = (PART, ("Upload-Offset", "5000"), LAST)
        assert visit.ask(method, "/v2/uploads/0", *fields) is ANSWER
        assert (visit.status, visit.fields["Retry-After"]) == (503, "1")
    first.decides.uploads.expire()
    assert lost.has_left
    assert offset(second) == 5000
    for site in (first, second):
        site.decides.uploads.close()


def test_an_upload_waits_for_a_model_that_is_not_ready(tmp_path: Path) -> None:
    for site in (Site(), Files(tmp_path)):
        ready = [True]
        site.models.replace(Model(name="m", predict=site.model.predict, ready=lambda: ready[0]))  # noqa: B023 - for this site
        interrupted(site, 5000)
        ready[0] = False
        visit = Visit(site)
        assert visit.append(5000, len(BODY) - 5000) is ANSWER
        assert visit.status == 503
        assert offset(site) == 5000
        site.decides.uploads.close()
