"""Observing: what a record tells, and what observers are told that ask for nothing."""

from __future__ import annotations

import pytest

from streamcodec import NEED_DATA, EndOfMessage
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.http.server import ServerConnection
from streamcodec.service import Ending, Inference, Observer, RequestRecord, ServerLoad, Service, demo_models

RAW = b"GET /v2?x HTTP/1.1\r\nHost: a\r\nTraceparent:  00-1 \r\ntraceparent: 00-2\r\nX-Traceparent: 3\r\n\r\n"


def _record(*, is_raw: bool) -> RequestRecord:
    connection = ServerConnection()
    connection.feed(RAW)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    record = RequestRecord("client", 1.5)
    record.head = head
    if is_raw:
        record.head = RequestHead(method="GET", target="/v2?x", fields=Fields(()), content_length=0)
        record.raw_head = RAW
    return record


@pytest.mark.parametrize("is_raw", [False, True])
def test_fields_are_those_of_the_request_itself(is_raw: bool) -> None:
    record = _record(is_raw=is_raw)
    assert (record.method, record.target) == ("GET", "/v2?x")
    assert record.field(b"traceparent") == [b"00-1", b"00-2"]
    assert record.field(b"host") == [b"a"]
    assert record.field(b"GET /v2?x HTTP/1.1\r\nHost") == []
    for _ in range(2):
        assert record.head is not None
        assert record.head.fields.values(b"traceparent") == [b"00-1", b"00-2"]
        assert record.field(b"traceparent") == [b"00-1", b"00-2"]
    record.raw_head = b""
    assert record.raw_head == b""
    record.head = None
    assert (record.head, record.method, record.field(b"host")) == (None, None, [])


def test_of_a_refused_head_nothing_is_known() -> None:
    record = RequestRecord("client", 0.0)
    assert (record.client, record.started, record.raw_head) == ("client", 0.0, b"")
    assert (record.model, record.version, record.request_id, record.code, record.cause) == (None,) * 5
    assert (record.method, record.target, record.field(b"host"), record.status) == (None, None, [], None)
    assert record.ending is Ending.COMPLETE
    assert (record.bytes_in, record.bytes_out, record.seconds, record.body_seconds) == (0, 0, 0.0, 0.0)
    assert (record.waiting_seconds, record.model_seconds, record.send_seconds) == (0.0, 0.0, 0.0)


def test_records_are_told_apart_by_themselves() -> None:
    assert len({RequestRecord("", 0.0), RequestRecord("", 0.0)}) == 2


def test_an_observer_that_asks_for_nothing() -> None:
    observer, record = Observer(), RequestRecord("", 0.0)
    for tell in (observer.request_begun, observer.call_begun, observer.call_ended, observer.request_ended):
        tell(record)

    def load() -> ServerLoad:
        raise AssertionError

    observer.server_begun(load)


def test_the_call_of_a_model_is_watched() -> None:
    found = []

    class Watch:
        request_id: str | None = None

        def call_begun(self, request: object) -> None:
            found.append(type(request).__name__)

        def call_ended(self) -> None:
            found.append("ended")

    body = b'{"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    fields = Fields(((b"content-length", b"%d" % len(body)),))
    head = RequestHead(method="POST", target="/v2/models/identity/infer", fields=fields, content_length=len(body))
    inference = Service(demo_models()).begin(head)
    assert isinstance(inference, Inference)
    assert inference.request_id is None
    inference.watch = Watch()
    inference.decoder.feed(body)
    while (event := inference.decoder.next_event()) is not NEED_DATA:
        inference.receive(event)  # type: ignore[arg-type]  # none asks for a turn
        if isinstance(event, EndOfMessage):
            break
    assert inference.run().status == 200
    assert found == ["InferenceRequest", "ended"]
    assert inference.request_id == "7"
