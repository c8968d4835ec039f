"""Mutation testing of a room of `streamcodec`: which small changes of its code would none of its own tests notice?

    python -m tests.mutation.run framing prefixes         # these modules; without names, all of them
    python -m tests.mutation.run --sample 100 machine     # some of its mutants, chosen by a seed
    python -m tests.mutation.run --room http --seconds 2  # another room than engine, with the tests of its own folder

The mutants are mutmut's (`pip install mutmut`, 3.8 or later): this room copies the package and its tests to
`mutants/ROOM`, which is used again, has mutmut put every variant of every function behind a switch there, and starts
pytest with `plugin.py`, which throws the switches. mutmut's own runner starts pytest anew for each mutant, which for a
thousand short tests costs more than all of them; here they are collected once.

What mutmut does not change: statements outside of functions, decorated functions (properties), the arguments of `len`
and `isinstance`, annotations.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from mutmut.mutation.file_mutation import mutate_file_contents

ROOT = Path(__file__).parents[2]
ROOMS = ("engine", "formats", "http", "service", "server")
"""Each is tested by its own folder of tests."""

_FOUND = ("killed", "timeout", "crashed")
"""What becomes of a mutant that the tests notice; crashed is the process, by a signal."""


def main() -> None:
    """Parse the command line, test the mutants, print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="of the room; all of them by default")
    parser.add_argument("--room", choices=ROOMS, default="engine", help="(default: %(default)s)")
    parser.add_argument("--sample", type=int, help="so many of the mutants, at random")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--seconds", type=float, default=4, help="tests for one mutant take so much at most, undisturbed"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--control", action="store_true", help="test functions as they are: all have to survive")
    parser.add_argument("--folder", type=Path, help="for the copy; used again if it is there (default: mutants/ROOM)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path("mutants") / arguments.room
    names_by_module = _prepared(folder.absolute(), arguments.room)
    modules = arguments.modules or names_by_module
    names = [name for module in modules for name in names_by_module[module] if arguments.only in name]
    if arguments.control:
        names = sorted({name.rpartition("__mutmut_")[0] + "__mutmut_orig" for name in names})
    wanted = _sample(names, arguments.sample, arguments.seed)
    _test(wanted, arguments)
    report(wanted, arguments.room)


def _code_of(room: str) -> Path:
    return Path("streamcodec") / room


def _module(path: Path, room: str) -> str:
    """Return the name of a module within its room."""
    return ".".join(path.relative_to(_code_of(room)).with_suffix("").parts)


def _tests_of(room: str) -> list[str]:
    """Return the folders of a room's own tests. The engine is tried by messages of its formats, batches by a server."""
    if room in {"engine", "formats"}:
        return ["tests/engine", "tests/formats"]
    return ["tests/server", "tests/batches"] if room == "server" else [f"tests/{room}"]


def _prepared(folder: Path, room: str) -> dict[str, list[str]]:
    """Have a copy with mutants in `folder`, and go there; return their names by module.

    Tests are copied each time. The code stays as it was when the folder was made, and so do the results.
    """
    index = folder / "mutants.json"
    is_new = not index.exists()
    for name in ("streamcodec", "docs", "tests") if is_new else ("docs", "tests"):  # a test reads a page's examples
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (ROOT / "pyproject.toml").read_text() + f'\n[tool.mutmut]\nsource_paths = ["{_code_of(room)}"]\n'
    (folder / "pyproject.toml").write_text(settings)
    os.chdir(folder)  # where mutmut looks for its settings
    if is_new:
        index.write_text(
            json.dumps({_module(path, room): _mutate(path) for path in sorted(_code_of(room).rglob("[!_]*.py"))})
        )
    names: dict[str, list[str]] = json.loads(index.read_text())
    return names


def _mutate(path: Path) -> list[str]:
    """Put the mutants of a module into it; return their names."""
    mutated = mutate_file_contents(str(path), path.read_text())
    path.write_text(mutated.code)
    return [f"{'.'.join(path.with_suffix('').parts)}.{name}" for name in mutated.mutant_names]


def _sample(names: list[str], count: int | None, seed: int) -> list[str]:
    if count is None or count >= len(names):
        return names
    return random.Random(seed).sample(names, count)  # noqa: S311 - a sample, no secret


def _results() -> dict[str, str]:
    place = Path("results.jsonl")
    return dict(map(json.loads, place.read_text().splitlines())) if place.exists() else {}


def _test(wanted: list[str], arguments: argparse.Namespace) -> None:
    """Test those that have not been killed yet."""
    results = _results()
    left = [name for name in wanted if results.get(name) not in _FOUND]
    task = {
        "mutants": left,
        "seconds": arguments.seconds,
        "processes": arguments.processes,
        "is_live": arguments.room == "server",
    }
    Path("task.json").write_text(json.dumps(task))
    # In-memory failures of a mutant are many and expected: no cache, no report of hangs.
    options = [
        "-p",
        "tests.mutation.plugin",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=0",
        "--tb=native",
        "-sq",
        "-m",
        "not quiet",  # those that the ordinary round leaves out as slow are wanted: each is surveyed for its time
    ]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-m", "pytest", *options, *_tests_of(arguments.room)], env=environment, check=True)


def report(wanted: list[str], room: str) -> None:
    """Print the survivors, and how many there are of which."""
    results = _results()
    statuses = ("killed", "timeout", "crashed", "survived", "no tests", "suspicious")
    table: dict[str, Counter[str]] = {}
    for name in wanted:
        status = results.get(name, "not tested")
        *modules, function = name.split(".")[2:]
        module = ".".join(modules)
        if status not in _FOUND:
            code = _code_of(room).joinpath(*modules).with_suffix(".py").read_text()
            print(f"{status}: {name}\n{_difference(code, function)}\n")
        table.setdefault(module, Counter())[status] += 1
    table["all"] = sum(table.values(), Counter())
    print(f"{'module':<20}" + "".join(f"{status:>10}" for status in (*statuses, "total", "score")))
    for module, counts in table.items():
        score = sum(counts[status] for status in _FOUND) / max(1, counts.total())
        numbers = "".join(f"{count:>10}" for count in (*(counts[status] for status in statuses), counts.total()))
        print(f"{module:<20}{numbers}{score:>10.1%}")


def _difference(code: str, mutant: str) -> str:
    """Return the lines that a mutant changes."""
    original = mutant.rpartition("__mutmut_")[0] + "__mutmut_orig"
    old, new = (_function(code, name).replace(name, "").splitlines() for name in (original, mutant))
    return "\n".join(line for line in difflib.ndiff(old, new) if line[0] in "+-")


def _function(code: str, name: str) -> str:
    start = code.index(f"def {name}(")
    indent = " {0,4}" if "\u01c1" in name else ""  # of a method; what is indented in a function belongs to it
    end = re.compile(rf"\n{indent}(?:async def|def|class|@|mutants_)").search(code, start)
    return code[start : end.start() if end else None]


if __name__ == "__main__":
    main()
