"""Express: the short cut gives the same answers as the ordinary way, when it sees a head first and when it knows it."""

from __future__ import annotations

import gc
import gzip
import logging
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import DATATYPES, NEED_DATA, NEED_TURN, Limits, Tensor, encode_request
from streamcodec.http import RequestHead
from streamcodec.http.heads.plain import read_plain_head
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.runtime.observation import Observers
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Reply, Service, demo_models
from streamcodec.transports.sockets.vectors import batches
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import request_of, service_for
from tests.server.wire import GET_LIVE, head, infer_request

FIXED = Dates(lambda: 0.0)
"""All is answered in the same second, so that answers can be compared."""

CASES = [pytest.param(case, id=str(case)) for case in read_corpus() if case.kind in {"request", "http-request"}]


class OrdinaryWay(RequestCache):
    """No short cut."""

    def find(self, incoming: object, last: object = None) -> None:
        """Leave everything to the ordinary way."""


class Counting(RequestCache):
    """Counts the requests that took the short cut."""

    count = 0

    def reply(self, *arguments):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN201 - as it is
        """Count what is answered."""
        answer = super().reply(*arguments)
        self.count += answer is not None
        return answer


def answers(service: Service, express: RequestCache, message: bytes) -> list[bytes]:
    """Send a request over a connection of its own, and the end after it; return what is sent, step by step."""
    session = Session(service, express, Admission(ServerOptions(max_connections=1)), FIXED)
    sent, taken = [], 0
    while True:
        step = session.next_event()
        if step is Step.SEND:
            sent.append(sent_by(session))
        elif step is Step.CALL:
            assert session.inference is not None
            session.answer(session.inference.run())
            sent.append(sent_by(session))
        elif step is Step.CLOSE:
            return [*sent, b"closed"]
        elif step is NEED_TURN:
            session.work()
        elif taken < len(message):
            taken += session.connection.feed(message[taken:])
        else:
            session.receive_eof()


def in_chunks(request: bytes, size: int = 1 << 20) -> bytes:
    """Return the same request with a body in chunks."""
    beginning, _, body = request.partition(b"\r\n\r\n")
    fields = re.sub(
        rb"Content-Length: \d+", b"Transfer-Encoding: chunked", beginning.replace(b"Inference-Header-Content-", b"*")
    )
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return fields.replace(b"*", b"Inference-Header-Content-") + b"\r\n\r\n" + framed + b"0\r\n\r\n"


def sent_by(session: Session) -> bytes:
    """Join what a session has to send."""
    return b"".join(chain.from_iterable(batches(session.outgoing)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_case_of_the_corpus_is_answered_alike(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    message = request_of(case)
    service = service_for(case, is_inline=True)
    ordinary, express = OrdinaryWay(service), RequestCache(service)
    wanted = answers(service, ordinary, message)
    assert answers(service, express, message) == wanted
    assert answers(service, express, message) == wanted
    # With a field that differs from one request to the next, the head is known by the rest of it.
    for number in (1, 2):
        varied = re.sub(rb"\n", b"\nTraceparent: 00-%d\r\n" % number, message, count=1)
        assert answers(service, express, varied) == answers(service, ordinary, varied)


def _packed(request: bytes, body: bytes | None = None) -> bytes:
    """Return a request as it is compressed; or with this body, which claims to be that."""
    beginning, _, plain = request.partition(b"\r\n\r\n")
    body = gzip.compress(plain) if body is None else body
    fields = re.sub(rb"(\r\nContent-Length:) \d+", rb"\1 %d\r\nContent-Encoding: gzip" % len(body), beginning)
    return fields + b"\r\n\r\n" + body


_GOOD: Final = infer_request(count=1000)
_PLAIN_BODY: Final = _GOOD.partition(b"\r\n\r\n")[2]
_PACKED_BODY: Final = gzip.compress(_PLAIN_BODY)

_SPECIAL: Final = {
    "two members": _packed(_GOOD, gzip.compress(_PLAIN_BODY[:300]) + gzip.compress(_PLAIN_BODY[300:])),
    "bytes behind it": _packed(_GOOD, _PACKED_BODY + b"x"),
    "a wrong checksum": _packed(_GOOD, _PACKED_BODY[:-8] + bytes(8)),
    "cut": _packed(_GOOD, _PACKED_BODY[:-1]),
    "not gzip": _packed(_GOOD, _PLAIN_BODY),
    "no body": _packed(_GOOD, b""),
    "much in little": _packed(infer_request(count=5000)),
    "long": _packed(_GOOD, gzip.compress(_PLAIN_BODY + np.random.default_rng(1).bytes(17_000))),
    "too much for its header": _packed(_GOOD, gzip.compress(_PLAIN_BODY + b"x")),
    "too little for its header": _packed(_GOOD, gzip.compress(_PLAIN_BODY[:-1])),
    "less than its header": _packed(_GOOD, gzip.compress(b"{}")),
    "a wrong header": _packed(_GOOD.replace(b"FP32", b"FP99")),
    "an unknown model": _packed(_GOOD.replace(b"identity", b"nobody--")),
    "in chunks": in_chunks(_packed(_GOOD), 100),
    "deflate": _packed(_GOOD).replace(b": gzip", b": deflate"),
    "twice": _packed(_GOOD).replace(b"Content-Encoding: gzip", b"Content-Encoding: gzip\r\nContent-Encoding: gzip"),
}


@pytest.mark.parametrize("name", _SPECIAL)
def test_what_is_special_about_a_compressed_request_is_answered_alike(name: str) -> None:
    service = Service(demo_models())
    ordinary, express = OrdinaryWay(service), Counting(service)
    assert answers(service, express, _packed(_GOOD)) == answers(service, ordinary, _packed(_GOOD))
    assert express.count == 1, "the form of its head is known"
    for message in (_SPECIAL[name], _SPECIAL[name] + GET_LIVE, _packed(_GOOD) + _SPECIAL[name]):
        assert answers(service, express, message) == answers(service, ordinary, message)


@pytest.mark.parametrize("count", [0, 1, 1000, 4000])
def test_a_small_compressed_request_takes_the_short_cut(count: int) -> None:
    service = Service(demo_models())
    ordinary, express = OrdinaryWay(service), Counting(service)
    packed = _packed(infer_request(count=count))
    message = packed + in_chunks(packed) + infer_request(count=count)
    wanted = answers(service, ordinary, message)
    assert wanted[0] == wanted[1] == wanted[2]
    for number in (1, 2):
        assert answers(service, express, message) == wanted
        assert express.count == 3 * number


def test_heads_that_differ_in_their_media_type_alone_are_not_confused() -> None:
    service = Service(demo_models())
    ordinary, express = OrdinaryWay(service), Counting(service)
    usual = infer_request()
    length = re.search(rb"Inference-Header-Content-Length: (\d+)", usual)
    assert length is not None
    types = [b"application/octet-stream", b"text/plain;json-header-size=1"]
    for size in (length[1], b"0", b"x"):
        sized = b"-triton.binary+json;json-header-size=" + size
        types += (b"application/vnd.sagemaker" + sized, b"application/vnd.vertex-ai" + sized)
    for content_type in types * 2:
        message = usual.replace(b"application/octet-stream", content_type)
        assert answers(service, express, message) == answers(service, ordinary, message)
    assert express.count == 12  # all but those whose media type tells the length of the header


@pytest.mark.parametrize("field", ["", "X-Trace: 1\r\n"])
def test_requests_in_one_write_are_answered_one_by_one(field: str) -> None:
    service = Service(demo_models())
    express = Counting(service)
    request = infer_request() + GET_LIVE + infer_request("sink", *field.split("\r\n")[:-1])
    assert answers(service, express, request * 3) == answers(service, OrdinaryWay(service), request * 3)
    assert express.count == 9


@pytest.mark.parametrize("cut", [10, 60, 200, 300])
def test_a_request_in_two_pieces_is_answered_by_either_way(cut: int) -> None:
    service = Service(demo_models())
    express, message = Counting(service), infer_request()
    session = Session(service, express, Admission(ServerOptions(max_connections=1)), FIXED)
    assert session.connection.feed(message[:cut]) == cut
    assert session.next_event() is NEED_DATA
    session.connection.feed(message[cut:])
    assert session.next_event() is Step.SEND
    assert sent_by(session) == answers(service, OrdinaryWay(service), message)[0]


@pytest.mark.parametrize(("count", "is_at_once"), [(13_000, True), (20_000, True), (20_001, False), (30_000, False)])
def test_json_that_needs_several_reads_is_answered_in_one_piece_by_a_quick_model(count: int, is_at_once: bool) -> None:
    values = b",".join([b"10.25"] * count)
    body = b'{"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","data":[%b]}]}' % (count, values)
    request = head("/v2/models/identity/infer", f"Content-Length: {len(body)}") + body
    service = Service(demo_models())
    model = service.models.find("identity", None)
    for _ in range(16):
        model.quickness.ran_in_thread(len(body), 0.0, 0.0, has_waited=False)
    express = Counting(service)
    wanted, *_ = answers(service, OrdinaryWay(service), request)
    assert answers(service, express, request)[0] == wanted, "and the form of the head is known"
    express.count = 0
    session = Session(service, express, Admission(ServerOptions()), FIXED)
    taken = 0
    while not session.answer_at_once() and (session.lacks_the_rest or not taken):
        taken += session.connection.feed(request[taken : taken + 50_000])
    assert express.count == is_at_once
    assert not is_at_once or sent_by(session) == wanted
    if is_at_once:
        session.connection.feed(b"GET / HTTP/1.1")
        assert session.next_event() is NEED_DATA
        assert len(session.connection.get_buffer()) < SCRATCH_BYTES, "who waits has the usual memory"


def test_a_model_that_is_not_quick_is_left_to_the_ordinary_way() -> None:
    service = Service(demo_models())
    service.models.add(Model(name="slow", predict=lambda request: request.inputs))
    express = Counting(service)
    session = Session(service, express, Admission(ServerOptions(max_connections=1)), FIXED)
    session.connection.feed(infer_request("slow"))
    assert session.next_event() is Step.CALL
    assert express.count == 0


def test_a_model_that_was_missing_can_be_added() -> None:
    service = Service(demo_models())
    express = Counting(service)
    late = Model(name="late", predict=lambda request: request.inputs, is_inline=True)
    assert answers(service, express, infer_request("late"))[0].startswith(b"HTTP/1.1 404")
    service.models.add(late)
    assert answers(service, express, infer_request("late"))[0].startswith(b"HTTP/1.1 200")
    assert express.count == 2


def test_readiness_is_asked_anew() -> None:
    service = Service(demo_models())
    express = Counting(service)
    ready = head("/v2/health/ready", method="GET")
    assert answers(service, express, ready)[0].startswith(b"HTTP/1.1 200")
    service.is_ready = False
    assert answers(service, express, ready)[0].startswith(b"HTTP/1.1 503")


ODD = {
    "big-endian": np.arange(6, dtype=">f4").reshape(2, 3),
    "transposed": np.arange(6, dtype="<i2").reshape(2, 3).T,
    "every other": np.arange(6, dtype="<f8")[::2],
    "scalar": np.array(3, dtype="<u4"),
    "empty": np.zeros((0, 3), dtype="<f4"),
    "bytes": np.array([b"a", b"bc"], dtype=object),
    "text": np.array(["a", "bc"]),
    "booleans": np.array([True, False]),
    "half": np.arange(3, dtype="<f2"),
    "bf16": np.ones(3, dtype=DATATYPES["BF16"].dtype),
}


@pytest.mark.parametrize("kind", ODD)
def test_outputs_of_any_kind_are_answered_alike(kind: str) -> None:
    models = [Model(name="odd", predict=lambda _: {"y": ODD[kind]}, is_inline=True)]
    service = Service(ModelRegistry.of(models))
    wanted = answers(service, OrdinaryWay(service), infer_request("odd"))
    assert wanted[0].startswith(b"HTTP/1.1 200")
    express = Counting(service)
    for _ in range(3):
        assert answers(service, express, infer_request("odd")) == wanted
    assert express.count == 3


def test_each_request_gets_arrays_of_its_own() -> None:
    kept = []

    def keep(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        kept.append(request.inputs["x"])
        return {}

    service = Service(ModelRegistry.of([Model(name="keep", predict=keep, is_inline=True)]))
    express = Counting(service)
    for value in (1.0, 2.0, 3.0):
        message = encode_request([Tensor(name="x", array=np.full(4, value))])
        fields = [f"{name}: {text}" for name, text in message.headers]
        request = head("/v2/models/keep/infer", *fields) + b"".join(message.buffers)
        assert answers(service, express, request)[0].startswith(b"HTTP/1.1 200")
    assert express.count == len(kept) == 3
    assert [array.tolist() for array in kept] == [[1.0] * 4, [2.0] * 4, [3.0] * 4]
    assert all(array.flags.writeable and array.ctypes.data % 64 == 0 for array in kept)


def test_a_request_for_another_host_is_refused_although_the_rest_of_its_head_is_known() -> None:
    service = Service(demo_models(), allowed_hosts=["x"])
    express, message = Counting(service), infer_request("identity", "X-Trace: 1")
    for number in range(3):
        varied = message.replace(b"Trace: 1", b"Trace: %d" % number)
        assert answers(service, express, varied)[0].startswith(b"HTTP/1.1 200")
        for host in (b"evil.example", b"y"):
            other = varied.replace(b"Host: x", b"Host: " + host)
            assert answers(service, express, other)[0].startswith(b"HTTP/1.1 421")
    assert express.count == 9


@pytest.mark.slow
@pytest.mark.parametrize("model", ["nobody", "identity/infer", "%"])
def test_a_refusal_leaves_nothing_to_the_garbage_collector(model: str) -> None:
    service = Service(demo_models())
    express = RequestCache(service)
    request = head(f"/v2/models/{model}", method="GET")
    answers(service, express, request)
    gc.collect()
    gc.disable()
    try:
        answers(service, express, request)
        few = gc.collect()
        answers(service, express, request * 50)
        assert gc.collect() <= few, "what a connection leaves, and no more for more requests"
    finally:
        gc.enable()


CLOSING = "Connection: close"


def compressed(request: bytes, *, times: int = 1, encoding: str = "gzip") -> bytes:
    """Return a request with its body compressed, to one member of gzip or several."""
    head_text, _, body = request.partition(b"\r\n\r\n")
    cut = len(body) // times
    members = [gzip.compress(body[cut * number : cut * (number + 1)], mtime=0) for number in range(times)]
    data = b"".join(members)
    length = re.sub(rb"\r\nContent-Length: \d+", b"\r\nContent-Length: %d" % len(data), head_text)
    assert length != head_text
    return b"%b\r\nContent-Encoding: %b\r\n\r\n%b" % (length, encoding.encode(), data)


AT_ONCE = {
    "closing": infer_request("identity", CLOSING),
    "closing, and more behind it": infer_request("identity", CLOSING) + GET_LIVE,
    "in a chunk": in_chunks(infer_request()),
    "in a chunk, and closing": in_chunks(infer_request("identity", CLOSING)),
    "compressed": compressed(infer_request()),
    "compressed, and closing": compressed(infer_request("identity", CLOSING)),
    "compressed, and refused": compressed(infer_request("nobody")),
    "compressed, and its header refused": compressed(infer_request().replace(b"FP32", b"FP99")) + GET_LIVE,
    "refused, and closing": infer_request("nobody", CLOSING),
}
NOT_AT_ONCE = {
    "compressed in two members": compressed(infer_request(), times=2),
    "compressed to nothing": compressed(infer_request())[:-30] + bytes(30),
    "compressed with another checksum": compressed(infer_request())[:-8] + bytes(8),
    "compressed, and bytes behind it": compressed(infer_request()).replace(b"\x1f\x8b", b"\x1f\x8b\x1f\x8b"),
    "compressed in another way": compressed(infer_request(), encoding="deflate"),
    "compressed twice": compressed(infer_request(), encoding="gzip, gzip"),
    "in large letters": compressed(infer_request(), encoding="GZIP"),
    "not compressed": infer_request("identity", "Content-Encoding: gzip"),
    "in two chunks": in_chunks(infer_request(), 100),
    "in a chunk, and refused": in_chunks(infer_request("nobody")),
    "in a chunk, and its header refused": in_chunks(infer_request().replace(b"FP32", b"FP99")),
    "in chunks that are none": in_chunks(infer_request()).replace(b"\r\n0\r\n", b"\r\n;\r\n"),
    "in chunks without a number": in_chunks(infer_request()).replace(b"\r\n0\r\n", b"\r\nx\r\n"),
    "with a trailer": in_chunks(infer_request())[:-2] + b"X: y\r\n\r\n",
    "with a length, too": in_chunks(infer_request()).replace(b"Host: x", b"Host: x\r\nContent-Length: 5"),
}


@pytest.mark.parametrize(
    ("name", "is_at_once"), [*((name, True) for name in AT_ONCE), *((name, False) for name in NOT_AT_ONCE)]
)
def test_other_framings_are_answered_alike(name: str, is_at_once: bool) -> None:
    service = Service(demo_models())
    express, message = Counting(service), (AT_ONCE | NOT_AT_ONCE)[name]
    assert answers(service, express, message) == answers(service, OrdinaryWay(service), message)
    assert bool(express.count) is is_at_once


@pytest.mark.parametrize("fields", [(), ("Origin: https://a.example",), ("Origin: null", "Origin: https://a.example")])
@pytest.mark.parametrize(
    "options", [{}, {"cors_origins": ["*"]}, {"cors_origins": ["https://a.example"]}, {"compresses": True}]
)
def test_the_fields_of_a_service_are_in_each_answer(options: dict[str, Any], fields: tuple[str, ...]) -> None:
    service = Service(demo_models(), **options)
    requests = infer_request("identity", *fields), head("/v2", *fields, method="GET"), infer_request("nobody", *fields)
    express, message = Counting(service), b"".join(requests)
    for _ in range(2):
        assert answers(service, express, message) == answers(service, OrdinaryWay(service), message)
    assert express.count == 6


@pytest.mark.parametrize("wrong", [(b"FP32", b"FP99"), (b'"shape":[', b'"shape":[1,')])
def test_a_refused_request_is_counted_for_its_model(wrong: tuple[bytes, bytes]) -> None:
    service = Service(demo_models())
    records = []
    for express in (RequestCache(service), OrdinaryWay(service)):
        observe = Observers([]).of("")
        session = Session(service, express, Admission(ServerOptions()), FIXED, observe)
        session.connection.feed(infer_request().replace(*wrong))
        assert session.next_event() is Step.SEND
        record = session.observation
        assert record is not None
        records.append((record.model, record.version, record.request_id, record.status, record.code))
    assert records[0] == records[1]
    assert records[0][:2] == ("identity", "1")


def test_a_page_goes_the_ordinary_way() -> None:
    service = Service(demo_models())
    service.add_page("/page", lambda: Reply(status=200, headers=[("Connection", "close")]))
    express, message = Counting(service), head("/page?x", method="GET")
    assert answers(service, express, message) == answers(service, OrdinaryWay(service), message)
    assert express.count == 0


UNPLAIN = {
    "compressed": head("/v2/models/identity/infer", "Content-Encoding: deflate", "Content-Length: 0"),
}


@pytest.mark.parametrize("name", UNPLAIN)
def test_a_head_that_is_not_plain_is_read_once_and_by_the_ordinary_way(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def noted(text: bytes, limits: Limits) -> RequestHead | None:
        read.append(text)
        return read_plain_head(text, limits)

    monkeypatch.setattr("streamcodec.http.server.read_plain_head", noted)
    service = Service(demo_models())
    session = Session(service, RequestCache(service), Admission(ServerOptions()), FIXED)
    session.connection.feed(UNPLAIN[name])
    for _ in range(3):  # who looks first, who looks next, and the task that has waited
        assert not session.answer_at_once()
    session.next_event()
    assert len(read) == 1


def test_a_small_request_behind_one_that_was_not_plain_takes_the_short_cut() -> None:
    service = Service(demo_models())
    express = Counting(service)
    session = Session(service, express, Admission(ServerOptions()), FIXED)
    session.connection.feed(GET_LIVE.replace(b"GET", b"PUT") + GET_LIVE)
    assert session.next_event() is Step.SEND
    assert express.count == 0
    session.has_sent()
    assert session.next_event() is Step.SEND
    assert express.count == 1
