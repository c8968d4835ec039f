"""What the command line alone shows to be wrong: status 2, the usage, and a line that names options as users know them.

What goes wrong later, with a file, a port or a server, is status 1 and one line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import commands, main
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError

INFER = ("infer", "http://127.0.0.1:1", "m", "--input", "x=x.npy")
BENCH = ("bench", "http://127.0.0.1:1", "--model", "m")
ENCODE = ("encode", "m", "body", "--input", "x=x.npy")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("infer", "nonsense", "m"), "argument URL: a server's URL looks like"),
        (("infer", "http://user:secret@h:x", "m"), "argument URL: 'http://***@h:x' is not a URL"),
        (("bench", "nonsense", "--model", "m"), "argument URL: a server's URL looks like"),
        ((*ENCODE, "--url", "nonsense"), "argument --url: a server's URL looks like"),
        ((*ENCODE, "--http", "https+unix://x"), "argument --http: there is no TLS on a Unix socket"),
        ((*INFER, "--header", "Content-Length: 3"), "only the client may set the field 'Content-Length'"),
        ((*BENCH, "--header", "Host: a b"), "the field Host must be one name or address"),
        ((*ENCODE, "--header", "Accept-Encoding: br"), "'Accept-Encoding'; --response-compression says it"),
        ((*INFER, "--input", "x=x.npy"), "--input: 'x' is given twice"),
        ((*BENCH, "--shape", "a:1", "--shape", "a:2"), "--shape: 'a' is given twice"),
        ((*INFER, "--parameter", "a=1", "--parameter", "a=1"), "--parameter: 'a' is given twice"),
        ((*INFER, "--shape", "y:FP32:1"), "--shape is for random inputs: add --random"),
        ((*ENCODE, "--shape", "y:FP32:1"), "--shape is for random inputs: add --random"),
        ((*INFER, "--resumable", "state", "--compress"), "--resumable: a compressed request cannot be resumed"),
        ((*BENCH, "--plot", "x.txt"), "--plot x.txt: the name must end in .pdf, .png, .svg"),
        (("serve", "x.npy"), "'x.npy' is no Python file; name one, as my_models.py, or a module, as my_models"),
        (("serve", "./x.npy:models"), "'./x.npy' is no Python file"),
        (("serve", "./"), "'./' is no Python file"),
        (("serve", "--no-access-log", "--access-log-format", "json"), "there is no log with --no-access-log"),
        (("guard", "--upstream", "http://x", "--no-access-log", "--access-log-format", "text"), "there is no log"),
        (("serve", "--drain-delay", "31"), "--drain-delay must be at most --shutdown-timeout, 30, not 31"),
        (("serve", "--workers", "2", "--drain-delay", "31"), "--drain-delay must be at most --shutdown-timeout"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_arguments(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones(2))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"usage: streamcodec {arguments[0]} ")
    assert complaint.splitlines()[-1].startswith(f"streamcodec {arguments[0]}: error: ")
    assert words in complaint.splitlines()[-1]
    assert "secret" not in complaint


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LocalProtocolError("upstream_ca and max_lane_bytes"), "--upstream-ca and max_lane_bytes"),
        (OSError("no file 'upstream_ca'"), "no file 'upstream_ca'"),
        (
            RemoteProtocolError("upstream_ca", code=ErrorCode.INVALID_JSON),
            "upstream_ca; see docs/reference/errors.md#invalid-json in the project's sources",
        ),
    ],
)
def test_only_the_librarys_own_words_are_put_into_flags(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of files, and what a server says, stay as they are."""
    options = commands.parse(["guard", "--upstream", "http://x"])

    def fail(_: argparse.Namespace) -> None:
        raise error

    options.run = fail
    assert commands.run(options) == 1
    assert capsys.readouterr().err == f"streamcodec: {said}\n"
