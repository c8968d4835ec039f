"""`--ca`: whose certificates a command trusts, and advice that names the option of the command."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcodec.cli import main
from tests.server.models import models
from tests.server.programs import server_here
from tests.transports.certificates import AUTHORITY, server_side

BENCH = ("bench", "URL", "--model", "identity", "--shape", "x:FP32:4", "--duration", "0.1", "--warmup", "0")
INFER = ("infer", "URL", "identity", "--random", "--shape", "x:FP32:4")
ENCODE = ("encode", "identity", "FILE", "--random", "--shape", "x:FP32:4", "--url", "URL")

each_command = pytest.mark.parametrize("words", [BENCH, INFER, ENCODE], ids=lambda words: words[0])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models(), ssl_context=server_side()) as (_, (_, port)):
        yield f"https://localhost:{port}"


def _run(words: tuple[str, ...], url: str, folder: Path, *options: str) -> int:
    return main([{"URL": url, "FILE": str(folder / "body")}.get(word, word) for word in words] + [*options])


@each_command
def test_a_server_is_trusted_by_the_option_that_the_refusal_names(
    words: tuple[str, ...], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(words, url, tmp_path) == 1
    assert "for a CA of your own, --ca PATH names a file with the CA's certificate" in capsys.readouterr().err
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    assert _run(words, url, tmp_path, "--ca", str(tmp_path / "ca.pem")) == 0


@each_command
def test_a_server_that_wants_a_certificate_of_the_client(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = server_side()
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with server_here(models(), ssl_context=context) as (_, (_, port)):
        assert _run(words, f"https://localhost:{port}", tmp_path, "--ca", str(tmp_path / "ca.pem")) == 1
    assert "the server requires a certificate of the client; no option gives it one" in capsys.readouterr().err


@each_command
def test_certificates_that_cannot_be_read(
    words: tuple[str, ...], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(words, url, tmp_path, "--ca", str(tmp_path / "none.pem")) == 1
    assert (
        capsys.readouterr().err == "streamcodec: --ca: no certificates can be read there: No such file or directory\n"
    )
