"""Departures: a client that leaves while an `async def` works ends that; one that only ends its direction does not."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Mapping

import anyio
import numpy.typing as npt
import pytest

from streamcodec.service import Ending, InferenceRequest, Model, ModelRegistry, Observer, RequestRecord
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, infer_request

SECONDS = 60
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])


class Waiting(Observer):
    """A model that waits for one second or ten, and what is found out about it."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.was_cancelled = threading.Event()
        self.has_ended = threading.Event()
        self.record: RequestRecord | None = None

    async def predict(self, request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        self.has_begun.set()
        try:
            await anyio.sleep(float(request.inputs["x"].size))
        except anyio.get_cancelled_exc_class():
            self.was_cancelled.set()
            raise
        return request.inputs

    def request_ended(self, request: RequestRecord) -> None:
        self.record = request
        self.has_ended.set()

    @property
    def models(self) -> ModelRegistry:
        return ModelRegistry.of([Model(name="m", predict=self.predict)])


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("way", ["close", "reset", "close with another request sent"])
def test_the_model_of_a_client_that_leaves_is_cancelled(
    backend: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Waiting()
    with server_here(model.models, backend=backend, observer=model) as (_, address):
        with Wire(address) as wire:
            wire.send(infer_request("m", count=SECONDS), GET_LIVE * (way.count("another")))
            assert model.has_begun.wait(SECONDS)
            if way == "reset":
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert model.was_cancelled.wait(3)
        assert model.has_ended.wait(3)
        assert model.record is not None
        assert (model.record.ending, model.record.status, model.record.cause) == (Ending.CLIENT_LEFT, None, None)
        assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
        with Wire(address) as other:
            assert other.send(GET_LIVE).response().status == 200


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_who_ends_its_own_direction_only_gets_its_answer(backend: str, version: bytes) -> None:
    model = Waiting()
    with server_here(model.models, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("m", count=1).replace(b"HTTP/1.1", b"HTTP/" + version))
        wire.sock.shutdown(socket.SHUT_WR)
        if version == b"1.1":  # asked, once, whether it is still there
            assert wire.response().status == 100
        assert floats(wire.response()) == [0.0]
        assert wire.is_closed()
    assert not model.was_cancelled.is_set()
