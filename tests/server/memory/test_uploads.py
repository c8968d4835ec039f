"""Uploads that can be resumed, over sockets: attacks, and that nothing is left of them."""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamcodec import LocalProtocolError, encode_request
from streamcodec.embedding.frontend import Frontend
from streamcodec.server import AccessLog, Server, ServerOptions
from streamcodec.service import Model, ModelRegistry, Service
from streamcodec.wsgi import App
from tests.server.memory.uploading import (
    BODY,
    FIELDS,
    LAST,
    MORE,
    Address,
    X,
    all_there,
    asked,
    begun,
    finished,
    offset,
    patch,
    settled,
)
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, chunked, floats, head
from tests.waiting import until

OPTIONS = ServerOptions(resumable_uploads=8, upload_timeout=30.0, read_timeout=60)
BACKENDS = ["asyncio", "uvloop", "trio"]
Served = tuple[Server, Address]


@pytest.fixture(scope="module", params=[*BACKENDS, "asyncio, files", "trio, files"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    backend, _, kind = request.param.partition(", ")
    options = replace(OPTIONS, upload_dir=tmp_path_factory.mktemp("server") / "uploads" if kind else None)
    with server_here(models(), options, backend=backend) as (server, address):
        yield server, address
        assert _count(server) == 0


def _count(server: Server) -> int:
    assert server._uploads is not None  # noqa: SLF001 - the number is no part of the public interface
    return len(server._uploads.uploads)  # noqa: SLF001


def reset(wire: Wire) -> None:
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.sock.close()


@pytest.mark.parametrize("nbytes", [0, 1, 100, 500_003])
def test_an_upload_goes_on_after_its_connection_was_closed(served: Served, nbytes: int) -> None:
    server, address = served
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:nbytes])
    at = settled(server, address, location)
    assert at == nbytes
    finished(address, location, at)
    until(lambda: server.reserved_bytes == 0)


def test_an_upload_goes_on_after_its_connection_was_reset(served: Served) -> None:
    server, address = served
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:500_003])
        reset(wire)
    until(lambda: server.requests_in_progress == 0)
    finished(address, location, offset(address, location))


@pytest.mark.parametrize("nbytes", [0, 500_003])
def test_a_connection_that_nobody_has_seen_break_gives_way(served: Served, nbytes: int) -> None:
    _, address = served
    with Wire(address) as lost:
        location = begun(lost, body=BODY[:nbytes])
        at = offset(address, location)
        assert at <= nbytes
        with suppress(ConnectionError):  # what comes late does no harm
            lost.send(bytes(10_000))
        assert offset(address, location) == at
        finished(address, location, at)
        assert is_over(lost)


def test_what_has_arrived_is_kept_when_a_connection_gives_way(served: Served) -> None:
    """Even if the server has not read it yet; what the client's system has not sent is lost with the connection."""
    _, address = served
    for nbytes in (len(BODY) - 1, 700_000):
        with Wire(address) as lost, Wire(address) as other:
            location = begun(lost)
            lost.send(BODY[:nbytes])
            all_there(lost)
            answer = other.send(head(location, method="HEAD")).response(has_body=False)
            assert int(answer.fields["upload-offset"]) == nbytes
        finished(address, location, nbytes)


def is_over(wire: Wire) -> bool:
    """Whether the server has ended a connection, on which nothing has been answered."""
    wire.sock.settimeout(60)
    try:
        return wire.sock.recv(1) == b""
    except ConnectionError:
        return True


def test_two_connections_append_at_the_same_time(served: Served) -> None:
    """The later one wins, whoever that is; the array has the bytes of the offsets, and of nobody else."""
    server, address = served
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:1000])
    at = settled(server, address, location)
    wires = [Wire(address) for _ in range(6)]

    def append(wire: Wire) -> None:
        with suppress(ConnectionError):
            wire.send(patch(location, at, len(BODY) - at), BODY[at : at + 100_000])

    threads = [threading.Thread(target=append, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wire in wires:
        wire.sock.close()
    for _ in range(2 * len(wires)):  # one that the server reads late ends the connection that finishes, or moves on
        at = offset(address, location)
        with Wire(address) as wire, suppress(ConnectionError):
            answer = wire.send(patch(location, at, len(BODY) - at), BODY[at:]).response()
            if answer.status != 409:
                break
    else:
        pytest.fail("there were not so many connections")
    assert floats(answer) == X.tolist()


def test_a_wrong_offset_is_refused_before_the_body(served: Served) -> None:
    server, address = served
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:1000])
    at = settled(server, address, location)
    for wrong in (0, 999, 1001):
        with Wire(address) as wire:
            answer = wire.send(patch(location, wrong, 500_000, MORE)).response()
            assert (answer.status, answer.fields["upload-offset"]) == (409, "1000")
    finished(address, location, at)


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (lambda location: patch(location, 0, len(BODY) + 1), 400),
        (lambda location: patch(location, 0, len(BODY) - 1), 400),
        (lambda location: patch(location, 0, 10, MORE, "Content-Encoding: gzip"), 415),
        (lambda location: patch(location, 0, 10, MORE).replace(b"partial-upload", b"octet-stream"), 415),
        (
            lambda location: (
                patch(location, 0, 10).replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
                + chunked(BODY, [10])
            ),
            411,
        ),
        (lambda location: head(location, method="GET"), 405),
    ],
    ids=["beyond the end", "ends too early", "compressed", "another type", "chunks", "method"],
)
def test_bad_pieces_are_refused_and_do_no_harm(served: Served, request_of: Callable[[str], bytes], status: int) -> None:
    _, address = served
    with Wire(address) as wire:
        location = begun(wire, MORE, f"Upload-Length: {len(BODY)}", "Content-Length: 0")
        assert wire.response().status == 201
    with Wire(address) as wire:
        assert wire.send(request_of(location)).response().status == status
    finished(address, location, offset(address, location))


def test_bad_beginnings_are_refused(served: Served) -> None:
    _, address = served
    for fields, status in (
        ((LAST, "Transfer-Encoding: chunked"), 411),
        ((MORE, "Content-Length: 0"), 411),
        ((LAST, "Content-Length: 10", "Content-Encoding: gzip"), 415),
        ((LAST, "Content-Length: 10", "Upload-Length: 11"), 400),
    ):
        with Wire(address) as wire:
            assert wire.send(head("/v2/models/identity/infer", *FIELDS, *fields)).response().status == status


def test_a_small_request_that_is_whole_is_an_upload_too(served: Served) -> None:
    """A request that could be answered at once, again and again, is not mistaken for one without the field."""
    _, address = served
    message = encode_request({"x": X[:4]}, parameters={"binary_data_output": True})
    lines, body = [f"{name}: {value}" for name, value in message.headers], b"".join(message.buffers)
    with Wire(address) as wire:
        for fields, is_upload in (((), False), ((LAST,), True), ((), False), ((LAST,), True)):
            answer = wire.send(head("/v2/models/identity/infer", *lines, *fields), body).response()
            assert floats(answer) == X[:4].tolist()
            assert ("upload-complete" in answer.fields) is is_upload


def test_ids_cannot_be_guessed(served: Served) -> None:
    _, address = served
    with Wire(address) as wire, Wire(address) as guesser:
        location = begun(wire)
        assert re.fullmatch(r"/v2/uploads/[A-Za-z0-9_-]{32}", location)
        for guess in ("", "0", location[-31:], location[12:-1], "../models", "%00", location[12:] + "/"):
            for method in ("HEAD", "DELETE"):
                answer = guesser.send(head(f"/v2/uploads/{guess}", method=method)).response(has_body=method != "HEAD")
                assert answer.status == 404
        wire.send(BODY)
        assert floats(wire.response()) == X.tolist()


def test_an_upload_is_cancelled_while_it_runs(served: Served) -> None:
    server, address = served
    until(lambda: server.reserved_bytes == 0)
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:700_000])
        assert asked(address, location, "DELETE").status == 204
        assert is_over(wire)
    assert asked(address, location).status == 404
    until(lambda: server.reserved_bytes == 0)


def test_what_the_model_refuses_is_its_own_affair(served: Served) -> None:
    server, address = served
    with Wire(address) as wire:
        location = begun(wire, body=BODY[:100_000], model="break")
    at = settled(server, address, location)
    with Wire(address) as wire:
        answer = wire.send(patch(location, at, len(BODY) - at), BODY[at:]).response()
        assert (answer.status, answer.fields["upload-complete"]) == (500, "?1")
    assert asked(address, location).status == 404


@contextmanager
def serving_with(
    backend: str = "asyncio",
    **options: Any,  # noqa: ANN401 - those of ServerOptions
) -> Iterator[Served]:
    with server_here(models(), replace(OPTIONS, **options), backend=backend) as (server, address):
        yield server, address


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_upload_that_nobody_resumes_is_dropped_by_itself(backend: str) -> None:
    with serving_with(backend, upload_timeout=0.1) as (server, address):
        with Wire(address) as wire:
            location = begun(wire, body=BODY[:700_000])
        until(lambda: (_count(server), server.reserved_bytes) == (0, 0))
        assert asked(address, location).status == 404


@pytest.mark.slow
def test_an_upload_that_never_ends_is_ended() -> None:
    """Each piece comes in time, and the next one too; all of them together do not."""
    with serving_with(request_timeout=3.0) as (server, address), Wire(address) as wire:
        location = begun(wire, MORE, f"Upload-Length: {len(BODY)}", "Content-Length: 0")
        assert wire.response().status == 201
        statuses = [wire.send(patch(location, at, 1, MORE), BODY[at : at + 1]).response().status for at in range(3)]
        assert statuses == [204, 204, 204]
        at = 3
        while wire.send(patch(location, at, 1, MORE), BODY[at : at + 1]).response().status == 204:
            at += 1
            time.sleep(0.01)
        assert _count(server) == 0


def test_a_client_that_is_too_slow_goes_on_later() -> None:
    with serving_with(read_timeout=1.0) as (_, address):
        with Wire(address) as wire:
            location = begun(wire, body=BODY[:1000])
            assert wire.response().status == 408
        finished(address, location, offset(address, location))


def test_interrupted_uploads_give_their_memory_to_others() -> None:
    with serving_with(max_memory_bytes=3 << 20, budget_timeout=600.0) as (server, address):
        with Wire(address) as first:
            gone = begun(first, body=BODY[:700_000])
        with Wire(address) as second:
            kept = begun(second, body=BODY[:700_000])
        until(lambda: server.requests_in_progress == 0 and server.reserved_bytes > 2 << 20)
        with Wire(address) as other:
            other.send(head("/v2/models/identity/infer", *FIELDS, f"Content-Length: {len(BODY)}"), BODY)
            assert floats(other.response()) == X.tolist(), "without waiting until an upload times out"
        assert asked(address, gone).status == 404
        finished(address, kept, offset(address, kept))


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_model_that_is_gone_ends_its_uploads(*, is_replaced: bool) -> None:
    registry = ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs)])
    with server_here(registry, OPTIONS) as (server, address):
        with Wire(address) as wire:
            location = begun(wire, body=BODY[:1000], model="m")
        at = settled(server, address, location)
        registry.remove("m")
        if is_replaced:
            registry.add(Model(name="m", predict=lambda request: request.inputs))
        with Wire(address) as wire:
            assert wire.send(patch(location, at, 10, MORE)).response().status == 404
        until(lambda: (_count(server), server.reserved_bytes) == (0, 0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_stops_keeps_nothing(backend: str) -> None:
    with serving_with(backend, shutdown_timeout=0.2) as (server, address):
        with Wire(address) as wire:
            begun(wire, body=BODY[:1000])
        running = Wire(address)
        begun(running, body=BODY[:1000])
    assert is_over(running)
    running.sock.close()
    assert (_count(server), server.reserved_bytes) == (0, 0)


def test_without_the_option_nothing_is_different() -> None:
    with server_here(models()) as (_, address), Wire(address) as wire:
        request = head("/v2/models/identity/infer", *FIELDS, LAST, f"Content-Length: {len(BODY)}")
        answer = wire.send(request, BODY).response()
        assert floats(answer) == X.tolist()
        assert "upload-complete" not in answer.fields
        assert wire.send(head("/v2/uploads/x", method="HEAD")).response(has_body=False).status == 404


def test_the_access_log_has_no_id() -> None:
    lines: list[str] = []
    log = AccessLog(write=lines.extend)
    with server_here(models(), OPTIONS, observer=log) as (server, address):
        with Wire(address) as wire:
            location = begun(wire, body=BODY[:1000])
        finished(address, location, settled(server, address, location))
    log.close()
    assert any(" PATCH /v2/uploads/" in line for line in lines)
    assert not any(location[12:][5:] in line for line in lines)


def test_servers_inside_a_framework_refuse_the_option() -> None:
    with pytest.raises(LocalProtocolError, match="resumable_uploads"):
        App(Service(ModelRegistry()), OPTIONS)
    with pytest.raises(LocalProtocolError, match="resumable_uploads"):
        Frontend(Service(ModelRegistry()), OPTIONS)
    with pytest.raises(LocalProtocolError, match="resumable_uploads must be an integer from 0 on"):
        ServerOptions(resumable_uploads=-1)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_ten_thousand_begun_uploads_are_bounded(backend: str) -> None:
    with serving_with(backend) as (server, address):
        with Wire(address) as wire:
            beginning = head(
                "/v2/models/identity/infer", *FIELDS, MORE, f"Upload-Length: {len(BODY)}", "Content-Length: 0"
            )
            statuses = [wire.send(beginning).response().status for _ in range(10_000)]
        assert statuses == [201] * 10_000, "each takes the place of one that nobody has gone on with"
        assert _count(server) == 8
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_thousand_broken_uploads_nothing_is_left(backend: str) -> None:
    chance = random.Random(5)  # noqa: S311 - not a secret
    with serving_with(backend) as (_, address), Wire(address) as wire:  # what a first event loop opens may stay open
        location = begun(wire, body=BODY[:1000])
        assert asked(address, location, "DELETE").status == 204
    threads, files = threading.active_count(), _open_files()
    with serving_with(backend, upload_timeout=0.3) as (server, address):
        for number in range(1000):
            with Wire(address) as wire:
                match number % 5:
                    case 0 | 1:
                        wire.send(
                            head(
                                "/v2/models/identity/infer",
                                *FIELDS,
                                MORE,
                                f"Upload-Length: {len(BODY)}",
                                "Content-Length: 0",
                            )
                        )
                        location = wire.response().fields.get("location", location)
                    case 2:
                        wire.send(patch(location, chance.randrange(3) * 1000, 5000, MORE), BODY[:1000])
                    case 3:
                        wire.send(patch(location, 0, 70_000, MORE), BODY[: chance.randrange(70_000)])
                    case _:
                        wire.send(head(location, method=chance.choice(["HEAD", "DELETE"])))
                if chance.random() < 0.5:
                    reset(wire)
        until(lambda: (server.requests_in_progress, _count(server), server.reserved_bytes) == (0, 0, 0))
        until(lambda: server.load().connections == 0)
        assert server.load().waiting_for_memory == 0
    assert _open_files() <= files
    assert threading.active_count() <= threads
