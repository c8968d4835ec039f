"""Remembered headers: a hit and a miss give the same answer, and nothing is kept that could be changed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streamcodec import (
    DEFAULT_LIMITS,
    HeaderCache,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_decoder,
    response_decoder,
)
from streamcodec.engine.cache import Cache
from streamcodec.testing import describe_error, describe_header
from tests.engine.triad import decode
from tests.formats.v2.messages import Message, binary, jsonic, request, response

AnyHeaders = HeaderCache[Any]


def requests() -> HeaderCache[RequestHeader]:
    return HeaderCache(parse_request_header)


PLAIN = [
    request(),
    request(binary("FP32", [2, 2], 16), payload=bytes(16)),
    request(binary("BYTES", [1], 5), payload=b"\1\0\0\0a"),
    request(binary("BOOL", [], 1), payload=b"\1", id="é", parameters={"a": 1, "b": 1.5, "c": None, "d": True}),
    request(*(binary("INT8", [1], 1, name=name, x=[{}]) for name in "abc"), payload=b"abc"),
    request(outputs=[{"name": "y"}, {"name": "z", "parameters": {"binary_data": True, "classification": 3}}]),
    response(),
    response(binary("INT64", [0, 3], 0), model_name="m", model_version="1", id="7"),
    response(binary("UINT8", [3], 3), payload=b"abc", parameters={"took": 0.5}),
    response({"name": "x", "datatype": "FP32", "shape": [0]}),
]
"""Accepted, and nothing in them that could be changed."""

CHANGEABLE = [
    request(jsonic("FP32", [2], [1, 2])),
    request(binary("FP32", [1], 4), jsonic("BYTES", [1], ["a"], name="y"), payload=bytes(4)),
    request(parameters={"a": [1]}),
    request(parameters={"a": {}}),
    request(binary("INT8", [1], 1) | {"parameters": {"binary_data_size": 1, "a": {"b": 1}}}, payload=b"a"),
    request(outputs=[{"name": "y", "parameters": {"a": []}}]),
    response(jsonic("FP32", [1], [None])),
    response(parameters={"a": []}),
]
"""Accepted, with something that whoever gets it could change."""

BAD = [
    request(binary("FP32", [2], 4), payload=bytes(4)),
    request(binary("FP33", [2], 8), payload=bytes(8)),
    request(binary("INT8", [1], 1), binary("INT8", [1], 1), payload=b"ab"),
    request(id=7),
    request(parameters={"a": float("nan")}),
    request(jsonic("INT8", [1], [300])),
    Message(body=b'{"inputs":[]', header_length=12, body_length=12),
    Message(body=b'{"inputs":[],"inputs":[]}', header_length=25, body_length=25),
    Message(body=b"\xff", header_length=1, body_length=1),
    response(binary("FP32", [2], 4), payload=bytes(4)),
]


def headers_for(message: Message, **options: int) -> AnyHeaders:
    parse: Any = parse_response_header if message.is_response else parse_request_header
    return HeaderCache(parse, message.limits, **options)


def text_of(message: Message) -> bytes:
    return message.body[: message.header_length]


def decoder_of(message: Message, headers: AnyHeaders) -> Any:  # noqa: ANN401 - of requests or responses
    make: Any = response_decoder if message.is_response else request_decoder
    return make(header_length=message.header_length, body_length=message.body_length, headers=headers)


@pytest.mark.parametrize("message", [*PLAIN, *CHANGEABLE, *BAD])
def test_hit_and_miss_give_the_same_answer(message: Message) -> None:
    headers = headers_for(message)
    expected = decode(message)
    missed = decode(lambda: decoder_of(message, headers_for(message)), message.body)
    hit = decode(lambda: decoder_of(message, headers), message.body)
    assert missed.log == hit.log == expected.log


@pytest.mark.parametrize("message", PLAIN)
def test_plain_headers_are_remembered(message: Message) -> None:
    headers, text = headers_for(message), text_of(message)
    first = headers.parse(text, message.limits)
    assert headers.parse(memoryview(bytearray(text)), message.limits) is first
    fresh = headers_for(message).parse(text, message.limits)
    assert fresh is not first
    assert describe_header(fresh) == describe_header(first)


@pytest.mark.parametrize("message", CHANGEABLE)
def test_what_could_be_changed_is_made_anew_each_time(message: Message) -> None:
    headers, text = headers_for(message), text_of(message)
    first, second = (headers.parse(text, message.limits) for _ in range(2))
    assert first is not second
    assert describe_header(first) == describe_header(second)


@pytest.mark.parametrize("message", BAD)
def test_what_is_refused_is_refused_anew_each_time(message: Message) -> None:
    headers = headers_for(message)
    errors: list[RemoteProtocolError] = []
    for _ in range(3):
        with pytest.raises(RemoteProtocolError) as info:
            headers.parse(text_of(message), message.limits)
        errors.append(info.value)
    assert len({id(error) for error in errors}) == 3
    assert len({describe_error(error) for error in errors}) == 1


def test_nothing_of_a_remembered_header_can_be_changed() -> None:
    message = request(
        binary("INT8", [1], 1), payload=b"a", parameters={"a": 1}, outputs=[{"name": "y", "parameters": {"b": 2}}]
    )
    header = requests().parse(text_of(message), DEFAULT_LIMITS)
    assert header.outputs is not None
    for owner, name in [(header, "id"), (header.tensors[0], "nbytes"), (header.outputs[0], "name")]:
        with pytest.raises(AttributeError):
            setattr(owner, name, None)
    changeable: list[Any] = [header.parameters, header.tensors[0].parameters, header.outputs[0].parameters]
    for parameters in changeable:
        with pytest.raises(TypeError):
            parameters["a"] = 3


def test_the_bytes_decide_and_not_what_they_mean() -> None:
    headers = requests()
    first, second = (headers.parse(text, DEFAULT_LIMITS) for text in (b'{"inputs":[]}', b'{"inputs":[] }'))
    assert first is not second


def test_memory_that_the_text_was_in_may_be_used_again() -> None:
    headers = requests()
    memory = bytearray(b'{"inputs":[],"id":"a"}')
    first = headers.parse(memory, DEFAULT_LIMITS)
    memory[-3:-2] = b"b"
    assert (first.id, headers.parse(memory, DEFAULT_LIMITS).id) == ("a", "b")


def test_other_limits_are_a_mistake_of_ours() -> None:
    headers = HeaderCache(parse_request_header, Limits(max_tensors=7))
    assert headers.limits == Limits(max_tensors=7)
    assert headers.parse(b'{"inputs":[]}', Limits(max_tensors=7)).tensors == ()
    with pytest.raises(LocalProtocolError, match="limits"):
        headers.parse(b'{"inputs":[]}', DEFAULT_LIMITS)
    with pytest.raises(LocalProtocolError, match="limits"):
        request_decoder(header_length=13, body_length=13, headers=headers, limits=DEFAULT_LIMITS)


def test_decoder_takes_the_limits_of_its_remembered_headers() -> None:
    message = request(binary("INT8", [9], 9), payload=bytes(9)).under(max_tensor_bytes=8)
    headers = headers_for(message)
    equal = Limits(max_tensor_bytes=8)
    for limits in (None, message.limits, equal):
        decoder = request_decoder(
            header_length=message.header_length, body_length=message.body_length, headers=headers, limits=limits
        )
        decoder.feed(message.body)
        with pytest.raises(LimitExceededError, match="8 are allowed"):
            decoder.next_event()


def test_long_headers_are_parsed_every_time() -> None:
    headers = HeaderCache(parse_request_header, max_header_bytes=20)
    for length, is_kept in [(20, True), (21, False)]:
        text = b'{"inputs":[]}'.ljust(length)
        assert (headers.parse(text, DEFAULT_LIMITS) is headers.parse(text, DEFAULT_LIMITS)) is is_kept


def test_the_oldest_header_goes_first() -> None:
    headers = HeaderCache(parse_request_header, max_headers=2)
    texts = [json.dumps({"id": name, "inputs": []}).encode() for name in "abc"]
    a, b, c = (headers.parse(text, DEFAULT_LIMITS) for text in texts)
    assert headers.parse(texts[2], DEFAULT_LIMITS) is c
    assert headers.parse(texts[1], DEFAULT_LIMITS) is b
    assert headers.parse(texts[0], DEFAULT_LIMITS) is not a


@pytest.mark.parametrize("max_entries", [0, 1, 3])
def test_store_is_bounded(max_entries: int) -> None:
    store: Cache[bytes, int] = Cache(max_entries, 8)
    for value in range(10):
        store.put(str(value).encode(), value)
        assert len(store) == min(value + 1, max_entries)
    assert [store.get(str(value).encode()) for value in range(10)] == [
        value if value >= 10 - max_entries else None for value in range(10)
    ]
    store.put(b"nine bytes", 9)
    assert store.get(b"nine bytes") is None


def test_a_key_keeps_its_first_value() -> None:
    store: Cache[bytes, int] = Cache(2, 8)
    for value in range(5):
        store.put(b"a", value)
        assert (store.get(b"a"), len(store)) == (0, 1)
    store.put(b"b", 7)
    assert (store.get(b"a"), store.get(b"b")) == (0, 7)


@pytest.fixture
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_take_turns_often")
def test_threads_may_share_a_store() -> None:
    store: Cache[bytes, int] = Cache(5, 8)
    wrong: list[object] = []

    def work() -> None:
        try:
            for turn in range(3000):
                value = turn * 7 % 11
                key = str(value).encode()
                store.put(key, value)
                if store.get(key) not in {value, None}:
                    wrong.append(key)
        except Exception as error:  # noqa: BLE001 - to be seen by the test
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store) <= 5
    for value in range(100, 105):
        store.put(str(value).encode(), value)
    assert len(store) == 5
