"""Limits of the place: what a server finds, says and chooses, and whether everybody gets an answer in it."""

from __future__ import annotations

import re
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.devices.processes import ROOT, address_space, group
from tests.processes import announced
from tests.server.programs import serving
from tests.server.wire import GET_LIVE, TIMEOUT, Wire, head, infer_request
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_MIB = 1 << 20
_CLIENTS = 60
_FOUND = re.compile(
    r"found: (?P<limit>[\d.,]+) MiB of (?P<kind>memory|address space), (?P<own>[\d.]+) of them taken before "
    r"requests, and (?P<free>\d+) free descriptors; chosen: (?P<budget>[\d.,]+) MiB for requests, (?P<connections>\d+) "
    r"connections at once(?P<fewer> instead of 512, for want of descriptors)?(, (?P<workers>\d+) threads for models)?"
)


def _few_descriptors(count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@contextmanager
def _started(limit: Callable[[], None], *arguments: str) -> Iterator[tuple[tuple[str, int], re.Match[str]]]:
    """Run a command that serves; yield its address, and what its line about limits says."""
    with subprocess.Popen(
        [sys.executable, "-m", "streamcodec", *arguments, "--port", "0", "--no-access-log"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limit,  # noqa: PLW1509 - this process has no threads that hold locks
    ) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], TIMEOUT)[0]
            port = int(announced(process.stdout).rpartition(":")[2])
            found = next(filter(None, map(_FOUND.match, process.stdout)))
            yield ("127.0.0.1", port), found
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("small", [(), ("--small",)], ids=["defaults", "small"])
def test_everybody_is_answered_although_descriptors_are_few(small: tuple[str, ...]) -> None:
    """More connections than descriptors, all open at once, each with a request."""
    with _started(_few_descriptors(32), "serve", *small) as (address, found), ExitStack() as stack:
        assert int(found["connections"]) < int(found["free"]) < 32
        _check_that_all_are_answered(address, stack, infer_request("identity", count=8))


@pytest.mark.slow
@pytest.mark.parametrize("small", [(), ("--small",)], ids=["defaults", "small"])
def test_everybody_is_answered_by_a_guard_with_few_descriptors(small: tuple[str, ...]) -> None:
    with serving() as behind, ExitStack() as stack:
        upstream = f"http://127.0.0.1:{behind.address[1]}"
        started = _started(_few_descriptors(48), "guard", "--upstream", upstream, *small)
        address, found = stack.enter_context(started)
        assert 2 * int(found["connections"]) < int(found["free"]) < 48
        _check_that_all_are_answered(address, stack, infer_request("identity", count=8))


def _status(address: tuple[str, int], request: bytes) -> int:
    with Wire(address) as wire:
        return wire.send(request).response().status


def _check_that_all_are_answered(address: tuple[str, int], stack: ExitStack, request: bytes) -> None:
    """Each gets an answer, or is let go in favour of others: nobody hangs."""
    wires = [stack.enter_context(Wire(address)) for _ in range(_CLIENTS)]
    statuses = []
    for wire in wires:
        try:
            statuses.append(wire.send(request).response().status)
        except (OSError, EOFError, AssertionError):  # idle until now, and closed for those who came later
            statuses.append(0)
    assert set(statuses) <= {0, 200, 503}
    with Wire(address) as wire:
        assert wire.send(request).response().status == 200
        assert wire.send(GET_LIVE).response().status == 200


def test_a_busy_server_with_few_descriptors_tells_others_to_come_back() -> None:
    unfinished = infer_request("identity", count=8)[:-1]
    with _started(_few_descriptors(32), "serve") as (address, found), ExitStack() as stack:
        busy = [stack.enter_context(Wire(address)) for _ in range(int(found["connections"]))]
        for wire in busy:
            wire.send(unfinished)
        request = head("/v2/models/identity", method="GET")
        until(lambda: _status(address, request) == 503)  # the newest connections may come first
        for _ in range(_CLIENTS):
            assert _status(address, request) == 503
            with Wire(address) as wire:
                assert wire.send(GET_LIVE).response().status == 200
        assert busy[-1].send(infer_request("identity", count=8)[-1:]).response().status == 200


@pytest.mark.parametrize("options", [(), ("--small",)], ids=["defaults", "small"])
def test_a_server_in_little_address_space_leaves_room_for_threads(options: tuple[str, ...]) -> None:
    with _started(address_space(224 * _MIB), "serve", *options) as (address, found), ExitStack() as stack:
        assert (found["kind"], found["limit"]) == ("address space", "224")
        assert 0 < 2 * float(found["budget"]) <= 224 - float(found["own"])
        assert int(found["workers"]) < 8, "so few by themselves, where stacks count"
        wires = [stack.enter_context(Wire(address)) for _ in range(8)]
        for wire in wires:
            wire.send(infer_request("identity", count=100_000))
        assert {wire.response().status for wire in wires} <= {200, 503}
        assert wires[0].send(infer_request("identity", count=8)).response().status == 200


@pytest.mark.parametrize("options", [(), ("--small",)], ids=["defaults", "small"])
def test_too_little_address_space_for_requests_is_told_in_a_line(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0", *options]
    limit = address_space(128 * _MIB)
    result = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert re.fullmatch(
        r"streamcodec: an address space of 128 MiB \(RLIMIT_AS, ulimit -v\) leaves [\d.]+ MiB for requests, and "
        r"at least 32 are needed; a control group .*\n",
        result.stderr,
    )


def test_in_much_address_space_a_server_is_of_the_usual_size() -> None:
    with _started(address_space(2048 * _MIB), "serve") as (_, found):
        assert found["workers"] == "8"


@contextmanager
def _group(mebibytes: int) -> Iterator[Callable[[], None]]:
    with ExitStack() as stack:
        try:
            limit = stack.enter_context(group("memory", limit_in_bytes=mebibytes * _MIB))
        except OSError:
            pytest.skip("no control group can be made here")
        yield limit


@pytest.mark.parametrize(
    ("mebibytes", "arguments", "is_small"),
    [(64, (), True), (192, (), True), (640, (), False), (640, ("--workers", "3"), True)],
    ids=str,
)
def test_a_server_is_small_by_itself_where_little_is_left(
    mebibytes: int, arguments: tuple[str, ...], is_small: bool
) -> None:
    with _group(mebibytes) as limit, _started(limit, "serve", *arguments) as (_, found):
        assert (found["kind"], found["limit"]) == ("memory", str(mebibytes))
        assert (int(found["workers"]) < 8) is is_small


def test_what_is_given_is_used() -> None:
    with _started(_few_descriptors(1024), "serve", "--small", "--max-memory", "3M", "--max-workers", "5") as (_, found):
        assert (found["budget"], found["workers"]) == ("3", "5")


def test_workers_share_what_is_left() -> None:
    with _started(_few_descriptors(1024), "serve", "--small", "--workers", "2") as (address, found):
        assert int(found["connections"]) <= 512
        with socket.create_connection(address):
            pass
        with Wire(address) as wire:
            assert wire.send(infer_request("identity", count=8)).response().status == 200
