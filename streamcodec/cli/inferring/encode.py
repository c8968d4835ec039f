"""`streamcodec encode`: writes an inference request to a file, and says how to send it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import BinaryIO, Final

from streamcodec.cli.arguments import checked
from streamcodec.cli.files import write
from streamcodec.cli.inferring.asking import add_asking, add_compression, asked, compression_of
from streamcodec.cli.inferring.inputs import add_inputs, given_inputs, made_inputs
from streamcodec.cli.inferring.making import add_making
from streamcodec.cli.inferring.request import WholeRequest, whole_request
from streamcodec.cli.inferring.trust import trusted
from streamcodec.cli.output import say
from streamcodec.client import Client
from streamcodec.client.connections.address import Address

_LOCAL: Final = "http://127.0.0.1:8000"

_FROM_CURL: Final = {"host", "user-agent", "content-length"}
"""Fields that curl sets itself."""

_DESCRIPTION = """\
Write the body of an inference request to a file, and print the curl command that sends it. Other programs can then send
exactly what this package would send. With --http, write the whole message instead, head and body, and print the nc
command that sends it. Nothing is sent, but --random asks the server for the metadata of the model.
"""

_EPILOG: Final = """\
examples:
  streamcodec encode net request.bin --input image=cat.npy
  streamcodec encode net request.bin --random --shape image:1,3,224,224 --url http://models.example
  streamcodec encode net request.json --input x=x.npy --json
  streamcodec encode net request.http --input x=x.npy --http http://127.0.0.1:8000
  sh -c "$(streamcodec encode net request.bin --input x=x.npy --force)"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL", help="name of the model")
    parser.add_argument("file", type=Path, metavar="FILE", help="to write")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists already")
    server = parser.add_mutually_exclusive_group()
    url = checked(Address.of)
    server.add_argument("--url", type=url, default=_LOCAL, metavar="URL", help="of the server (default: %(default)s)")
    server.add_argument("--http", type=url, metavar="URL", help="write the whole message, for this server")
    group = parser.add_argument_group("request")
    add_inputs(group)
    add_asking(group)
    add_making(group)
    add_compression(group)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write the file, and print the command."""
    url = options.http or options.url
    if options.is_random:
        with Client(url, headers=options.headers, ssl_context=trusted(options)) as client:
            inputs = made_inputs(options, client)
    else:
        inputs = given_inputs(options)
    request = whole_request(
        url,
        options.model,
        inputs,
        headers=options.headers,
        compression=compression_of(options),
        **asked(options),
    )

    def write_to(file: BinaryIO) -> None:
        if options.http is not None:
            file.write(request.head)
        file.writelines(request.body)

    write(options.file, write_to, replaces=options.force)
    say(_curl(request, options.file) if options.http is None else _netcat(request, options.file))


def _curl(request: WholeRequest, file: Path) -> str:
    """Return the command that sends the body; a binary answer goes to a file beside it."""
    words = ["curl", "--data-binary", f"@{file}"]
    if request.address.socket_path is not None:
        words += ["--unix-socket", request.address.socket_path]
    for name, value in request.fields:
        if name.lower() not in _FROM_CURL:
            words += ["--header", f"{name}: {value}" if value else f"{name};"]
    if any(
        name.lower() == "inference-header-content-length" or "json-header-size" in value
        for name, value in request.fields
    ):
        words += ["--output", f"{file}.answer"]
    return shlex.join([*words, request.url])


def _netcat(request: WholeRequest, file: Path) -> str:
    """Return the command that sends the whole message."""
    address = request.address
    secure = ["openssl", "s_client", "-quiet", "-connect", address.place]
    words = secure if address.is_secure else ["nc", address.host, str(address.port)]
    if address.socket_path is not None:
        words = ["nc", "-U", address.socket_path]
    return f"{shlex.join(words)} < {shlex.quote(str(file))}"
