"""What a client's user says in the head of a request, who wins, what is refused, and that no secret is shown."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from streamcodec import LocalProtocolError
from streamcodec.client import AsyncClient, Client, ServerError
from streamcodec.client.connections.address import Address
from streamcodec.client.fields import Headers, RequestFields
from tests.client.answers.test_answers import GOOD, INPUTS
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import Scripted, response, scripted

ALADDIN = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
"""RFC 7617, section 2."""


def _fields(server: Scripted, number: int = -1) -> list[tuple[str, str]]:
    head, _, _ = server.requests[number].partition(b"\r\n\r\n")
    return [(name, value) for name, _, value in (line.partition(": ") for line in head.decode().split("\r\n")[1:])]


@KINDS
def test_a_calls_fields_win_over_the_clients_whatever_the_letter_case(kind: Kind) -> None:
    common = [("X-Tenant", "a"), ("x-trace", "1"), ("X-Trace", "2"), ("User-Agent", "mine")]
    with scripted([GOOD] * 5) as server, kind.client(server.url, headers=common) as client:
        client.infer("m", INPUTS, headers={"X-TRACE": "3", "Accept": "*/*"})
        client.infer("m", INPUTS)
        client.call("infer_raw", "m", [1.0], headers={"x-tenant": "b"})
        with client.stream("m", INPUTS, headers=iter([("X-Tenant", "c")])) as events:
            list(events)
    host = ("Host", server.url.removeprefix("http://"))
    first = [host, ("X-Tenant", "a"), ("User-Agent", "mine"), ("X-TRACE", "3"), ("Accept", "*/*")]
    assert _fields(server, 0)[: len(first)] == first
    assert _fields(server, 1)[:5] == [host, *common]
    assert ("x-tenant", "b") in _fields(server, 2)
    assert ("X-Tenant", "c") in _fields(server, 3)
    assert ("X-Tenant", "a") not in _fields(server, 3)


@KINDS
@pytest.mark.parametrize(
    ("method", "arguments"),
    [("server_metadata", ()), ("model_metadata", ("m",)), ("is_server_live", ()), ("is_server_ready", ()),
     ("is_model_ready", ("m", "1"))],
)  # fmt: skip
def test_documents_and_states_are_asked_for_with_fields_too(
    kind: Kind, method: str, arguments: tuple[str, ...]
) -> None:
    with scripted([response(b"{}")]) as server, kind.client(server.url, auth="t0ken") as client:
        client.call(method, *arguments, headers={"X-Trace": "7"}, timeout=60, total_timeout=5)
    assert _fields(server)[1:] == [
        ("User-Agent", _fields(server)[1][1]),
        ("Authorization", "Bearer t0ken"),
        ("X-Trace", "7"),
    ]


@KINDS
def test_a_host_of_ones_own_is_the_first_field_and_the_only_host(kind: Kind) -> None:
    with scripted([GOOD, GOOD]) as server, kind.client(server.url, headers={"host": "model.example.org:80"}) as client:
        client.infer("m", INPUTS)
        client.infer("m", INPUTS, headers={"Host": "[::1]"})
    for number, host in ((0, ("host", "model.example.org:80")), (1, ("Host", "[::1]"))):
        fields = _fields(server, number)
        assert fields[0] == host
        assert [name.lower() for name, _ in fields].count("host") == 1


def _made(fields: RequestFields, headers: Headers | None = None) -> list[str]:
    return [value for name, value in fields.of_call(headers) if name.lower() == "authorization"]


def test_whose_word_counts() -> None:
    plain, known = Address.of("http://h"), Address.of("https://Aladdin:open%20sesame@h")
    assert _made(RequestFields(plain)) == []
    assert _made(RequestFields(known)) == [ALADDIN]
    assert _made(RequestFields(plain, auth=("Aladdin", "open sesame"))) == [ALADDIN]
    assert _made(RequestFields(known, auth="token")) == ["Bearer token"]
    assert _made(RequestFields(known, {"authorization": "Own x"}, auth="token")) == ["Own x"]
    assert _made(RequestFields(known, {"authorization": "Own x"}, "token"), {"Authorization": "Own y"}) == ["Own y"]
    assert _made(RequestFields(Address.of("http://user@h"))) == ["Basic dXNlcjo="]


def test_a_token_is_asked_for_once_for_each_request_that_needs_it() -> None:
    numbers = count(1)
    fields = RequestFields(Address.of("http://h"), auth=lambda: f"token-{next(numbers)}")
    assert _made(fields) == ["Bearer token-1"]
    assert _made(fields, {"Authorization": "Own"}) == ["Own"]
    assert _made(fields) == ["Bearer token-2"]


def _broken() -> str:
    raise KeyError


@KINDS
def test_a_token_that_cannot_be_had_is_the_callers_matter(kind: Kind) -> None:
    with scripted() as server, kind.client(server.url, auth=_broken) as client, pytest.raises(KeyError):
        client.infer("m", INPUTS)


OURS = ["Content-Length", "transfer-encoding", "Inference-Header-Content-Length", "Content-Encoding", "CONNECTION",
        "Content-Type", "Accept-Encoding", "Expect", "Upgrade", "TE", "Trailer", "Keep-Alive",
        "Proxy-Connection"]  # fmt: skip


def _refused() -> Iterator[tuple[dict[str, Any], str]]:
    for name in OURS:
        yield {"headers": {name: "x"}}, f"only the client may set the field '{name}'"
    yield {"headers": {"Accept-Encoding": "gzip"}}, "response_compression"
    yield {"headers": {"A B": "secret"}}, "'A B' cannot be the name"
    yield {"headers": {"Authorization": "Bearer secret\n"}}, "field 'Authorization' is not allowed"
    yield {"headers": {"X": "secret\r\nY: z"}}, "field 'X' is not allowed"
    yield {"headers": [("Host", "a"), ("host", "b")]}, "Host must be one name"
    yield {"headers": {"Host": ""}}, "Host must be one name"
    yield {"headers": {"Host": "a/b"}}, "Host must be one name"
    yield {"headers": {"X": 1}}, "must be str"
    yield {"headers": {b"X": "1"}}, "must be str"
    yield {"headers": 7}, "mapping"
    yield {"headers": ["secret"]}, "pairs"
    yield {"auth": "secret\n"}, "field 'Authorization' is not allowed"
    yield {"auth": ("a:b", "secret")}, "auth must be a pair"
    yield {"auth": ("secret",)}, "auth must be a pair"
    yield {"auth": 7}, "auth must be a pair"
    yield {"auth": (b"a", b"secret")}, "auth must be a pair"


@pytest.mark.parametrize(("options", "text"), [*_refused()])
def test_what_cannot_be_said_is_refused_at_once_and_not_quoted(options: dict[str, Any], text: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError, match=text) as caught:
            kind("http://h", **options)
        assert "secret" not in str(caught.value)


@KINDS
def test_a_calls_fields_are_refused_before_a_byte_is_sent(kind: Kind) -> None:
    with scripted() as server, kind.client(server.url, auth=lambda: "bad\n") as client:
        with pytest.raises(LocalProtocolError, match="Content-Length"):
            client.infer("m", INPUTS, headers={"Content-Length": "5"})
        with pytest.raises(LocalProtocolError, match="is not allowed"):
            client.infer("m", INPUTS)
    assert server.accepted == 0


@pytest.mark.parametrize(
    "url",
    ["ftp://user:secret@h", "http://user:secret@", "http://user:secret@h:x", "http://user:sec/ret@h:1", "http://u:secret@h/?q",
     "http://u:secret@h\n", "http://u:sec@ret@h:99999", "user:secret@h:8000", "//user:secret@h", "http:user:secret@h",
     "https:/user:secret@h", "HTTP://user:secret@h:x", "http+unix:/user:secret@%2Fx", "user:sec\nret@h"],
)  # fmt: skip
def test_credentials_in_a_url_that_is_none_are_not_shown(url: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Client(url)
    assert "sec" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("path", ["/a b", "/a ", "/ü", "/a\x7f", "/\N{EM SPACE}"])
@pytest.mark.parametrize("start", ["http://u:secret@127.0.0.1:1", "http+unix://u:secret@%2Fs"], ids=["TCP", "Unix"])
def test_a_path_that_is_not_percent_encoded_is_refused_with_advice(start: str, path: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"percent-encode it, as urllib\.parse\.quote\(path\) does") as caught:
        Client(start + path)
    assert "secret" not in str(caught.value)
    assert Address.of(start + quote(path)).prefix == quote(path)


def test_credentials_are_not_shown() -> None:
    address = Address.of("https://user:secret@example.org:444/a")
    assert (address.credentials, address.port, address.is_secure) == (("user", "secret"), 444, True)
    assert "secret" not in repr(address) + address.place + address.authority
    with Client("http://user:secret@127.0.0.1:1") as client, pytest.raises(ConnectionRefusedError) as caught:
        client.server_metadata()
    assert "secret" not in str(caught.value) + repr(client)


@KINDS
def test_credentials_in_a_url_are_sent_and_nowhere_else(kind: Kind) -> None:
    elsewhere = "http://127.0.0.1:9/x"
    answer = response(b"", f"Location: {elsewhere}", status="307 Temporary Redirect")
    with scripted([answer]) as server:
        url = server.url.replace("http://", "http://Aladdin:open%20sesame@")
        with kind.client(url) as client, pytest.raises(ServerError) as caught:
            client.infer("m", INPUTS)
    assert ("Authorization", ALADDIN) in _fields(server)
    assert str(caught.value) == f"307: the server redirects to {elsewhere}, and redirections are not followed"
    assert (caught.value.status, caught.value.headers["Location"]) == (307, elsewhere)
