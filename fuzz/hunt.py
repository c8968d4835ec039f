"""Hunt for the input that costs most for its bytes: of CPU time, and of memory. Needs no Atheris.

libFuzzer looks for new places in the code; what costs most is mostly the same place very often. So inputs are changed
here in the ways that make one place be reached often: a part of the payload is repeated until the input has some
kilobytes, something odd is put behind it, two inputs are joined, and JSON tensors are grown that are right but for one
value. What takes a larger share of its bound than the worst so far stays and is changed further. In the end the worst
are printed and written; the exit status is 1 if one is beyond its bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

from make_corpus import fill
from targets import compression, connections, header
from targets.case import Case, Length
from targets.costs import RATES, Cost, cost_of

_KEPT: Final = 24
_LEAST_BYTES: Final = 2 << 10
_MOST_BYTES: Final = 64 << 10
_MIN_SHARE: Final = 0.02
"""What is below it on the first look is not looked at again."""
_PAYLOADS: Final[dict[str, tuple[Any, str]]] = {
    "header": (header.Case, "text"),
    "decoder": (Case, "message"),
    "compression": (compression.Case, "data"),
    "http": (connections.Case, "stream"),
}
"""The case of each target, and which of its fields is not an option."""

_DATATYPES: Final = ("BOOL", "UINT8", "INT8", "INT32", "UINT64", "INT64", "FP16", "FP32", "FP64", "BYTES")
_VALUES: Final = (
    "1",
    "0",
    "-1",
    "1.5",
    "0.125",
    "1e5",
    "1e-05",
    "-0",
    "1e39",
    "1e999",
    "9" * 20,
    "NaN",
    "-Infinity",
    "true",
    "null",
)
_STRANGE: Final = ("{}", "[]", "[1]", '"a"', r'"\ud800"', r'"\u0041"', '{"\U000e0001":0}', "1e", "]")
_TOKENS: Final = tuple(value.encode() for value in (*_VALUES, *_STRANGE, ",", "\n", "\r\n", "0\r\n\r\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An input and what it costs."""

    data: bytes
    cost: Cost


class Hunt:
    """The search for one target."""

    def __init__(self, target: str, inputs: list[bytes], seed: int) -> None:
        self.target = target
        self.tried = 0
        self.worst: list[Found] = []
        self._inputs = inputs
        self._random = Random(seed)  # noqa: S311 - to be the same every time

    def run(self, seconds: float) -> None:
        """Try for some time."""
        end = time.monotonic() + seconds
        for data in self._inputs:
            self._try(data)
        while time.monotonic() < end:
            self._try(self._changed())

    def _try(self, data: bytes) -> None:
        self.tried += 1
        least = self.worst[-1].cost.share if len(self.worst) == _KEPT else _MIN_SHARE
        if cost_of(self.target, data, with_memory=self.tried % 4 == 0).share <= least:
            return
        found = Found(data=data, cost=cost_of(self.target, data))  # again: the first look may have been disturbed
        if found.cost.share > least and all(data != other.data for other in self.worst):
            self.worst = sorted([*self.worst, found], key=lambda one: -one.cost.share)[:_KEPT]

    def _changed(self) -> bytes:
        """Return a changed input: of the worst as often as of the others."""
        random = self._random
        if self.target in {"header", "decoder"} and random.random() < 0.5:  # noqa: PLR2004 - half of them
            return self._case(self._grown_tensor())
        among = [one.data for one in self.worst] if self.worst and random.random() < 0.5 else self._inputs  # noqa: PLR2004 - the same
        kind, name = _PAYLOADS[self.target]
        case = kind.read(random.choice(among))
        payload: bytes = getattr(case, name)
        for _ in range(random.randint(1, 3)):
            payload = random.choice((self._repeated, self._appended, self._joined))(payload)
        written: bytes = replace(case, **{name: payload[:_MOST_BYTES]}).write()
        return written

    def _repeated(self, payload: bytes) -> bytes:
        start = self._random.randrange(len(payload) + 1)
        end = min(len(payload), start + self._random.choice((1, 2, 3, 8, 40, 200)))
        part = payload[start:end]
        if not part:
            return payload
        count = self._random.randint(_LEAST_BYTES, _MOST_BYTES) // len(part)
        return payload[:start] + part * count + payload[end:]

    def _appended(self, payload: bytes) -> bytes:
        at = self._random.choice((len(payload), self._random.randrange(len(payload) + 1)))
        return payload[:at] + self._random.choice(_TOKENS) + payload[at:]

    def _joined(self, payload: bytes) -> bytes:
        kind, name = _PAYLOADS[self.target]
        other: bytes = getattr(kind.read(self._random.choice(self._inputs)), name)
        at = self._random.randrange(len(payload) + 1)
        return payload[:at] + other[self._random.randrange(len(other) + 1) :]

    def _grown_tensor(self) -> bytes:
        """Return a header with a JSON tensor, many values alike and one that is not."""
        random = self._random
        usual, odd = random.choice((*_VALUES, *_STRANGE)), random.choice((*_VALUES, *_STRANGE))
        count = random.randint(_LEAST_BYTES, _MOST_BYTES) // (len(usual.encode()) + 1)
        values = [usual] * count
        values[random.choice((-1, random.randrange(count)))] = odd
        levels = random.choice((0, 0, 1, 30))
        shape = [1] * levels + [count]
        data = "[" * (levels + 1) + ",".join(values) + "]" * (levels + 1)
        text = f'{{"name":"x","datatype":"{random.choice(_DATATYPES)}","shape":{shape},"data":{data}}}'
        if random.random() < 0.2:  # noqa: PLR2004 - now and then where it is no tensor's
            return f'{{"inputs":[],"parameters":{{"a":{data}}}}}'.encode()
        return f'{{"inputs":[{text}]}}'.encode()

    def _case(self, text: bytes) -> bytes:
        if self.target == "header":
            return header.Case(text=text).write()
        return Case(message=text, header=self._random.choice((Length.FITTING, Length.UNKNOWN))).write()


def main() -> int:
    """Hunt; 1 if something is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*RATES, []], metavar="TARGET", help=f"all: {', '.join(RATES)}")
    parser.add_argument("--seconds", type=float, default=30, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same (default: %(default)s)")
    parser.add_argument("--show", type=int, default=5, help="of the worst (default: %(default)s)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="for the worst inputs; gone on with if it has some")
    arguments = parser.parse_args()
    is_beyond = False
    for target in arguments.targets or RATES:
        hunt = Hunt(target, inputs_of(target, arguments.work), arguments.seed)
        hunt.run(arguments.seconds)
        sys.stdout.write(f"{target}: {hunt.tried:,} inputs; the worst:\n")
        for found in hunt.worst[: arguments.show]:
            sys.stdout.write(f"  {found.cost}\n      {_shown(target, found.data)}\n")
            is_beyond |= found.cost.share > 1
        if arguments.work is not None:
            _write(arguments.work / target, hunt.worst)
    return int(is_beyond)


def inputs_of(target: str, work: Path | None) -> list[bytes]:
    """Return what there is to begin with: the seeds, what the repository holds, and what an earlier hunt has left."""
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), target)
        paths = sorted(Path(folder).iterdir())
        if work is not None and (work / target).exists():
            paths += sorted((work / target).iterdir())
        return [path.read_bytes() for path in paths]


def _write(folder: Path, worst: list[Found]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for number, found in enumerate(worst):
        (folder / f"{number:02}").write_bytes(found.data)


def _shown(target: str, data: bytes) -> str:
    kind, name = _PAYLOADS[target]
    payload: bytes = getattr(kind.read(data), name)
    module = import_module(f"targets.{target}")
    words = module.explain(data).splitlines()[-1] if len(payload) < _LEAST_BYTES else ""
    return f"{payload[:100]!r} ... {payload[-40:]!r} {words[:100]}"


if __name__ == "__main__":
    sys.exit(main())
