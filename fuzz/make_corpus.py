"""Write the seed corpora: the committed ones, or all there is for a run. The same files every time.

Each committed seed is small and reaches a place of its own, valid or with one thing wrong. What a fuzzer finds later
may be added to the folders by hand; this leaves it alone. For a run, what the repository holds anyway is added: the
named cases of `tests/corpus`, and the captures of real peers in `tests/data`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from seeds import compression, decoder, frame, header, http, round_trip, stream

CORPUS: Final = Path(__file__).parent / "corpus"
TARGETS: Final = ("header", "decoder", "oracle", "http", "compression", "round_trip", "safetensors", "npy", "frame")


class AnyCase(Protocol):
    """What an input of a target means."""

    @classmethod
    def read(cls, data: bytes, /) -> AnyCase:
        """Take a case from an input."""
        ...

    def write(self) -> bytes:
        """Return the input."""
        ...


Seeds: TypeAlias = Iterator[tuple[str, AnyCase]]

SEEDS: Final[dict[str, Callable[[], Seeds]]] = {
    "header": header.seeds,
    "decoder": decoder.seeds,
    "http": http.seeds,
    "compression": compression.seeds,
    "round_trip": round_trip.seeds,
    "safetensors": stream.safetensors_seeds,
    "npy": stream.npy_seeds,
    "frame": frame.seeds,
}
"""The committed seeds of each corpus."""

_SHARED: Final = {"oracle": "decoder"}
"""Targets whose inputs mean the same as those of another one, which then has the corpus."""


def corpus_of(target: str) -> Path:
    """Return the folder of a target's committed corpus."""
    return CORPUS / _SHARED.get(target, target)


def write(folder: Path, seeds: Seeds) -> int:
    """Write seeds as files; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, case in seeds:
        (folder / name).write_bytes(case.write())
        count += 1
    return count


def fill(folder: Path, target: str) -> int:
    """Put everything that a target can begin with into a folder; returns how many files that are."""
    from seeds import repository  # noqa: PLC0415 - needs the tests, which are not everywhere where fuzzers run

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(corpus_of(target), folder, dirs_exist_ok=True)
    write(folder, repository.seeds(_SHARED.get(target, target)))
    return sum(1 for _ in folder.iterdir())


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Write the seed corpora. Without arguments: the committed ones, into fuzz/corpus.",
        epilog="Example: python fuzz/make_corpus.py --into /tmp/seeds http\n"
        "writes all seeds of the target `http` into /tmp/seeds/http: those of fuzz/corpus, and those that are made "
        "from the cases in tests/corpus and the captures in tests/data.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write everything for a run, a folder per target")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"with --into: which ones; all without: {', '.join(TARGETS)}"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if arguments.targets and arguments.into is None:
        parser.error("targets can be chosen with --into only; the committed corpora are written together")
    if arguments.into is None:
        for name, seeds in SEEDS.items():
            sys.stdout.write(f"{name}: {write(CORPUS / name, seeds())} seeds\n")
        return
    for target in arguments.targets or TARGETS:
        sys.stdout.write(f"{target}: {fill(arguments.into / target, target)} files\n")


if __name__ == "__main__":
    main()
