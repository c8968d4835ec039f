"""Both clients over a link that breaks: the request goes on at the right byte, or fails with what it has reached."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import SAGEMAKER_MEDIA_TYPE, LocalProtocolError, RemoteProtocolError, Rows, encode_response
from streamcodec.client import Client, ServerError
from streamcodec.client.uploads import uploading
from streamcodec.server import Server, ServerOptions
from streamcodec.service import StatisticsObserver
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import hung_up, response, scripted
from tests.server.breaking import breaking
from tests.server.lanes import eventually
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import Wire, head
from tests.transports.certificates import client_side, server_side

X = np.random.default_rng(3).random(200_000)
OPTIONS = ServerOptions(resumable_uploads=4, upload_timeout=20.0)
Address = tuple[str, int]
CREATED = response(b"", "Location: /v2/uploads/x", status="201 Created")
DEAD = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, Address]]:
    with server_here(models(), OPTIONS) as (server, address):
        yield server, address


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between attempts, which grow to ten seconds, are a thousandth here."""
    monkeypatch.setattr(uploading, "_FIRST_PAUSE", 1e-4)


class Outage:
    """A link that breaks after so many bytes, and then at once, until it is repaired."""

    def __init__(self, *cuts: int) -> None:
        self._cuts = cuts
        self.is_over = False

    def cuts(self) -> Iterator[int]:
        yield from self._cuts
        while not self.is_over:
            yield 1


def _rows(count: int = 50) -> Rows:
    class Windows:
        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            return iter(np.split(X, count))

    return Rows("FP64", X.shape, Windows())


@KINDS
@pytest.mark.parametrize("made", ["array", "windows"])
def test_a_request_survives_many_breaks(served: tuple[Server, Address], kind: Kind, made: str) -> None:
    server, address = served
    cuts = [100, 900, 300_000, 1, 250_000, 2000, 600_000, 123_457]
    with breaking(address, iter(cuts)) as link, kind.client(link.url) as driver:
        result = driver.infer("identity", {"x": X if made == "array" else _rows()}, resumable=True)
        assert np.array_equal(result["x"], X)
        assert link.breaks >= len(cuts) - 2, "the server may end a connection before its cut"
        assert link.passed < 1.5 * X.nbytes, "only what was lost on the way came twice"
    assert eventually(lambda: server.reserved_bytes == 0)


@KINDS
def test_a_request_survives_breaks_under_tls(kind: Kind) -> None:
    """A cut ends the connection without TLS's own end, in the middle of a record."""
    cuts = [3000, 300_000, 250_000, 5000]
    with (
        server_here(models(), OPTIONS, ssl_context=server_side()) as (server, address),
        breaking(address, iter(cuts)) as link,
        kind.client(link.url.replace("http://", "https://"), ssl_context=client_side()) as driver,
    ):
        assert np.array_equal(driver.infer("identity", {"x": X}, resumable=True)["x"], X)
        assert link.breaks >= len(cuts) - 2, "the server may end a connection before its cut"
        assert link.passed < 2 * X.nbytes, "only what was lost on the way came twice"
        assert eventually(lambda: server.reserved_bytes == 0)


@KINDS
def test_a_link_that_never_works_ends_the_call_with_its_offset(served: tuple[Server, Address], kind: Kind) -> None:
    def cuts() -> Iterator[int]:
        yield from (2000, 400_000)
        while True:
            yield 1

    with (
        breaking(served[1], cuts()) as link,
        kind.client(link.url) as driver,
        pytest.raises(
            ConnectionError, match=r"gave up after \d+ failures in [\d.]+ s without progress, the server had \d+ "
        ),
    ):
        driver.infer("identity", {"x": X}, resumable=True, outage=0.3)


def test_an_outage_may_be_long(served: tuple[Server, Address], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many failures as there are; only the time counts, and progress begins it anew."""
    monkeypatch.setattr(uploading, "_LONGEST_PAUSE", 1e-3)
    cuts = [2000, *[1] * 100, 400_000, *[1] * 100]
    with breaking(served[1], iter(cuts)) as link, Client(link.url) as client:
        assert np.array_equal(client.infer("identity", {"x": X}, resumable=True, outage=60)["x"], X)
        assert link.breaks >= 190
    for outage in (0, -1, "1", True, float("nan")):
        with Client("http://127.0.0.1:1") as client, pytest.raises(LocalProtocolError, match="outage must be"):
            client.infer("m", {"x": X}, resumable=True, outage=outage)  # type: ignore[arg-type]


@KINDS
def test_a_server_that_falls_silent_is_given_up_with_the_outage(kind: Kind) -> None:
    """Not with the timeout, which is a minute: then the server would wait in vain for the client to go."""
    with (
        scripted([CREATED, b""], [hung_up]) as server,
        kind.client(server.url) as driver,
        pytest.raises(TimeoutError, match=r"gave up after 2 failures in .* had 0 of \d+ bytes"),
    ):
        driver.infer("m", {"x": np.ones(1)}, resumable=True, outage=0.3, timeout=60)


def test_an_error_says_no_more_than_is_known(served: tuple[Server, Address]) -> None:
    """A server that has not said how much it has, and one that has spoken HTTP before it went silent."""
    with pytest.raises(ConnectionError, match=r"has not said how many of the \d+ bytes"), Client(DEAD) as client:
        client.infer("m", {"x": X}, resumable=True, outage=0.01)
    with (
        breaking(served[1], Outage(2000).cuts()) as link,
        Client(link.url) as client,
        pytest.raises(ConnectionError, match=r"had 0 of \d+ bytes when it last said so") as caught,
    ):
        client.infer("identity", {"x": X}, resumable=True, outage=0.1)
    assert "TLS" not in str(caught.value)


@KINDS
def test_a_server_without_room_gets_the_request_in_one_message(kind: Kind) -> None:
    taken = ServerOptions(resumable_uploads=1)
    begin = head("/v2/models/identity/infer", "Inference-Header-Content-Length: 100", "Upload-Complete: ?1")
    with server_here(models(), taken) as (_, address), Wire(address) as other:
        other.send(begin.replace(b"\r\n\r\n", b"\r\nUpload-Draft-Interop-Version: 8\r\nContent-Length: 500\r\n\r\n"))
        assert other.response(has_body=False).status == 104
        with kind.client("http://{}:{}".format(*address)) as driver:
            assert np.array_equal(driver.infer("identity", {"x": X}, resumable=True)["x"], X)


@KINDS
def test_other_data_under_the_same_header_begin_a_new_upload(
    served: tuple[Server, Address], kind: Kind, tmp_path: Path
) -> None:
    path, outage, resumed = tmp_path / "upload", Outage(5000, 1_000_000), []
    with breaking(served[1], outage.cuts()) as link:
        with Client(link.url) as client, pytest.raises(ConnectionError):
            client.infer("identity", {"x": X}, resumable=path, outage=0.3)
        outage.is_over = True
        other = X.copy()
        other[-1] += 1
        with kind.client(link.url) as driver:
            result = driver.infer(
                "identity", {"x": other}, resumable=path, on_resume=lambda *offset: resumed.append(offset)
            )
    assert np.array_equal(result["x"], other)
    assert resumed[0][0] == 0
    assert resumed[0][1] > X.nbytes


@KINDS
def test_the_total_time_holds_for_all_attempts(
    served: tuple[Server, Address], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_FIRST_PAUSE", 0.1)
    with breaking(served[1], iter([1] * 100)) as link, kind.client(link.url) as driver, pytest.raises(TimeoutError):
        driver.infer("identity", {"x": X}, resumable=True, total_timeout=0.2)


@KINDS
def test_the_words_of_the_server_are_raised_at_once(served: tuple[Server, Address], kind: Kind) -> None:
    with kind.client("http://{}:{}".format(*served[1])) as driver:
        for model, inputs, status in (("no", {"x": X}, 404), ("declared", {"y": X}, 400), ("break", {"x": X}, 500)):
            with pytest.raises(ServerError) as caught:
                driver.infer(model, inputs, resumable=True)
            assert caught.value.status == status
            assert not hasattr(caught.value, "__notes__"), "the server offers uploads"


def test_a_server_that_does_not_offer_it_is_an_error() -> None:
    with server_here(models()) as (_, (host, port)), Client(f"http://{host}:{port}") as client:
        with pytest.raises(ServerError) as caught:
            client.infer("identity", {"x": X}, resumable=True)
        assert caught.value.__notes__ == [
            "resumable needs a server that offers uploads that can be resumed, as `serve --resumable-uploads 4` does"
        ]
        with pytest.raises(ServerError, match="there is no model 'nobody'") as caught:
            client.infer("nobody", {"x": X}, resumable=True)
        assert not hasattr(caught.value, "__notes__")


def test_a_restarted_client_goes_on(
    served: tuple[Server, Address], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_FIRST_PAUSE", 2e-3)  # so that the server has read what is on its way
    path = tmp_path / "upload"
    outage = Outage(5000, 1_000_000)
    with breaking(served[1], outage.cuts()) as link:
        with Client(link.url) as client, pytest.raises(ConnectionError):
            client.infer("identity", {"x": X}, resumable=path, outage=0.3)
        outage.is_over = True
        assert path.stat().st_mode & 0o777 == 0o600
        with Client(link.url) as client:
            assert np.array_equal(client.infer("identity", {"x": X}, resumable=path)["x"], X)
            assert client.sent_bytes < X.nbytes
    assert not path.exists()


def test_an_upload_that_the_server_has_dropped_begins_anew(served: tuple[Server, Address], tmp_path: Path) -> None:
    path = tmp_path / "upload"
    outage = Outage(5000, 1_000_000)
    with breaking(served[1], outage.cuts()) as link:
        with Client(link.url) as client, pytest.raises(ConnectionError):
            client.infer("identity", {"x": X}, resumable=path, outage=0.3)
        outage.is_over = True
        location = json.loads(path.read_text())["location"]
        with Wire(served[1]) as wire:
            assert wire.send(head(location, method="DELETE")).response().status == 204
        with Client(link.url) as client:
            assert np.array_equal(client.infer("identity", {"x": X}, resumable=path)["x"], X)
            assert client.sent_bytes > X.nbytes


def test_a_resumable_request_is_one_inference_in_the_statistics_of_its_model() -> None:
    registry = models()
    with (
        server_here(registry, OPTIONS, observer=StatisticsObserver(registry)) as (_, address),
        Client("http://{}:{}".format(*address)) as client,
    ):
        for _ in range(3):
            client.infer("identity", {"x": X}, resumable=True)
        (stats,) = client.statistics("identity")["model_stats"]
    assert (stats["inference_count"], stats["inference_stats"]["fail"]["count"]) == (3, 0)


@pytest.mark.parametrize("text", ["", '{"request": "another", "location": "/v2/uploads/x"}', '{"request": 1}'])
def test_a_file_of_another_request_is_replaced(served: tuple[Server, Address], tmp_path: Path, text: str) -> None:
    path = tmp_path / "upload"
    path.write_text(text)
    with Client("http://{}:{}".format(*served[1])) as client:
        assert np.array_equal(client.infer("identity", {"x": X}, resumable=path)["x"], X)
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"[" * 5000, b"notes", b"\x93NUMPY\x01\x00", b'{"request": "", "more": 1}', b" " * (1 << 20)],
    ids=["cut", "list", "deep", "text", "npy", "more", "long"],
)
def test_a_file_that_has_another_purpose_is_kept(
    served: tuple[Server, Address], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with Client("http://{}:{}".format(*served[1])) as client:
        with pytest.raises(LocalProtocolError, match=r"x.npy exists, .*; name a new file"):
            client.infer("identity", {"x": X}, resumable=path)
        assert client.sent_bytes == 0
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "place", ["http://elsewhere.example/", "//elsewhere.example/", "/v2/up loads", "/v2/x#f", "/\u00e9"]
)
def test_a_file_that_names_another_place_is_replaced(
    served: tuple[Server, Address], tmp_path: Path, place: str
) -> None:
    """Or one that no request can name, even if it is for the same request."""
    path, outage = tmp_path / "upload", Outage(5000, 1_000_000)
    with breaking(served[1], outage.cuts()) as link:
        with Client(link.url) as client, pytest.raises(ConnectionError):
            client.infer("identity", {"x": X}, resumable=path, outage=0.3)
        outage.is_over = True
        path.write_text(json.dumps({**json.loads(path.read_text()), "location": place}))
        with Client(link.url) as client:
            assert np.array_equal(client.infer("identity", {"x": X}, resumable=path)["x"], X)


def test_what_cannot_be_sent_twice_is_refused() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(LocalProtocolError, match="an iterable"):
        client.infer("identity", {"x": Rows("FP64", X.shape, iter([X]))}, resumable=True)
    with (
        Client("http://127.0.0.1:1", request_compression="gzip") as client,
        pytest.raises(LocalProtocolError, match="request_compression"),
    ):
        client.infer("identity", {"x": X}, resumable=True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (response(b""), "has not begun an upload"),
        (response(b"", status="201 Created"), "has not begun an upload"),
        (response(b"", "Location: //evil.example/v2", status="201 Created"), "has not begun an upload"),
        (response(b"", "Location: http://evil.example/v2", status="201 Created"), "has not begun an upload"),
        (response(b"", "Location: /v2/up loads", status="201 Created"), "has ' ' as character 7 of its path"),
        (response(b"", "Location: /v2/uploads/x#f", status="201 Created"), "has '#' as character 14 of its path"),
        (response(b"", "Location: /v2/\u00e9", status="201 Created"), r"has '\\xc3' as character 5 of its path"),
    ],
)
def test_a_server_that_begins_no_upload_is_refused(answer: bytes, words: str, tmp_path: Path) -> None:
    """And no record is written, which later calls would follow."""
    path = tmp_path / "upload"
    with (
        scripted([answer]) as server,
        Client(server.url) as client,
        pytest.raises(RemoteProtocolError, match=words),
    ):
        client.infer("identity", {"x": X}, resumable=path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((), "does not say where"),
        (("Upload-Offset: -1",), "does not say where"),
        (("Upload-Offset: 1", "Upload-Offset: 1"), "does not say where"),
        (("Upload-Offset: 9999999999",), "goes on at byte 9999999999"),
    ],
)
def test_a_server_that_tells_no_offset_is_refused(fields: tuple[str, ...], words: str) -> None:
    told = response(b"", *fields, status="204 No Content", is_counted=False)
    with (
        scripted([CREATED], [], [told]) as server,
        Client(server.url) as client,
        pytest.raises(RemoteProtocolError, match=words),
    ):
        client.infer("identity", {"x": X}, resumable=True)


@KINDS
def test_bytes_that_the_server_has_lost_are_sent_again(kind: Kind) -> None:
    """Its machine has stopped, and what was not on the disk is gone; the server says so by a lower offset."""
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    whole = response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines)
    told = [response(b"", f"Upload-Offset: {at}", status="204 No Content", is_counted=False) for at in (300, 5)]
    resumed: list[int] = []
    with (
        scripted([CREATED, b""], [told[0], b""], [told[1], whole]) as server,
        kind.client(server.url) as driver,
    ):
        result = driver.infer("m", {"x": np.arange(100.0)}, resumable=True, on_resume=lambda at, _: resumed.append(at))
    assert result["x"].tolist() == [1.0]
    assert resumed == [0, 300, 5]
    sent = [request.partition(b"\r\n\r\n")[2] for request in server.requests if request.startswith(b"PATCH")]
    assert sent == [sent[0], sent[0][300:], sent[0][5:]]


def test_busy_servers_and_wrong_offsets_are_asked_again() -> None:
    """The whole message is one small tensor, so that each request comes whole."""
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    told = response(b"", "Upload-Offset: 5", status="204 No Content", is_counted=False)
    steps = [
        response(b"{}", status="503 Busy"),
        CREATED,
        response(b"{}", "Upload-Offset: 5", status="409 Conflict"),
        response(b"{}", status="500 Oops"),
        told,
        response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines),
    ]
    # After a status of 5xx the client opens a new connection.
    with scripted(steps[:1], steps[1:4], steps[4:]) as server, Client(server.url) as client:
        result = client.infer("m", {"x": np.ones(1)}, resumable=True)
        assert result["x"].tolist() == [1.0]
    heads = [request.split(b" HTTP")[0] for request in server.requests]
    assert heads == [
        b"POST /v2/models/m/infer",
        b"POST /v2/models/m/infer",
        b"PATCH /v2/uploads/x",
        b"HEAD /v2/uploads/x",
        b"HEAD /v2/uploads/x",
        b"PATCH /v2/uploads/x",
    ]
    assert b"Upload-Offset: 5\r\n" in server.requests[-1]


@KINDS
def test_the_rest_of_an_upload_is_sent_again_only_from_where_the_server_is(kind: Kind) -> None:
    """A request on a kept connection that has died is repeated as it was; this one is not."""
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    told = response(b"", "Upload-Offset: 5", status="204 No Content", is_counted=False)
    whole = response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines)
    with scripted([CREATED, b""], [told, whole]) as server, kind.client(server.url) as driver:
        assert driver.infer("m", {"x": np.ones(1)}, resumable=True)["x"].tolist() == [1.0]
    assert [request.split(b" ")[0] for request in server.requests] == [b"POST", b"PATCH", b"HEAD", b"PATCH"]


@KINDS
def test_each_request_of_an_upload_has_a_token_of_its_own(kind: Kind) -> None:
    """An upload may take longer than a token is valid."""
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    told = response(b"", "Upload-Offset: 5", status="204 No Content", is_counted=False)
    whole = response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines)
    tokens = (f"token-{number}" for number in count())
    with (
        scripted([CREATED, b""], [told, whole]) as server,
        kind.client(server.url, auth=lambda: next(tokens)) as driver,
    ):
        driver.infer("m", {"x": np.ones(1)}, resumable=True)
    found = [re.findall(rb"\r\nAuthorization: Bearer (\S+)", request) for request in server.requests]
    assert found == [[b"token-0"], [b"token-1"], [b"token-2"], [b"token-3"]]


def test_an_upload_goes_on_in_a_later_call_with_a_token_that_is_valid(tmp_path: Path) -> None:
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    told = response(b"", "Upload-Offset: 5", status="204 No Content", is_counted=False)
    whole = response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines)
    path = tmp_path / "upload"
    with scripted([CREATED, response(b"", status="401 Unauthorized")], [told, whole]) as server:
        with Client(server.url, auth="old") as client, pytest.raises(ServerError, match="401"):
            client.infer("m", {"x": np.ones(1)}, resumable=path)
        with Client(server.url, auth="new") as client:
            assert client.infer("m", {"x": np.ones(1)}, resumable=path)["x"].tolist() == [1.0]
    assert [request.split(b" ")[0] for request in server.requests] == [b"POST", b"PATCH", b"HEAD", b"PATCH"]
    assert not path.exists()


def test_an_error_of_the_model_is_not_asked_again() -> None:
    refused = response(b'{"error": "no"}', "Upload-Complete: ?1", status="500 Oops")
    with (
        scripted([CREATED, refused]) as server,
        Client(server.url) as client,
        pytest.raises(ServerError, match="500: no"),
    ):
        client.infer("m", {"x": np.ones(1)}, resumable=True)


def test_an_answer_that_breaks_off_has_the_request_sent_again() -> None:
    answer = encode_response({"x": np.ones(1)}, model_name="m")
    lines = [f"{name}: {value}" for name, value in answer.headers if name != "Content-Length"]
    whole = response(b"".join(answer.buffers), "Upload-Complete: ?1", *lines)
    gone = response(b"", status="404 Not Found", is_counted=False)
    with scripted([CREATED, whole[:-5]], [gone], [CREATED, whole]) as server, Client(server.url) as client:
        assert client.infer("m", {"x": np.ones(1)}, resumable=True)["x"].tolist() == [1.0]


def test_other_forms_of_the_header_length_are_kept(served: tuple[Server, Address]) -> None:
    with Client("http://{}:{}".format(*served[1]), media_type=SAGEMAKER_MEDIA_TYPE) as client:
        assert np.array_equal(client.infer("identity", {"x": X}, resumable=True)["x"], X)
        result = client.infer("identity", {"x": X[:3]}, resumable=True, is_binary=False)
        assert result["x"].tolist() == X[:3].tolist()
