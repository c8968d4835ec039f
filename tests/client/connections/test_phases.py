"""Each phase of a call has a time of its own without progress, and a call may have others than its client."""

from __future__ import annotations

import math
import socket
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError
from streamcodec.client import Client, Timeout
from tests.client.answers.test_answers import GOOD, INPUTS, VALUES
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import hung_up, scripted, stalling

LARGE = {"x": np.zeros(16 << 20, np.uint8)}
SHORT, LONG = 1.0, 60.0


def _take_late(sock: socket.socket) -> None:
    """Take nothing for a while, then everything, and answer at once."""
    time.sleep(2 * SHORT)
    left = LARGE["x"].nbytes
    while left > 0:
        left -= len(sock.recv(1 << 20))
    with suppress(ConnectionError):  # who did not wait for it
        sock.sendall(GOOD)


def _answer_late(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    time.sleep(2 * SHORT)
    with suppress(ConnectionError):  # who did not wait for it
        sock.sendall(GOOD)


@pytest.mark.slow
@KINDS
def test_the_time_of_writing_is_that_in_which_something_is_to_be_sent(kind: Kind) -> None:
    late = pytest.raises(TimeoutError, match=r"nothing has moved for 1 seconds")
    with stalling() as server, kind.client(server.url, timeout=Timeout(write=SHORT)) as client, late:
        client.infer("m", LARGE)
    with scripted([_take_late]) as server, kind.client(server.url, timeout=Timeout(write=LONG, read=SHORT)) as client:
        assert np.array_equal(client.infer("m", LARGE)["y"], VALUES)


@pytest.mark.slow
@KINDS
def test_the_time_of_reading_begins_when_all_is_sent(kind: Kind) -> None:
    late = pytest.raises(TimeoutError, match=r"nothing has moved for 1 seconds")
    with scripted([b"", hung_up]) as server, kind.client(server.url, timeout=Timeout(read=SHORT)) as client, late:
        client.infer("m", INPUTS)
    with scripted([_answer_late]) as server, kind.client(server.url, timeout=Timeout(write=SHORT, read=LONG)) as client:
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("timeout", [LONG, math.inf, Timeout(read=LONG), Timeout(read=None)])
def test_a_call_may_have_another_time_than_its_client(kind: Kind, timeout: float | Timeout) -> None:
    with scripted([_answer_late, _answer_late]) as server, kind.client(server.url, timeout=SHORT) as client:
        assert np.array_equal(client.infer("m", INPUTS, timeout=timeout)["y"], VALUES)
        with pytest.raises(TimeoutError):
            client.infer("m", INPUTS)


@KINDS
@pytest.mark.parametrize("seconds", ["5", 0, -1, math.nan, True, b"", [1]], ids=repr)
def test_what_is_no_time_is_refused_before_a_byte_is_sent(kind: Kind, seconds: Any) -> None:  # noqa: ANN401 - all kinds
    for name, words in (("timeout", "a timeout"), ("total_timeout", "total_timeout")):
        refused = pytest.raises(LocalProtocolError, match=f"^{words} must be a number of seconds greater")
        with refused:
            Client("http://127.0.0.1:1", **{name: seconds})
        with kind.client("http://127.0.0.1:1") as client, refused:
            client.infer("m", INPUTS, **{name: seconds})
