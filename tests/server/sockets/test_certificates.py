"""Certificates: the context of a server from files, and what is said of files that do not fit."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from streamcodec.cli import main
from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server import ClientCertificates, server_context
from tests.server.models import models
from tests.server.programs import server_here, serving
from tests.transports.certificates import AUTHORITY, client_side


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates and keys as files: `cert`, `key`, `both`, `secret` (which is encrypted), `ca`, `other`."""
    made = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    key = made.private_key_pem.bytes()
    (tmp_path / "cert").write_bytes(made.cert_chain_pems[0].bytes())
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "both").write_bytes(made.private_key_and_cert_chain_pem.bytes())
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"swordfish"),
    )
    (tmp_path / "secret").write_bytes(encrypted)
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca"))
    (tmp_path / "other").write_bytes(AUTHORITY.issue_cert("localhost").private_key_pem.bytes())
    (tmp_path / "text").write_text("no certificate")
    return tmp_path


@pytest.mark.parametrize(("key", "password"), [("key", None), ("secret", "swordfish")])
def test_a_context_serves(key: str, password: str | None, folder: Path) -> None:
    context = server_context(folder / "cert", folder / key, password=password)
    assert context.verify_mode is ssl.CERT_NONE
    with (
        server_here(models(), ssl_context=context) as (_, (_, port)),
        Client(f"https://127.0.0.1:{port}", ssl_context=client_side()) as client,
    ):
        assert client.is_server_live()


def test_old_versions_and_renegotiation_are_off(folder: Path) -> None:
    context = server_context(folder / "both")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (None, ssl.CERT_REQUIRED),
        (ClientCertificates.NONE, ssl.CERT_NONE),
        (ClientCertificates.OPTIONAL, ssl.CERT_OPTIONAL),
        (ClientCertificates.REQUIRED, ssl.CERT_REQUIRED),
    ],
)
def test_who_names_authorities_means_it(asked: ClientCertificates | None, mode: ssl.VerifyMode, folder: Path) -> None:
    context = server_context(folder / "both", ca_certs=folder / "ca", client_certificates=asked)
    assert context.verify_mode is mode


def test_clients_cannot_be_checked_without_authorities(folder: Path) -> None:
    with pytest.raises(LocalProtocolError, match="without ca_certs"):
        server_context(folder / "both", client_certificates=ClientCertificates.OPTIONAL)


@pytest.mark.parametrize(
    ("cert", "key", "password", "said"),
    [
        ("nothing", "key", None, "nothing: the file cannot be read: No such file"),
        ("cert", "nothing", None, "nothing: the file cannot be read: No such file"),
        ("cert", "other", None, "other: the private key does not belong to the certificate of"),
        ("cert", "secret", None, "secret: the private key is encrypted, and there is no password for it"),
        ("cert", "secret", "wrong", "secret: the password does not fit the private key"),
        ("cert", "secret", "x" * 2000, "password cannot be longer than"),
        ("text", "key", None, "text, .*key: no certificate with its private key can be read there"),
        ("cert", "text", None, "text: no certificate with its private key can be read there"),
        (
            "cert",
            None,
            None,
            "no certificate with its private key can be read there: both have to be PEM; keyfile names",
        ),
    ],
)
def test_files_that_do_not_fit(cert: str, key: str | None, password: str | None, said: str, folder: Path) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        server_context(folder / cert, None if key is None else folder / key, password=password)


@pytest.mark.parametrize("name", ["nothing", "text"])
def test_authorities_that_are_none(name: str, folder: Path) -> None:
    with pytest.raises(LocalProtocolError, match=f"{name}: no certificates of authorities can be read there"):
        server_context(folder / "both", ca_certs=folder / name)


# The command


@pytest.mark.slow
def test_the_command_speaks_https(folder: Path) -> None:
    options = ["--ssl-certfile", "cert", "--ssl-keyfile", "secret", "--ssl-keyfile-password", "swordfish"]
    with serving(*options, "--ssl-ca-certs", "ca", "--ssl-cert-reqs", "1", cwd=folder) as program:
        assert program.url.startswith("https://127.0.0.1:")
        with Client(program.url, ssl_context=client_side()) as client:
            assert client.is_server_ready()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ssl-keyfile", "key"], "--ssl-keyfile: there is no TLS without --ssl-certfile"),
        (["--ssl-certfile", "both", "--ssl-cert-reqs", "2"], "cannot be checked without --ssl-ca-certs"),
        (["--ssl-certfile", "both", "--ssl-cert-reqs", "3"], "'3' is none of none, optional, required, 0, 1 and 2"),
    ],
)
def test_options_that_do_not_fit(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--port", "0", *options])
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_a_certificate_without_its_key_leads_to_the_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cert = str(folder / "cert")
    for command in (["serve"], ["guard", "--upstream", "http://x"]):
        assert main([*command, "--port", "0", "--ssl-certfile", cert]) == 1
        wrong = f"{cert}: no certificate with its private key can be read there: both have to be PEM"
        advice = "--ssl-keyfile names the file of the key, if it has one of its own"
        assert capsys.readouterr().err == f"streamcodec: {wrong}; {advice}\n"


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--ssl-certfile", "nowhere.pem"]) == 1
    assert capsys.readouterr().err == "streamcodec: nowhere.pem: the file cannot be read: No such file or directory\n"
