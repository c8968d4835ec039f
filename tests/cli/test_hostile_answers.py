"""What a hostile server can do to `streamcodec infer`: to its memory, its files and the terminal that it prints on."""

from __future__ import annotations

import io
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import Elements, Tensor, encode_response
from streamcodec.cli import main
from streamcodec.client import Client, ServerError
from tests.client.scripted import response, scripted

STEERING = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\u2066\r\n"
ESCAPED = r"\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\u2066\r\n"


def _answer(**outputs: Any) -> bytes:  # noqa: ANN401 - anything that numpy takes
    tensors = [Tensor(name=name, array=array) for name, array in outputs.items()]
    message = encode_response(tensors, model_name="m")
    return response(b"".join(message.buffers), f"Inference-Header-Content-Length: {message.header_length}")


def _infer(answer: bytes, folder: Path, *options: str) -> int:
    with scripted([answer]) as server:
        return main(["infer", server.url, "m", "--output-dir", str(folder), *options])


def _assert_harmless(text: str) -> None:
    assert all(char.isprintable() for char in text.replace("\n", ""))


def test_one_long_element_among_many_short_ones_takes_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Elements([b""] * 2999 + [b"a" * 1_000_000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _infer(_answer(first=np.ones(2), words=words, last=np.ones(3)), tmp_path) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # in KiB
    printed = capsys.readouterr()
    assert "output words: 3000 elements, padded to the 1000000 bytes of the longest, take 3000000000" in printed.err
    assert "--max-padded 3000000000 permits it" in printed.err
    assert "1 of 3 outputs could not be written" in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.npy", "last.npy"]
    assert np.load(tmp_path / "last.npy").tolist() == [1, 1, 1]


@pytest.mark.parametrize(("size", "status"), [("39", 1), ("40", 0), ("1K", 0)])
def test_how_much_padding_may_take_can_be_chosen(size: str, status: int, tmp_path: Path) -> None:
    words = np.array([[b"a", b""], [b"bc", b"0123456789"]], object)
    assert _infer(_answer(words=words), tmp_path, "--max-padded", size) == status
    if not status:
        assert np.load(tmp_path / "words.npy").tolist() == words.tolist()


@pytest.mark.parametrize("element", [b"\0", b"a\0", b"a\0\0"])
def test_an_element_that_ends_in_nul_is_not_written_changed(
    element: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _infer(_answer(bad=np.array([b"a", element, b"bc"], object), good=np.ones(1)), tmp_path) == 1
    assert "output bad: an element ends in NUL" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["good.npy"]


@pytest.mark.parametrize(
    "words", [np.array([b"\0a", b""], object), np.array(b"x", object), np.array([], object), np.array([b""], object)]
)
def test_other_elements_are(words: Any, tmp_path: Path) -> None:  # noqa: ANN401 - any array
    answer = _answer(words=Elements(words))
    assert _infer(answer, tmp_path) == 0
    found = np.load(tmp_path / "words.npy")
    assert (found.shape, found.tolist()) == (words.shape, words.tolist())


def test_a_name_that_no_file_can_have_loses_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(_answer(**{"n" * 300: np.ones(1), "good": np.ones(1)}), tmp_path) == 1
    assert "File name too long" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["good.npy"]


def test_names_of_outputs_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = np.array([b"\0"], object)
    assert _infer(_answer(**{STEERING: np.ones(1), STEERING * 2: bad, "größe": np.ones(1)}), tmp_path) == 1
    printed = capsys.readouterr()
    _assert_harmless(printed.out + printed.err)
    assert printed.out.startswith(f"{ESCAPED}: FP64 [1] -> ")
    assert f"output {ESCAPED * 2}: " in printed.err
    assert "größe: FP64" in printed.out


@pytest.mark.parametrize("is_json", [True, False])
def test_errors_of_a_server_cannot_steer_the_terminal(
    is_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"error": STEERING + "\ud800"}) if is_json else STEERING
    assert _infer(response(body.encode(), status="500 No"), tmp_path) == 1
    printed = capsys.readouterr().err
    _assert_harmless(printed)
    assert printed.startswith(f"streamcodec: 500: {ESCAPED}")
    assert printed.count("\n") == 1


def test_an_error_of_a_server_is_harmless_as_a_text_and_there_as_it_came() -> None:
    answer = response(json.dumps({"error": STEERING}).encode(), status="400 No")
    with scripted([answer]) as server, pytest.raises(ServerError) as caught, Client(server.url) as client:
        client.server_metadata()
    assert str(caught.value) == f"400: {ESCAPED}"
    assert caught.value.text == STEERING
    _assert_harmless(repr(caught.value.args[0]))


def test_what_the_terminal_has_no_character_for_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert _infer(_answer(größe=np.ones(1)), tmp_path) == 0
    terminal.seek(0)
    assert terminal.read().startswith(r"gr\xf6\xdfe: FP64 [1] -> ")


@pytest.mark.slow
def test_a_server_that_goes_on_for_ever_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def again(sock: Any) -> None:  # noqa: ANN401 - a socket
        for _ in range(200):
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    with scripted([b"", again, 1.0]) as server:
        assert main(["infer", server.url, "m", "--output-dir", str(tmp_path), "--total-timeout", "0.2"]) == 1
    assert "within its total_timeout of 0.2 seconds" in capsys.readouterr().err
