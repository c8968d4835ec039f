"""What is said if a server refuses, sends elsewhere, or cannot be reached: in words, and for programs."""

from __future__ import annotations

import copy
import pickle
import socket
from pathlib import Path

import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.client import AsyncClient, Client, ServerError, Timeout
from streamcodec.client.errors import Headers
from tests.client.answers.test_answers import GOOD, INPUTS
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted


@KINDS
def test_an_error_has_status_text_and_fields(kind: Kind) -> None:
    refusal = response(b'{"error":"later\\u0007"}', "Retry-After: 7", "X-A: 1", "x-a: 2", status="503 Busy")
    with scripted([refusal], [refusal]) as server, kind.client(server.url) as client:
        for call in (lambda: client.infer("m", INPUTS), lambda: client.call("server_metadata")):
            with pytest.raises(ServerError) as caught:
                call()
            error = caught.value
            assert (error.status, error.text, error.code) == (503, "later\a", ErrorCode.ERROR_RESPONSE)
            assert (error.headers["retry-after"], error.headers["X-A"]) == ("7", "1, 2")
            assert str(error) == r"503: later\x07"
            assert repr(error) == r"ServerError('503: later\\x07')"


@KINDS
def test_an_error_whose_words_cannot_be_read_has_its_fields(kind: Kind) -> None:
    refusal = response(b"?", "Content-Encoding: br", "Retry-After: 7", status="429 Too Many Requests")
    with scripted([refusal]) as server, kind.client(server.url) as client, pytest.raises(ServerError) as caught:
        client.infer("m", INPUTS)
    assert caught.value.headers["Retry-After"] == "7"


def test_an_error_can_be_copied_and_pickled() -> None:
    error = ServerError(413, "too large", Headers([(b"retry-after", b"1")]))
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - our own
        assert (other.status, other.text, str(other)) == (413, "too large", "413: too large")
        assert dict(other.headers) == {"retry-after": "1"}
    assert dict(ServerError(500, "").headers) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html>\r\n<head><title>413 Too Large</title></head>", "413 Too Large"),
        ("<!DOCTYPE html>\n<HTML><TITLE>\n No\x07 \n</TITLE>", r"No\x07"),
        ("<html><title></title>", "<html><title></title>"),
        ("no <title>page</title>", "no <title>page</title>"),
        ("<" * 499, "<" * 499),
    ],
)
def test_of_a_page_just_the_title_is_shown(text: str, words: str) -> None:
    error = ServerError(413, text)
    assert (str(error), error.text) == (f"413: {words}", text)


def test_fields_have_names_in_any_letter_case() -> None:
    headers = Headers([(b"X-A", b"1"), (b"b", b"\xe9"), (b"x-a", b"2")])
    assert (headers["x-A"], headers.get("B"), headers.get("c")) == ("1, 2", "\xe9", None)
    assert ("X-A" in headers, list(headers), len(headers)) == (True, ["x-a", "b"], 2)
    assert repr(headers) == "Headers({'x-a': '1, 2', 'b': 'é'})"


@KINDS
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"])
def test_redirections_are_errors_that_say_where_to(kind: Kind, status: str) -> None:
    answer = response(b"<html>", "Location: https://new.example/\x85" + "y" * 500, status=status)
    with scripted([answer]) as server, kind.client(server.url) as client, pytest.raises(ServerError) as caught:
        client.infer("m", INPUTS)
    assert str(caught.value).startswith(f"{status[:3]}: the server redirects to https://new.example/")
    assert "\\x85yyy" in str(caught.value)
    assert len(str(caught.value)) < 300


@KINDS
def test_an_answer_of_the_300s_that_names_no_place(kind: Kind) -> None:
    answer = response(b"choose", status="300 Choices")
    with (
        scripted([answer]) as server,
        kind.client(server.url) as client,
        pytest.raises(ServerError, match="300: choose"),
    ):
        client.infer("m", INPUTS)


@KINDS
def test_a_refused_connection_names_host_and_port(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with kind.client(f"http://127.0.0.1:{port}") as client, pytest.raises(ConnectionRefusedError) as caught:
        client.infer("m", INPUTS)
    assert f"no connection to 127.0.0.1:{port}: Connection refused" in str(caught.value)
    assert caught.value.errno


@KINDS
def test_a_name_that_nobody_has_is_named(kind: Kind) -> None:
    with kind.client("http://nobody.invalid:81") as client, pytest.raises(socket.gaierror) as caught:
        client.infer("m", INPUTS)
    assert "the name 'nobody.invalid' cannot be resolved: " in str(caught.value)


@KINDS
def test_a_host_without_addresses_is_named(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with kind.client("http://empty.invalid:81") as client:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
        with pytest.raises(OSError, match=r"no connection to empty\.invalid:81: 'empty\.invalid' has no address"):
            client.infer("m", INPUTS)


@KINDS
def test_a_server_that_does_not_take_the_connection_in_time_is_named(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:  # until the system takes no more
            sock.setblocking(False)
            sock.connect_ex(address)
        with (
            kind.client(f"http://127.0.0.1:{address[1]}", timeout=Timeout(connect=0.1)) as client,
            pytest.raises(TimeoutError, match=rf"no connection to 127\.0\.0\.1:{address[1]} within 0\.1 seconds"),
        ):
            client.infer("m", INPUTS)
        for sock in waiting:
            sock.close()


@KINDS
@pytest.mark.parametrize("answer", [b"\x15\x03\x01\x00\x02\x02\x0a", b""], ids=["an alert", "hangs up"])
def test_a_server_that_may_expect_tls(kind: Kind, answer: bytes) -> None:
    with (
        scripted([answer]) as server,
        kind.client(server.url) as client,
        pytest.raises(RemoteProtocolError, match="the server may expect TLS: https://"),
    ):
        client.infer("m", INPUTS)


@KINDS
@pytest.mark.parametrize("answer", [GOOD[:5], b"hello\r\n\r\n"])
def test_a_server_that_just_fails_is_not_said_to_expect_tls(kind: Kind, answer: bytes) -> None:
    with scripted([answer]) as server, kind.client(server.url) as client, pytest.raises(RemoteProtocolError) as caught:
        client.infer("m", INPUTS)
    assert "TLS" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_times_that_are_none(seconds: float) -> None:
    with pytest.raises(LocalProtocolError, match="greater than 0"):
        Timeout(read=seconds)
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError, match="greater than 0"):
            kind("http://h", timeout=seconds)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_arguments_without_a_meaning(kind: type[Client | AsyncClient], tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="max_connections must be at least 1, not 0"):
        kind("http://h", max_connections=0)
    with pytest.raises(LocalProtocolError, match="no certificates can be read there: No such file"):
        kind("https://h", verify=tmp_path / "none.pem")
