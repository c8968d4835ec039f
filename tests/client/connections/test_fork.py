"""A fork: the connections stay with the parent, and the child makes its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.client.answers.test_answers import GOOD
from tests.client.counting import counting
from tests.client.encrypted import encrypted
from tests.client.scripted import read_request
from tests.server.wire import TIMEOUT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")

AFTER = """
child = os.fork()
ask()
if child:
    assert os.waitpid(child, 0)[1] == 0
    ask()
"""
"""Both processes use what `ask` uses; each ends on its own."""

BLOCKING = f"""
import os, sys
from streamcodec.client import Client
client = Client(sys.argv[1], timeout=10, verify=False)
def ask():
    assert client.infer("m", {{"x": [1.0]}})["y"].tolist() == [0, 1, 2]
ask()
{AFTER}
"""
AWAITING = f"""
import os, sys, anyio
from streamcodec.client import AsyncClient
client = AsyncClient(sys.argv[1], timeout=10, verify=False)
async def infer():
    assert (await client.infer("m", {{"x": [1.0]}}))["y"].tolist() == [0, 1, 2]
def ask():
    anyio.run(infer)
ask()
{AFTER}
"""
TRITON = f"""
import os, sys
from streamcodec.tritonclient.http import InferenceServerClient
client = InferenceServerClient(sys.argv[1].removeprefix("http://"))
def ask():
    assert client.is_server_live()
ask()
{AFTER}
"""
IN_A_CALL = """
import os, sys
from streamcodec.client import Client
client = Client(sys.argv[1], timeout=10, max_connections=1)
def ask():
    assert client.infer("m", {"x": [1.0]})["y"].tolist() == [0, 1, 2]
with client.stream("m", {"x": [1.0]}) as events:
    next(events)
    before = client.sent_bytes
    child = os.fork()
    assert client.sent_bytes == before
    if child:
        assert os.waitpid(child, 0)[1] == 0
        assert len([*events]) == 2
    else:
        ask()
ask()
assert client.sent_bytes > before
"""


def _answer(_: int, sock: socket.socket) -> None:
    while True:
        sock.sendall(GOOD)
        read_request(sock)


def _run(code: str, url: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, url], check=True, timeout=TIMEOUT)


@pytest.mark.parametrize("code", [BLOCKING, AWAITING, TRITON], ids=["sync", "async", "tritonclient"])
def test_a_child_makes_its_own_connection_and_the_parent_keeps_its(code: str) -> None:
    with counting(_answer) as server:
        _run(code, server.url)
    assert server.accepted == 2


@pytest.mark.parametrize("code", [BLOCKING, AWAITING], ids=["sync", "async"])
def test_a_child_does_not_end_the_tls_of_its_parent(code: str) -> None:
    with counting(_answer) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with encrypted((host, int(port))) as url:
            _run(code, url)
    assert server.accepted == 2


def test_a_fork_within_a_call_leaves_it_to_the_parent() -> None:
    with counting(_answer) as server:
        _run(IN_A_CALL, server.url)
    assert server.accepted == 2
