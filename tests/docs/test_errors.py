"""The page of errors has a section for each code, and the command line leads to it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from streamcodec import ErrorCode
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.cli import commands, main
from streamcodec.client import ServerError
from streamcodec.engine.errors import ERROR_PAGE
from tests.blackbox.peers import MIXED, mutations

_ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##)", re.DOTALL | re.MULTILINE)
_SECTIONS = dict(_SECTION.findall((_ROOT / ERROR_PAGE).read_text()))


def test_sections_are_those_of_the_codes() -> None:
    assert list(_SECTIONS) == [*ErrorCode]


@pytest.mark.parametrize("code", ErrorCode)
def test_section(code: ErrorCode) -> None:
    """The example is run with all others of the page; here it is seen that it shows this code."""
    parts = re.fullmatch(
        r"\n(.+)\n\n```python\n.+\n```\n\n```text\n(.+)\n```\n\n\*\*Remedy:\*\* (.+)\n\n\*\*Sent by:\*\* (.+)\n\n",
        _SECTIONS[code],
        re.DOTALL,
    )
    assert parts is not None
    assert parts[2].startswith(f"{code}, ")
    assert all(parts[part].endswith(".") for part in (1, 3, 4))


@pytest.mark.parametrize("options", [(), ("--json",), ("--html", "page.html")])
def test_inspect_prints_the_link(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("body").write_bytes(b'{"inputs":[],"inputs":[]}')
    with pytest.raises(SystemExit):
        main(["inspect", "body", "--form", "request", *options])
    shown = Path("page.html").read_text() if "--html" in options else capsys.readouterr().out
    assert "docs/reference/errors.md#duplicate-key" in shown


def test_failing_commands_print_the_link(capsys: pytest.CaptureFixture[str]) -> None:
    """As `infer` and `encode` do, whose errors end them."""

    def fail(_: object) -> None:
        raise ServerError(404, "there is no such model")

    assert commands.run(argparse.Namespace(run=fail)) == 1
    link = "docs/reference/errors.md#error-response in the project's sources"
    said = f"streamcodec: 404: there is no such model; see {link}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("status", "is_told"), [(500, True), (503, False), (400, False)])
def test_a_failure_of_the_server_leads_to_its_log(
    status: int, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise ServerError(status, "model 'm' failed")

    assert commands.run(argparse.Namespace(run=fail)) == 1
    said = "; the server's log may say more" * is_told
    assert f"{status}: model 'm' failed{said}; see docs/" in capsys.readouterr().err


def test_fuzz_names_the_section_of_what_a_server_should_have_refused() -> None:
    target = Target(authority="x", prefix="", model="m", inputs=MIXED, is_declared=False)
    refused = [probe for probe in mutations(target, 0, 40) if probe.expects is Expectation.REFUSE]
    assert len(refused) > 5
    assert all(probe.tests.endswith(f"; see {ERROR_PAGE}#{probe.tests.partition(':')[0]}") for probe in refused)
