"""Memory of a service: whose it is, and what of it may be kept."""

from __future__ import annotations

import pytest

from streamcodec import DATATYPES, LocalProtocolError
from streamcodec.core.model import TensorSpec
from streamcodec.core.placement import NewArray
from streamcodec.http.messages import Fields, RequestHead
from streamcodec.service import Inference, ModelRegistry, Service, demo_models

SPEC = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(1 << 20,), nbytes=1 << 20)


def _place(service: Service) -> object:
    head = RequestHead(method="POST", target="/v2/models/identity/infer", fields=Fields(()), content_length=1)
    inference = service.begin(head)
    assert isinstance(inference, Inference)
    return inference.opening.place(SPEC)


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
