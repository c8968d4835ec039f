"""`streamcodec serve` with its options: each switches on what it says, and without it that is off."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.arguments import size, size_text
from streamcodec.cli.serving.limits import add_limits, flag_of
from streamcodec.cli.serving.sparing import sizes_of
from streamcodec.client import Client, ServerError
from streamcodec.server import ServerOptions
from tests.server.programs import Program, serving
from tests.server.wire import GET_LIVE, Answer, Wire, floats, head, infer_request, post

APPS = ("https://app.example", "http://localhost:3000")


@pytest.fixture(scope="module")
def plain() -> Iterator[Program]:
    with serving() as program:
        yield program


@pytest.fixture(scope="module")
def optioned() -> Iterator[Program]:
    origins = [word for app in APPS for word in ("--cors-origin", app)]
    with serving("--nonfinite", "null", "--compress", "--classification", "--no-headerless", *origins) as program:
        yield program


def _send(program: Program, request: bytes) -> Answer:
    with Wire(program.address) as wire:
        return wire.send(request).response()


def _json_request(values: list[float], parameters: dict[str, int]) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    return post(json.dumps({"inputs": [tensor], "outputs": [{"name": "x", "parameters": parameters}]}).encode())


def _headerless() -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return post(json.dumps(document).encode() + np.arange(2, dtype="<f4").tobytes())


@pytest.mark.slow
def test_nonfinite(plain: Program, optioned: Program) -> None:
    request = _json_request([1.0, float("nan")], {})
    assert b"NaN" in _send(plain, request).body
    assert _send(optioned, request).document["outputs"][0]["data"] == [1, None]
    with serving("--nonfinite", "error") as program:
        answer = _send(program, request)
    assert answer.status == 400
    assert "binary" in answer.error


@pytest.mark.slow
def test_statistics(plain: Program) -> None:
    """A server without a log counts nothing, and says so; it counts if it is told to."""
    with serving("--statistics") as counting:
        for program in (plain, counting):
            assert _send(program, infer_request()).status == 200
        assert "statistics" in _send(counting, head("/v2", method="GET")).document["extensions"]
        (found,) = _send(counting, head("/v2/models/identity/stats", method="GET")).document["model_stats"]
        assert found["inference_count"] == 1
    assert "statistics" not in _send(plain, head("/v2", method="GET")).document["extensions"]
    assert _send(plain, head("/v2/models/identity/stats", method="GET")).status == 404


@pytest.mark.slow
def test_cors_origin(plain: Program, optioned: Program) -> None:
    for app in APPS:
        request = head("/v2", f"Origin: {app}", method="GET")
        assert _send(optioned, request).fields["access-control-allow-origin"] == app
        assert "access-control-allow-origin" not in _send(plain, request).fields
    other = head("/v2", "Origin: https://other.example", method="GET")
    assert "access-control-allow-origin" not in _send(optioned, other).fields
    with serving("--cors-origin", "*") as program:
        assert _send(program, other).fields["access-control-allow-origin"] == "*"


def test_compress(plain: Program, optioned: Program) -> None:
    request = infer_request("identity", "Accept-Encoding: gzip", count=5000)
    assert _send(optioned, request).fields["content-encoding"] == "gzip"
    assert floats(_send(plain, request)) == list(range(5000))
    with Client(optioned.url, request_compression="deflate", response_compression="gzip") as client:
        x = np.arange(100_000)
        assert np.array_equal(client.infer("identity", {"x": x})["x"], x)


@pytest.mark.slow
def test_compressed_requests(plain: Program) -> None:
    zeros = np.zeros(1 << 20, np.uint8)
    with Client(plain.url, request_compression="gzip") as client:
        assert not client.infer("identity", {"x": zeros})["x"].any()
    with (
        serving("--max-compression-ratio", "100") as program,
        Client(program.url, request_compression="gzip") as client,
    ):
        assert client.infer("identity", {"x": np.arange(10)})["x"][-1] == 9
        with pytest.raises(ServerError, match=r"413: .* more than 100 times its size"):
            client.infer("identity", {"x": zeros})
    with serving("--no-compression") as program, Client(program.url, request_compression="gzip") as client:
        with pytest.raises(ServerError, match=r"415: .* no compressed requests"):
            client.infer("identity", {"x": zeros})
        assert client.is_server_live()


def test_classification(plain: Program, optioned: Program) -> None:
    request = _json_request([1.0, 5.0], {"classification": 1})
    assert _send(optioned, request).document["outputs"][0]["data"] == ["5.000000:1"]
    refused = _send(plain, request)
    assert (refused.status, "its operator can switch it on" in refused.error) == (400, True)


def test_no_headerless(plain: Program, optioned: Program) -> None:
    assert floats(_send(plain, _headerless())) == [0, 1]
    assert _send(optioned, _headerless()).status == 400
    with Client(optioned.url) as client, pytest.raises(ServerError, match="no model 'nobody'"):
        client.infer("nobody", {"x": [1]})


@pytest.mark.slow
def test_limits() -> None:
    limits = ("--max-header", "1K", "--max-tensor", "512", "--max-message", "1200", "--max-connections", "1")
    with serving("--max-memory", "1M", "--max-workers", "1", "--model-timeout", "5", *limits) as program:
        with Wire(program.address) as wire:
            assert floats(wire.send(infer_request(count=128)).response()) == list(range(128))
            assert wire.send(infer_request(count=129)).response().status == 413
            wire.send(GET_LIVE + infer_request()[:-1]).response()  # the connection is busy from now on
            assert _send(program, infer_request()).status == 503
            assert wire.send(infer_request()[-1:]).response().status == 200
        assert _send(program, post(b" " * 1025)).status == 413


@pytest.mark.parametrize(
    ("flag", "value", "complaint"),
    [
        ("--max-memory", "0", "is not a size: an integer above 0"),
        ("--max-memory", "8X", "is not a size: an integer"),
        ("--max-memory", "G", "is not a size: an integer"),
        ("--max-memory", "9" * 5000, "is not a size: an integer"),
        ("--max-workers", "0", "is not an integer above 0"),
        ("--max-workers", "+1", "is not an integer above 0"),
        ("--model-timeout", "0", "is not a number of seconds above 0"),
    ],
)
def test_limits_that_cannot_be_meant(flag: str, value: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", flag, value])
    assert complaint in capsys.readouterr().err


def test_uploads_that_can_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _parsed("--resumable-uploads", "4", "--upload-dir", "here").resumable_uploads == 4
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--upload-dir", "here"])
    assert caught.value.code == 2
    said = "--upload-dir keeps uploads, and there are none: say how many with --resumable-uploads"
    assert f"error: {said}\n" in capsys.readouterr().err


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_limits(parser)
    return parser.parse_args(words)


def test_every_time_limit_has_a_flag() -> None:
    names = [field.name for field in fields(ServerOptions) if field.name.endswith("_timeout")]
    words = chain.from_iterable((flag_of(name), "7.5") for name in [*names, "min_rate", "drain_delay"])
    parsed = _parsed(*words)
    assert [getattr(parsed, name) for name in names] == [7.5] * len(names)
    assert (parsed.min_rate, parsed.drain_delay) == (7.5, 7.5)


def test_slow_links() -> None:
    """The preset, from which single values may differ."""
    assert sizes_of(_parsed()).options.read_timeout == ServerOptions().read_timeout
    options = sizes_of(_parsed("--slow-links", "--read-timeout", "9", "--min-rate", "0", "--max-memory", "4G")).options
    assert options == ServerOptions.for_slow_links(read_timeout=9.0, min_rate=0.0, max_memory_bytes=4 << 30)
    with pytest.raises(SystemExit):
        _parsed("--min-rate", "-1")


@pytest.mark.parametrize(("text", "nbytes"), [("1", 1), ("1023", 1023), ("1K", 1024), ("3M", 3 << 20), ("2T", 2 << 40)])
def test_sizes(text: str, nbytes: int) -> None:
    assert (size(text), size(text.lower()), size_text(nbytes)) == (nbytes, nbytes, text)


def test_units_of_sizes() -> None:
    """As in these pages and in Kubernetes; what may mean 1000 is refused."""
    assert {size(text) for text in ("4G", "4Gi", "4GiB", "4gib", "4096MiB")} == {4 << 30}
    for text in ("4GB", "4B", "4i", "4iB", "4 GiB", "4.5G", "-4G", "4G\n", "\u0664G"):
        with pytest.raises(argparse.ArgumentTypeError, match="as 4G or 4GiB"):
            size(text)


@pytest.mark.slow
def test_allowed_host() -> None:
    """Also by the short cut, which knows heads again."""
    request = infer_request()
    with serving("--allowed-host", "x", "--allowed-host", "[::1]:8000") as program:
        for _ in range(3):
            assert _send(program, request).status == 200
            for host in (b"evil.example", b"x.evil.example", b"[::1]:8001"):
                answer = _send(program, request.replace(b"Host: x", b"Host: " + host))
                assert (answer.status, answer.is_last) == (421, False)
                assert "its operator lists the hosts" in answer.error
            assert _send(program, request.replace(b"Host: x", b"Host: [::1]:8000")).status == 200
