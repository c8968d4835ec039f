"""The pytest plugin of mutation testing: collects the tests once, then runs them in a fork for each mutant.

First one fork runs all tests, to see how long each takes and which functions it comes to. Then, for each mutant, a fork
runs the tests that come to its function, up to a budget: those that have found others first, then those of its module,
then the others; of each, first one of every parametrized test, the quick ones first. So a survivor has seen all tests
of its function, or the quickest of them.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutmut.mutation import trampoline

_MEMORY_BYTES = 12 << 30
_HANGING_SECONDS = 10
"""A live server that a mutant has silenced is given up after so much more than its tests take."""

_EXAMPLES = 30
"""Of each property: what a mutant changes shows early or never."""

_TOO_LONG = (
    "test_properties",
    "test_state_machine",
    "engine/test_misuse",
    "test_constant_memory",
    "every_length",
    "ends_early",
    "server/test_comparison",
    "server/connection/test_error_lengths",
    "server/connection/test_smuggling",
    "server/connection/test_json_answers",
    "server/calling/test_health",
    "server/memory/test_shortage",
    "test_no_turn_is_long",
    "test_a_slow_model_makes_its_client_wait",
    "test_tensors_of_ever_larger_sizes",
    "test_others_are_answered_meanwhile",
    "test_bad_clients_next_to_good_ones",
    "test_connections_that_come_and_go_leave_nothing",
    "uvloop",
)
"""Left out: a mutant that only these would find counts as a survivor."""

_ELSEWHERE = {"program"}
"""Fixtures of tests that share a process, which knows of no mutant: these are left out, too."""

_WORKERS = ("test_processes.py", "test_renewal.py", "test_stuck_workers.py", "test_worker_metrics.py")

_PROGRAMS = {
    "running": ("test_process.py", *_WORKERS),
    "servicemanager": ("test_servicemanager.py",),
    "supervising": _WORKERS,
    "workerprocess": _WORKERS,
    "workers": _WORKERS,
}
"""Of modules whose functions run in processes that their tests start: those tests are used, whatever the survey says.
Such a process has mutmut's own switches, and is told of the mutant by its environment."""

_WORDS = ("test_refusals.py", "test_complaints.py", "test_told.py", "test_rules.py")
"""Of no module, or of all: where each parameter is about something else."""

_FILES = {
    "body": ("bodies",),
    "claims": ("overlap",),
    "collector": ("bodies", "client"),
    "compressing": ("deflating",),
    "deflate": ("deflating",),
    "depth": ("json_depth",),
    "head": ("frames", "stream"),
    "integers": ("values", "stream"),
    "kept": ("stream",),
    "layout": ("binary", "frames", "headerless"),
    "longtext": ("slices",),
    "machine": ("format", "decoder"),
    "objectend": ("headerless", "format"),
    "payloads": ("elements",),
    "quick": ("json_quick",),
    "reader": ("format", "parsing"),
    "scan": ("json_depth", "json_quick"),
    "slices": ("stream",),
    "tensors": ("parsing",),
    "text": ("json_text",),
    "zipping": ("archive",),
    "admission": ("bookkeeping",),
    "budget": ("budget_rates", "bookkeeping"),
    "channels": ("channels", "pipelining", "times", "floods"),
    "connection": ("heads", "misuse", "zero_copy"),
    "driver": ("times", "budget", "limits", "admission", "observing", "leaving"),
    "lingering": ("limits", "admission"),
    "options": ("limits",),
    "calls": ("calls", "times", "windowed_models"),
    "plain": ("plain_values",),
    "plan": ("plans",),
    "running": ("process",),
    "server": ("misuse", "connection"),
    "serving": ("admission", "limits", "process", "observing"),
    "session": ("bookkeeping", "requests", "limits", "budget", "observing", "features"),
    "workers": ("worker_rules",),
}
"""Of modules that have no file of tests of their own: whose theme is theirs."""

Timings = dict[str, float]
"""Seconds that tests take, by their name; where they wait, as those of a live server do, by the wall's clock."""

Items = dict[str, pytest.Item]

_SWITCHES: dict[str, list[Callable[..., Any]]] = {}
"""What is called for each function: itself, or a mutant of it."""

_MUTANTS: dict[str, dict[str, Callable[..., Any]]] = {}
"""The mutants of each function, by their names."""

_HITS: set[str] = set()
"""Functions that were called, while that is recorded."""


def _with_switch(mutants: dict[str, Callable[..., Any]], **_: bool) -> Callable[..., Any]:
    """Do the work of mutmut's own switch, which looks the mutant up at each call, in a tenth of its time."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__ if function.__qualname__ == function.__name__ else function.__qualname__
        parts = name.split(".")
        mangled = f"x\u01c1{parts[0]}\u01c1{parts[1]}" if len(parts) == 2 else f"x_{name}"
        full = f"{function.__module__}.{mangled}"
        switch = _SWITCHES[full] = [function]
        _MUTANTS[full] = mutants

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - anything
            return switch[0](*args, **kwargs)

        return call

    return decorate


vars(trampoline)["wrap_in_trampoline"] = _with_switch


def _recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - anything
        _HITS.add(name)
        return function(*args, **kwargs)

    return call


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Do this instead of running the tests."""
    task = json.loads(Path("task.json").read_text())
    items = {
        item.nodeid: item
        for item in session.items
        if ("msgspec" not in item.name or "quickjson" in item.nodeid)
        and not any(part in item.nodeid for part in _TOO_LONG)
        and not _ELSEWHERE.intersection(getattr(item, "fixturenames", ()))
    }
    for item in items.values():
        _shorten(item)
    _test_all(items, task, _surveyed(items, is_live=task["is_live"]))
    return True


def _surveyed(items: Items, *, is_live: bool) -> dict[str, Timings]:
    """Return for each function and program, which tests come to it; tests that are known already are not run for it."""
    place = Path("survey.json")
    known = json.loads(place.read_text()) if place.exists() else {}
    new = {name: item for name, item in items.items() if name not in known}
    known |= json.loads(_in_fork(lambda: json.dumps(_survey(new, is_live=is_live)).encode(), 600))
    place.write_text(json.dumps(known))
    tests: dict[str, Timings] = defaultdict(dict)
    for name, (seconds, functions) in known.items():
        programs = [module for module, files in _PROGRAMS.items() if any(f"processes/{file}" in name for file in files)]
        for key in [*functions, *programs] if name in items else ():
            tests[key][name] = seconds
    return tests


def _shorten(item: pytest.Item) -> None:
    """Give a property few examples, the same every time."""
    test = getattr(item, "obj", None)
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if test is not None and given is not None:
        phases = [Phase.explicit, Phase.generate]
        count = min(given.max_examples, _EXAMPLES)
        few = settings(given, max_examples=count, derandomize=True, database=None, phases=phases)
        getattr(test, "__func__", test)._hypothesis_internal_use_settings = few  # noqa: SLF001 - no public way


def _survey(items: Items, *, is_live: bool) -> dict[str, tuple[float, list[str]]]:
    """Run all tests once; return for each, how long it takes and which functions it comes to."""
    for function, switch in _SWITCHES.items():
        switch[0] = _recording(function, switch[0])
    hits, survey = _HITS, {}
    clock = time.monotonic if is_live else time.process_time
    for name, item in items.items():
        hits.clear()
        started = clock()
        if _fails(item):
            print(f"left out, since it fails without mutants: {name}", file=sys.__stdout__, flush=True)
            hits.clear()
        survey[name] = clock() - started, sorted(hits)
    return survey


def _fails(item: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _test_all(items: Items, task: dict[str, Any], tests_by_function: dict[str, Timings]) -> None:
    killers: dict[str, Counter[str]] = defaultdict(Counter)
    running: dict[int, tuple[str, int]] = {}

    def tell(mutant: str, status: str) -> None:
        with Path("results.jsonl").open("a") as results:
            results.write(json.dumps([mutant, status]) + "\n")

    def collect() -> None:
        pid, code = os.wait()
        mutant, pipe = running.pop(pid)
        killer = os.read(pipe, 10_000).decode()
        os.close(pipe)
        if killer:
            killers[_function(mutant)][killer] += 1
        tell(mutant, "killed" if killer else "survived" if code == 0 else _status(code))

    for mutant in task["mutants"]:
        tests = tests_by_function.get(_function(mutant), {}) | tests_by_function.get(_module(mutant), {})
        if not tests:
            tell(mutant, "no tests")
            continue
        while len(running) >= task["processes"]:
            collect()
        chosen = list(_chosen(tests, killers[_function(mutant)], _module(mutant), task["seconds"]))
        limit = int(3 + 2 * sum(tests[name] for name in chosen))
        most = limit + _HANGING_SECONDS if task["is_live"] else 8 * limit
        again = int(task["is_live"])
        pid, pipe = _fork(lambda: _killer(mutant, {name: items[name] for name in chosen}, again), limit, most)  # noqa: B023
        running[pid] = mutant, pipe
    while running:
        collect()


def _function(mutant: str) -> str:
    return mutant.rpartition("__mutmut_")[0]


def _module(mutant: str) -> str:
    """Return the last part of its module's name: of `streamcodec.formats.v2.fields` this is `fields`."""
    return mutant.split(".")[-2]


def _status(code: int) -> str:
    ended_by = os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0
    if ended_by in {signal.SIGXCPU, signal.SIGALRM}:
        return "timeout"
    return "crashed" if ended_by else "suspicious"  # the latter is a mistake in here, and no merit of a test


def _chosen(tests: Timings, killers: Counter[str], module: str, seconds: float) -> Iterator[str]:
    """Yield which tests to run, in order."""
    first = [name for name, _ in killers.most_common(5)]
    yield from first

    files = tuple(f"test_{name}.py" for name in (module, *_FILES.get(module, ())))

    def is_own(name: str) -> bool:
        return any(file in name for file in (*files, *_WORDS))

    def cost(name: str) -> float:  # the module's own tests count little
        return tests[name] / 5 if is_own(name) else tests[name]

    left = sorted(tests.keys() - set(first), key=cost)
    own = list(filter(is_own, left))
    for name in (*_varied(own), *_varied([name for name in left if not is_own(name)])):
        seconds -= cost(name)
        if seconds < 0:
            return
        yield name


def _varied(names: list[str]) -> list[str]:
    """Put the first of each test function's parameters in front, then the second: what one misses, others may too."""
    counts: Counter[str] = Counter()
    rounds = []
    for name in names:
        function = name.partition("[")[0]
        rounds.append(0 if any(file in name for file in _WORDS) else counts[function])
        counts[function] += 1
    return [name for _, name in sorted(zip(rounds, names, strict=True), key=lambda pair: pair[0])]


def _killer(mutant: str, items: Items, again: int) -> bytes:
    """Return the first test that fails with a mutant; and fails so often again, since some fail by chance."""
    function = _function(mutant)
    name = mutant.rpartition(".")[2]
    changed = _MUTANTS[function]["_mutmut_orig" if name.endswith("_orig") else name]
    os.environ["MUTANT_UNDER_TEST"] = mutant
    _SWITCHES[function][0] = getattr(changed, "__func__", changed)  # the switch of a class method is given its class
    return next((name.encode() for name, item in items.items() if all(_fails(item) for _ in range(1 + again))), b"")


def _in_fork(work: Callable[[], bytes], seconds: int) -> bytes:
    pid, pipe = _fork(work, seconds, 8 * seconds)
    with os.fdopen(pipe, "rb") as stream:
        output = stream.read()
    os.waitpid(pid, 0)
    return output


def _fork(work: Callable[[], bytes], seconds: int, most: int) -> tuple[int, int]:
    """Let a child work, for some seconds of the processor's and at `most` so many by the wall's clock.

    Returns:
        Its id, and what its result can be read from.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = 1
    with suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        signal.alarm(most)
        with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a descriptor is wanted
            os.dup2(nothing.fileno(), 2)
            if seconds < 600:
                os.dup2(nothing.fileno(), 1)
        output = work()
        while output:
            output = output[os.write(writing, output) :]
        code = 0
    os._exit(code)
