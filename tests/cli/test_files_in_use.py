"""Files that are renamed, replaced and removed are neither mapped nor open then, as Windows wants it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.server import ServerOptions
from tests.server.models import models
from tests.server.programs import server_here

pytestmark = pytest.mark.usefixtures("windows")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models(), ServerOptions(resumable_uploads=2)) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.arange(3, dtype=np.float32))
    np.save("large.npy", np.arange(1 << 20, dtype=np.int64))


def _names(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def _infer(url: str, *options: str) -> int:
    return main(["infer", url, "identity", "--input", "x=large.npy", "--output-dir", "out", *options])


def test_what_is_in_use_can_neither_be_renamed_replaced_nor_removed(tmp_path: Path) -> None:
    array = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (3,))
    other = tmp_path / "small.npy"
    for act in (
        (tmp_path / "x.npy").unlink,
        partial((tmp_path / "x.npy").rename, tmp_path / "y.npy"),
        partial(other.replace, tmp_path / "x.npy"),
    ):
        with pytest.raises(PermissionError):
            act()
    assert array.tolist() == [0, 0, 0]
    del array
    (tmp_path / "x.npy").unlink()


@pytest.mark.parametrize("force", [[], ["--force"]], ids=str)
def test_infer(url: str, force: list[str]) -> None:
    assert _infer(url, "--input", "y=small.npy", "--repeat", "2", *force) == 0
    assert np.array_equal(np.load("out/x.npy"), np.load("large.npy"))
    assert _names("out") == ["x.npy", "y.npy"]
    assert _infer(url, "--input", "y=small.npy") == 1  # both exist
    assert _names("out") == ["x.npy", "y.npy"]


def test_an_output_takes_the_place_of_its_input(url: str) -> None:
    Path("out").mkdir()
    np.save("out/x.npy", np.arange(1 << 18, dtype=np.float64))
    assert main(["infer", url, "identity", "--input", "x=out/x.npy", "--output-dir", "out", "--force"]) == 0
    assert np.load("out/x.npy").tolist() == [*range(1 << 18)]
    assert _names("out") == ["x.npy"]


def test_infer_that_can_be_resumed(url: str) -> None:
    for _ in range(2):
        assert _infer(url, "--resumable", "state", "--force") == 0
        assert _names() == ["large.npy", "out", "small.npy"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("encode identity made --input x=large.npy", "made"),
        ("inspect large.npy --html made.html", "made.html"),
        ("bench URL --model identity --shape x:FP32:1 --duration 0.1 --warmup 0 --json made.json", "made.json"),
        ("fuzz URL --model identity --input x:FP32:-1 --only json/null --json made.json", "made.json"),
    ],
)
def test_files_that_are_made_and_made_again(command: str, name: str, url: str) -> None:
    words = command.replace("URL", url).split()
    again = [] if ".json" in name else ["--force"]
    assert main(words) == 0
    nbytes = Path(name).stat().st_size
    Path(name).write_text("old")
    assert main([*words, *again]) == 0
    assert Path(name).stat().st_size > nbytes // 2
    assert _names() == sorted(["large.npy", "small.npy", name])
