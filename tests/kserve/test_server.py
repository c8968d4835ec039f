"""KServe's ModelServer with ours installed answers as KServe's alone, and refuses early."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from streamcodec import EncodedMessage, RequestedOutput, Tensor, compress_message, encode_raw_request, encode_request
from tests.interop.servers.cases import CASES
from tests.interop.servers.exchanges import Answer, post, send
from tests.interop.tensors import NOT_FINITE, PLAIN, fingerprint
from tests.kserve.conftest import Start

X = np.arange(4, dtype=np.float32)
FIELDS = {b"date", b"content-length", b"content-type", b"transfer-encoding", b"inference-header-content-length"}
"""What may differ: KServe gives binary answers neither a type nor a length, and we align the tensors."""

THEIR_FAULTS = {"BF16", "BYTES not in UTF-8", "FP32 NaN payloads, quiet and signalling"}


def message(
    array: np.ndarray[Any, Any] = X, *, back: bool = True, is_binary: bool = True, **more: object
) -> EncodedMessage:
    outputs = [RequestedOutput(name="x", binary_data=back)]
    tensors = [Tensor(name="x", array=array, is_binary=is_binary)]
    if is_binary is False:
        tensors.append(Tensor(name="binary", array=X))
    return encode_request(tensors, outputs=outputs, request_id="7", parameters=more)


def told(answer: Answer) -> dict[str, Any]:
    """Say all of an answer that its client sees."""
    header = answer.header
    fields = sorted((name, value) for name, value in answer.fields.items if name not in FIELDS)
    return {
        "status": answer.status,
        "fields": [field for field in fields if field[0] != b"server"],
        "text": answer.text,
        "head": header and (header.id, header.model_name, header.model_version, dict(header.parameters)),
        "forms": header and answer.forms(),
        "parameters": header and [_without_size(spec.parameters) for spec in header.tensors],
        "outputs": {name: fingerprint(array) for name, array in answer.outputs.items()},
    }


def _without_size(parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - of a tensor
    return {name: value for name, value in parameters.items() if name != "binary_data_size"}


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("is_binary", [True, False])
def test_every_tensor_is_answered_as_by_theirs(theirs: str, ours: str, is_binary: bool, back: bool) -> None:
    compared = 0
    for name, array in CASES.items():
        if name in THEIR_FAULTS or (not is_binary and (name not in PLAIN or name in NOT_FINITE)):
            continue
        sent = message(array, is_binary=is_binary, back=back)
        answers = [post(url, "identity/infer", sent) for url in (theirs, ours)]
        if name.startswith("FP16") and not back:
            assert [answer.status for answer in answers] == [400, 400]
            assert all("Sending FP16 data via JSON is not supported" in answer.text for answer in answers)
        else:
            assert told(answers[1]) == told(answers[0]), name
            compared += 1
    assert compared > 20


def test_answers_in_json_have_the_same_bytes(theirs: str, ours: str) -> None:
    """With a null for each member that is missing: programs compare the texts."""
    names = [
        name for name in PLAIN if name not in THEIR_FAULTS and name not in NOT_FINITE and not name.startswith("FP16")
    ]
    for name in names:
        sent = message(CASES[name], back=False)
        found = [_body(url, sent) for url in (theirs, ours)]
        assert found[0].startswith(
            b'{"model_name":"identity","model_version":null,"id":"7","parameters":null,"outputs":'
        )
        assert found[0] == found[1], name
    assert len(names) > 9


def _body(url: str, sent: EncodedMessage) -> bytes:
    fields = {"Inference-Header-Content-Length": str(sent.header_length)}
    request = urllib.request.Request(f"{url}/v2/models/identity/infer", b"".join(sent.buffers), fields)  # noqa: S310 - ours
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as before
        return bytes(answer.read())


@pytest.mark.parametrize("name", sorted(THEIR_FAULTS))
def test_tensors_that_theirs_cannot_take_come_back_as_sent(ours: str, name: str) -> None:
    answer = post(ours, "identity/infer", message(CASES[name]))
    assert fingerprint(answer.outputs["x"]) == fingerprint(CASES[name])


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("nothing/infer", message()),
        ("late/infer", message()),
        ("identity/versions/1/infer", message()),
        ("identity/infer", message(fail="invalid")),
        ("identity/infer", message(fail="broken")),
        ("identity/infer", encode_request({"y": X}, outputs=[RequestedOutput(name="x")])),
        ("dictionary/infer", message()),
        ("identity/infer", encode_request([Tensor(name="x", array=X, is_binary=False)], request_id="1")),
        ("identity/infer", encode_request([Tensor(name="x", array=np.array(["a"], object), is_binary=False)])),
        ("arrays/infer", message()),
        ("sink/infer", encode_request({"a": X, "b": X})),
        ("nothing/else", message()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_and_all_that_is_not_binary_are_theirs(theirs: str, ours: str, path: str, sent: EncodedMessage) -> None:
    answers = [post(url, path, sent) for url in (theirs, ours)]
    mine, others = told(answers[1]), told(answers[0])
    for answer in (mine, others):  # made up where the request has none
        answer["head"] = answer["head"] and answer["head"][1:] if sent.header_length is None else answer["head"]
        if path == "sink/infer":
            answer["head"] = answer["head"][1:]
    assert mine == others


def test_hooks_get_all_and_may_change_all(theirs: str, ours: str) -> None:
    fields = [("X-Question", "42")]
    answers = [post(url, "hooked/infer", message(), fields=fields) for url in (theirs, ours)]
    assert told(answers[1]) == told(answers[0])
    assert answers[1].value(b"x-model") == answers[1].value(b"x-done") == "42"
    assert answers[1].value(b"content-type") == "application/octet-stream"
    assert told(answers[1])["parameters"] == [{"unit": "cm"}]
    assert answers[1].header is not None
    assert "content-length" in answers[1].header.parameters["seen"]


def fetch(url: str, path: str, body: bytes | None = None, **fields: str) -> tuple[int, str]:
    request = urllib.request.Request(url + path, body, fields)  # noqa: S310 - of this machine
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2", None),
        ("/v2/health/live", None),
        ("/v2/health/ready", None),
        ("/v2/models", None),
        ("/v2/models/identity", None),
        ("/v2/models/identity/ready", None),
        ("/v2/models/nothing/ready", None),
        ("/v1/models", None),
        ("/v1/models/dictionary:predict", b'{"instances": [[1, 2], [3, 4]]}'),
        ("/v2/models/identity/infer", b"{"),
        ("/v2/models/identity/infer", b""),
        ("/v2/models/seen/infer", b'{"id":"1","inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'),
    ],
)
def test_other_routes_are_theirs(theirs: str, ours: str, path: str, body: bytes | None) -> None:
    fields = {} if body is None else {"Content-Type": "application/json"}
    assert fetch(ours, path, body, **fields) == fetch(theirs, path, body, **fields)


def test_a_cloud_event_stays_theirs(theirs: str, ours: str) -> None:
    event = [("ce-specversion", "1.0"), ("ce-source", "s"), ("ce-type", "t"), ("ce-id", "1")]
    answers = [post(url, "identity/infer", message(back=False), fields=event) for url in (theirs, ours)]
    assert answers[0].status == answers[1].status
    assert answers[0].value(b"ce-type") == answers[1].value(b"ce-type") == "io.kserve.inference.response"


def test_metrics_count_our_requests(ours: str) -> None:
    def count() -> float:
        text = fetch(ours, "/metrics")[1]
        found = re.search(r'request_predict_seconds_count\{model_name="payloads"\} (\S+)', text)
        return 0.0 if found is None else float(found[1])

    before = count()
    post(ours, "payloads/infer", encode_request({"x": X}))
    assert count() == before + 1


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_understood(ours: str, algorithm: str) -> None:
    answer = post(ours, "identity/infer", compress_message(message(), algorithm))
    assert fingerprint(answer.outputs["x"]) == fingerprint(X)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_any_media_type_will_do(ours: str, content_type: str | None) -> None:
    sent = message()
    fields = [(name, value) for name, value in sent.headers if name != "Content-Type"]
    fields += [] if content_type is None else [("Content-Type", content_type)]
    answer = send(ours, "identity/infer", fields, sent.buffers)
    assert (answer.status, fingerprint(answer.outputs["x"])) == (200, fingerprint(X))


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
def test_a_known_head_changes_nothing(ours: str, is_cut: bool) -> None:
    """The first request with a head is received the ordinary way; the next ones take the short cut."""
    sent = message(np.arange(8, dtype=np.float32))
    body = b"".join(sent.buffers)
    header_length = sent.header_length or 0
    bodies = {
        "valid": (body, 200),
        "other data": (body[:-4] + b"abcd", 200),
        "other size": (body.replace(b'"shape":[8]', b'"shape":[9]'), 400),
        "no JSON": (b"x" + body[1:], 400),
    }
    start = head("identity/infer", len(body), f"X-Case: {is_cut}", header_length=header_length)
    for name, (content, status) in [*bodies.items(), *bodies.items()]:
        pieces = [start + content[:90], content[90:]] if is_cut else [start + content]
        found, data = answer_to(ours, pieces, until=content[-32:] if status == 200 else b"}")
        assert found == status, name
        if status == 200:
            assert data.endswith(content[-32:]), name


# Refusals.


def head(path: str, length: int, *fields: str, header_length: int = 100) -> bytes:
    lines = [f"POST /v2/models/{path} HTTP/1.1", "Host: x", f"Inference-Header-Content-Length: {header_length}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *fields, "", ""]).encode()


def answer_to(url: str, pieces: Iterable[bytes], *, until: bytes = b"}") -> tuple[int, bytes]:
    """Send pieces and nothing more; return status and all that comes until the server closes, or 5 s are over."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as sock:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(0.02)  # so that each piece is read by itself
        data = b""
        try:
            while b"\r\n\r\n" not in data or until not in data:
                if not (read := sock.recv(1 << 16)):
                    break
                data += read
        except TimeoutError:
            pass
    assert data, "the server has not answered"
    return int(data.split(b" ", 2)[1]), data


@pytest.mark.parametrize(
    ("path", "status"), [("nothing/infer", 404), ("identity/versions/1/infer", 501), ("late/infer", 503)]
)
@pytest.mark.parametrize("fields", [(), ("Expect: 100-continue",)], ids=["", "expect"])
def test_a_head_is_enough_to_refuse(ours: str, path: str, status: int, fields: tuple[str, ...]) -> None:
    found, data = answer_to(ours, [head(path, 1 << 30, *fields)])
    assert found == status
    assert b"connection: close" in data.lower()


def test_a_short_body_that_is_refused_keeps_its_connection(ours: str) -> None:
    assert b"connection: close" not in answer_to(ours, [head("nothing/infer", 1000)])[1].lower()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"inputs": [{"name": "x", "shape": [-1], "datatype": "FP32"}]}, "shape"),
        ({"inputs": [{"name": "x", "shape": [2], "datatype": "FP31"}]}, "FP31"),
        ({"inputs": [{"name": "x", "shape": [9], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}, "8"),
    ],
)
def test_a_header_is_enough_to_refuse(ours: str, header: object, reason: str) -> None:
    text = json.dumps(header).encode()
    begun = head("identity/infer", 1 << 28, header_length=len(text)) + text
    status, data = answer_to(ours, [begun])
    assert status == 400
    assert reason.encode() in data
    assert b"connection: close" in data.lower()


def test_a_raw_request_is_refused(ours: str) -> None:
    assert post(ours, "identity/infer", encode_raw_request(X)).status == 400


def test_memory_and_time_are_bounded(start: Start) -> None:
    with start(options={"max_memory_bytes": 1 << 20, "read_timeout": 0.3, "budget_timeout": 0.3}) as peer:
        large = message(np.zeros(1 << 20, np.float32))
        assert answer_to(peer.url, [head("identity/infer", large.body_length)])[0] == 413
        status, data = answer_to(peer.url, [head("identity/infer", 1000), b"{"])
        assert (status, b"slow" in data) == (408, True)
        assert fingerprint(post(peer.url, "identity/infer", message()).outputs["x"]) == fingerprint(X)


def test_requests_wait_for_memory_that_others_have(start: Start) -> None:
    """One request holds nearly all of it, and brings nothing more: the next one is told to try again."""
    parts = [*message(np.zeros(200_000, np.float32)).buffers]
    sent = message(np.zeros(200_000, np.float32))
    assert sent.header_length is not None
    begun = head("identity/infer", sent.body_length, header_length=sent.header_length) + bytes(parts[0])
    with (
        start(options={"max_memory_bytes": 1 << 20, "budget_timeout": 0.3}) as peer,
        socket.create_connection((urlsplit(peer.url).hostname, urlsplit(peer.url).port), timeout=5) as first,
    ):
        first.sendall(begun + bytes(parts[1][:400_000]))
        answer = post(peer.url, "identity/infer", sent)
        assert (answer.status, answer.value(b"retry-after")) == (503, "1")
        first.sendall(bytes(parts[1][400_000:]))
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        assert post(peer.url, "identity/infer", sent).status == 200


def test_a_client_that_does_not_read_gives_its_memory_to_others(start: Start) -> None:
    sent = message(np.zeros(10 << 20, np.float32))
    begun = head("identity/infer", sent.body_length, header_length=sent.header_length or 0)
    with (
        start(options={"max_memory_bytes": 70 << 20, "write_timeout": 0.5}) as peer,
        socket.create_connection((urlsplit(peer.url).hostname, urlsplit(peer.url).port), timeout=5) as first,
    ):
        first.sendall(begun + b"".join(sent.buffers))
        time.sleep(0.1)
        began = time.monotonic()
        assert post(peer.url, "identity/infer", sent).status == 200
        assert time.monotonic() - began < 8, "it did not have to wait until others give up"
        received = 0
        while read := first.recv(1 << 20):
            received += len(read)
        assert received < sent.body_length, "the answer was broken off"
