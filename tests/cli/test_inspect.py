"""`streamcodec inspect`: what it prints and writes, and that no text of a message gets through unescaped."""

from __future__ import annotations

import html.parser
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.inspecting.html import html_page
from streamcodec.cli.inspecting.text import text_lines
from tests.inspection.sources import http_request, inspected, request

_EVIL = "<script>alert(1)</script>\x1b[2J\x9b31m\x7f\u202e&\"'\r\n"
_IMAGE = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)[:, :, None] * np.array([1, 2, 3], np.uint8)
BODY, LENGTH = request(
    image=_IMAGE, scores=np.array([1.5, np.nan, -3, 8], "<f4"), words=np.array([b"a", b"bcd"], object)
)
EVIL_BODY = request(**{_EVIL: np.arange(3), "ok": np.array([_EVIL.encode()], object)})[0]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        status = main(["inspect", *arguments])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    return status, capsys.readouterr().out


def _file(folder: Path, data: bytes, name: str = "x.bin") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, _file(tmp_path, BODY))
    assert status == 0
    for words in (
        "request body",
        "valid",
        f"header, {LENGTH} bytes",
        "image: UINT8 [40, 60, 3], 7,200 bytes at byte",
        "elements 4  min -3  max 8  mean 2.16667  NaN 1  infinite 0",
        "first: 1.5, nan, -3.0, 8.0",
        "min length 1",
        "aligned to ",
    ):
        assert words in text
    assert text.isascii()
    assert "\x1b" not in text


def test_tensors_without_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for array, words in ((np.empty((0, 3)), "no values"), (np.ones(2, complex), "no statistics")):
        np.save(tmp_path / "x.npy", array)
        status, text = _run(capsys, str(tmp_path / "x.npy"))
        assert status == 0
        assert words in text
        assert words in html_page(inspected((tmp_path / "x.npy").read_bytes()))


def test_a_refused_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = BODY.replace(b"[40,60,3]", b"[40,-6,3]").replace(b"[40, 60, 3]", b"[40, -6, 3]")
    status, text = _run(capsys, _file(tmp_path, wrong))
    assert status == 1
    assert "invalid-shape" in text
    assert "at $.inputs[0].shape[1]" in text
    lines = text.splitlines()
    (index,) = [index for index, line in enumerate(lines) if "^^ this byte" in line]
    place = lines[index].index("^^")
    assert lines[index - 1][place : place + 8] == "2d 36 2c"  # -6,


def test_an_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, _file(tmp_path, b""))
    assert status == 1
    assert "^^ there are no bytes" in text
    assert "pipe" not in text


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, _file(tmp_path, BODY), "--json")
    document = json.loads(text, parse_constant=pytest.fail)
    assert status == 0
    assert document["is_valid"] is True
    assert [each["name"] for each in document["tensors"]] == ["image", "scores", "words"]
    assert document["tensors"][1]["statistics"]["nan_count"] == 1
    status, text = _run(capsys, _file(tmp_path, BODY[:-1]), "--json", "--header-length", str(LENGTH))
    assert status == 1
    assert json.loads(text)["failure"]["offset"] == len(BODY) - 1


@pytest.mark.slow
def test_standard_input(tmp_path: Path) -> None:
    for data, status in ((BODY, 0), (BODY[:-1], 1)):
        result = subprocess.run(
            [sys.executable, "-m", "streamcodec", "inspect", "-", "--json"],
            input=data,
            capture_output=True,
            cwd=tmp_path,
            check=False,
            timeout=30,
        )
        assert result.returncode == status, result.stderr
        assert json.loads(result.stdout)["source"] == "standard input"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["missing.bin"],
        ["."],
        ["x.bin", "--header-length", "-1"],
        ["x.bin", "--header-length", "1", "--form", "npy"],
        ["a\0b"],
    ],
)
def test_wrong_arguments(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.bin").write_bytes(BODY)
    with pytest.raises(SystemExit) as caught:
        main(["inspect", *arguments])
    assert caught.value.code == 2


def test_a_page_is_not_replaced_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = _file(tmp_path, BODY), str(tmp_path / "page.html")
    assert _run(capsys, file, "--html", page) == (0, f"{file}: valid -> {page}\n")
    assert _run(capsys, file, "--html", page)[0] == 1
    assert _run(capsys, file, "--html", page, "--force")[0] == 0


def test_the_page_of_the_docs_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "inspecting.md").read_text()
    (script,) = re.findall("^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(script, {})  # noqa: S102 - our own page
    blocks = re.findall("^```sh\n(.*?)^```\n\n```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for commands, output in blocks:
        printed = ""
        for command in commands.splitlines():
            arguments, _, count = command.removeprefix("streamcodec inspect ").partition(" | head -n ")
            _, text = _run(capsys, *arguments.split())
            printed += "".join(text.splitlines(keepends=True)[: int(count or 1000)])
        assert printed == output


# What a message may hold


@pytest.mark.parametrize("is_styled", [False, True])
def test_no_text_reaches_the_terminal_as_it_is(is_styled: bool) -> None:
    wrong = http_request(EVIL_BODY + b"!", f"Content-Length: {len(EVIL_BODY) + 1}", "X: \xe9\xad")
    for data in (EVIL_BODY, EVIL_BODY[:-1], wrong, EVIL_BODY.replace(b"INT64", b"I\\u001b[2J")):
        lines = list(text_lines(inspected(data), is_styled=is_styled, has_blocks=is_styled))
        for line in lines:
            rest = re.sub(r"\x1b\[[0-9;]*m", "", line) if is_styled else line
            assert rest.isprintable(), repr(line)


def test_json_is_ascii_without_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = _run(capsys, _file(tmp_path, EVIL_BODY), "--json")
    assert all(line.isascii() and line.isprintable() for line in text.splitlines())
    assert json.loads(text)["tensors"][0]["name"] == _EVIL


class _Tags(html.parser.HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]


@pytest.mark.parametrize("data", [BODY, EVIL_BODY, EVIL_BODY[:-1], EVIL_BODY.replace(b"INT64", b"I\\u001b<b>")])
def test_a_page_has_no_script_and_nothing_from_outside(data: bytes) -> None:
    page = html_page(inspected(data))
    tags = _Tags()
    tags.feed(page)
    assert not {"script", "iframe", "object", "b"} & set(tags.tags)
    assert not any(name.startswith("on") for name in tags.names)
    assert all(link.startswith("data:") for link in tags.links)
    assert "url(" not in page
    assert "@import" not in page
    assert all(line.isprintable() for line in page.split("\n"))
    assert "prefers-color-scheme: dark" in page


def test_many_tensors_have_a_page_of_bounded_length() -> None:
    report = inspected(request(**{f"x{index}": np.zeros(1) for index in range(1000)})[0])
    assert len(html_page(report)) < 500_000
    assert len(list(text_lines(report, is_styled=False, has_blocks=False))) < 1000
    assert len(report.tensors) == 1000


# In terminals and browsers


@pytest.mark.slow
def test_a_terminal_has_colours_and_pictures(tmp_path: Path) -> None:
    file = _file(tmp_path, BODY)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "streamcodec", "inspect", file]
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:
                break
        os.close(ours)
    assert process.returncode == 0
    assert "▀".encode() in text
    assert b"\x1b[32mvalid" in text


@pytest.mark.slow
def test_a_body_of_4_gib_takes_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    peaks = []
    for size in (1 << 12, 1 << 32):
        header = json.dumps(
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": [1, size // 4],
                        "parameters": {"binary_data_size": size},
                    }
                ]
            }
        ).encode()
        path = tmp_path / "large.bin"
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + size)
        code = f"""
import resource, sys
from streamcodec.cli import main
main(["inspect", {str(path)!r}])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
        assert f"elements {size // 4:,}" in result.stdout
        peaks.append(int(result.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 8 << 10, f"KiB: {peaks[0]} for 4 KiB, {peaks[1]} for 4 GiB"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_browser_shows_the_page(width: int, is_refused: bool, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium")
    data = http_request(BODY[: -1 if is_refused else None], f"Content-Length: {len(BODY) - is_refused}")
    page = tmp_path / "page.html"
    page.write_text(html_page(inspected(data)), encoding="utf-8")
    # A frame of that width: a window of a browser cannot be as narrow as a phone.
    probe = tmp_path / "probe.html"
    probe.write_text(
        f'<iframe src="page.html" width="{width}" height="800" onload="const d=this.contentDocument.documentElement;'
        "document.title=d.scrollWidth+' '+d.clientWidth\"></iframe>"
    )
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", probe.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = re.search("<title>([0-9]+) ([0-9]+)</title>", result.stdout)
    assert found is not None, result.stdout
    assert int(found[1]) <= int(found[2]), "nothing is wider than the page"
    assert "CONSOLE" not in result.stderr, result.stderr
