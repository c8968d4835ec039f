"""Memory of a service: whose it is, and what of it may be kept."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Elements,
    EndOfMessage,
    HeaderReceived,
    LocalProtocolError,
    Tensor,
    TensorReceived,
    encode_request,
)
from streamcodec.engine.memory.placement import NewArray
from streamcodec.engine.spec import TensorSpec
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.service import (
    Batch,
    Inference,
    InferenceRequest,
    Model,
    ModelRegistry,
    Service,
    TensorMetadata,
    demo_models,
)
from streamcodec.service.memory.sizes import bytes_beside, bytes_of_objects
from streamcodec.service.models.model import Outputs
from streamcodec.service.request.plan import Recipe
from tests.service.requests import head

SPEC = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(1 << 20,), nbytes=1 << 20)


def _place(service: Service) -> object:
    head = RequestHead(method="POST", target="/v2/models/identity/infer", fields=Fields(()), content_length=1)
    inference = service.begin(head)
    assert isinstance(inference, Inference)
    return inference.resolved.place(SPEC)


def test_tensors_are_received_into_the_services_pool() -> None:
    service = Service(demo_models())
    assert service.pool is not None
    assert _place(service) is service.pool


def test_a_service_without_a_pool_takes_new_memory_each_time() -> None:
    service = Service(demo_models(), max_pool_bytes=0)
    assert service.pool is None
    assert isinstance(_place(service), NewArray)


def test_where_the_program_decides_there_is_no_pool() -> None:
    assert Service(demo_models(), place=lambda _: NewArray()).pool is None


def test_a_pool_that_could_never_be_meant() -> None:
    with pytest.raises(LocalProtocolError, match="not negative"):
        Service(ModelRegistry(), max_pool_bytes=-1)


# What a request takes


def _inference(body: bytes, *fields: tuple[str, str], length: int | None) -> Inference:
    message_head = head("/v2/models/identity/infer", "POST", fields, length)
    inference = Service(demo_models()).begin(message_head, pause_after_header=True)
    assert isinstance(inference, Inference)
    inference.decoder.feed(body)
    return inference


def _receive_header(inference: Inference) -> None:
    event = inference.decoder.next_event()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)


@pytest.mark.parametrize(
    ("length", "declared", "header_bytes", "is_whole"),
    [
        (None, None, None, False),
        (None, "70000", 70_000, False),
        (64 << 10, None, 64 << 10, True),
        ((64 << 10) + 1, None, (64 << 10) + 1, False),
        (100_000, "300", 300, False),
        (100_000, "0", 0, True),
    ],
)
def test_what_a_head_tells(length: int | None, declared: str | None, header_bytes: int, is_whole: bool) -> None:
    fields = [] if declared is None else [("Inference-Header-Content-Length", declared), ("Content-Length", "given")]
    model = Model(name="identity", predict=lambda _: {}, inputs=(TensorMetadata("x", "UINT8", (-1,)),))
    service = Service(ModelRegistry.of([model]))
    message_head = head("/v2/models/identity/infer", "POST", fields, length)
    inference = service.begin(message_head, pause_after_header=True)
    assert isinstance(inference, Inference)
    assert (inference.header_bytes, inference.resolved.is_whole) == (header_bytes, is_whole)
    assert inference.least_bytes == (int(declared or 0) if length is None else length)


def test_what_a_header_takes_while_it_comes_is_what_has_come() -> None:
    inference = _inference(b'{"inputs":[', length=1 << 30)
    assert inference.taken_bytes == len(b'{"inputs":[')


def test_what_a_request_takes_while_it_comes_is_what_has_come_and_what_was_made_of_it() -> None:
    values = ",".join(["1"] * 1000)
    text = (
        b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1000],"data":[%b]},'
        b'{"name":"y","datatype":"BYTES","shape":[100000],"parameters":{"binary_data_size":400000}}]}'
    ) % values.encode()
    length = ("Inference-Header-Content-Length", str(len(text)))
    inference = _inference(text + bytes(1000), length, length=len(text) + 400_000)
    _receive_header(inference)
    inference.decoder.next_event()
    inference.decoder.feed(bytes(1000))
    came = inference.decoder.offset
    assert inference.memory_bytes == len(text) + 400_000 + 16_000 + 800_000
    assert inference.held_bytes == came + 16_000
    assert inference.taken_bytes == came + 16_000 + 2 * came, "8 bytes for each 4, and no more before they come"


@pytest.mark.parametrize(
    ("elements", "nbytes"),
    [
        ([b""] * 100, 8 * 100),
        ([b"a"] * 100, (8 + 1) * 100 + 48 * 50),
        ([b"ab"] * 100, (8 + 2 + 48) * 100),
        ([b"a" * 1000], 8 + 1000 + 48),
        ([], 0),
    ],
)
def test_objects_are_counted_before_they_are_made_and_take_no_more(elements: list[bytes], nbytes: int) -> None:
    data = Elements(elements).data
    spec = TensorSpec(name="x", datatype=DATATYPES["BYTES"], shape=(len(elements),), nbytes=len(data), offset=0)
    assert bytes_of_objects((spec, SPEC)) == nbytes
    objects = Elements.from_wire(bytes(data), (len(elements),)).array
    mine = {id(each): sys.getsizeof(each) for each in objects.tolist() if len(each) > 1}
    assert objects.nbytes + sum(mine.values()) <= nbytes


def test_a_raw_element_is_copied_to_its_object() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["BYTES"], shape=(1,), nbytes=1000, offset=0, is_single_element=True)
    assert (bytes_beside(spec), bytes_of_objects((spec,))) == (1000, 0)


@pytest.mark.parametrize("takes_elements", [False, True])
@pytest.mark.parametrize("length", [None, "100"], ids=["at once", "as it comes"])
def test_a_model_that_takes_elements_makes_no_objects(takes_elements: bool, length: str | None) -> None:
    def first(request: InferenceRequest) -> Outputs:
        x = request.values["x"] if takes_elements else request.inputs["x"]
        assert isinstance(x, Elements if takes_elements else np.ndarray)
        if takes_elements:
            with pytest.raises(LocalProtocolError, match=r"take request\.values"):
                request.inputs["x"]
        return {"y": np.array([x[0]], object)}

    model = Model(name="identity", predict=first, is_inline=length is None, takes_elements=takes_elements)
    message = encode_request([Tensor(name="x", array=np.array([b"ab", b"c"], object))])
    request = head("/v2/models/identity/infer", "POST", message.headers, message.body_length)
    inference = Service(ModelRegistry.of([model])).begin(request)
    assert isinstance(inference, Inference)
    body = b"".join(message.buffers)
    if length is None:
        reply = Recipe(inference.resolved).infer(message.header_length, memoryview(body))
        assert reply is not None
    else:
        inference.decoder.feed(body)
        while not isinstance(event := inference.decoder.next_event(), EndOfMessage):
            assert isinstance(event, HeaderReceived | TensorReceived)
            inference.receive(event)
        reply = inference.run()
        offsets, objects = 16, 16 + 3 + 48
        assert inference.memory_bytes == len(body) + offsets + (0 if takes_elements else objects)
    assert reply.status == 200


def test_rows_of_elements_cannot_be_put_together() -> None:
    with pytest.raises(LocalProtocolError, match="leave out takes_elements or batch"):
        Model(name="m", predict=lambda _: {}, batch=Batch(max_rows=4), takes_elements=True)
