"""Reading: the Markdown of the corpus to cases; see README.md for its grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
MESSAGES = {"request", "response", "http-request", "http-response"}
OUTCOMES = {"accepted", "refused", "answered"}
_FENCE = re.compile(r"^```(\S*)(.*)$")
_STATUS = re.compile(r"^answer ([0-9]{3})$", re.MULTILINE)
_FIRST_ERROR = 400


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case, as it was written down."""

    file: str
    line: int
    name: str
    rules: tuple[str, ...]
    kind: str
    """One of `MESSAGES`."""
    options: dict[str, str] = field(default_factory=dict)
    message: str
    outcome: str
    """One of `OUTCOMES`."""
    expected: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether somebody is told that they did something wrong."""
        status = _STATUS.search("\n".join(self.expected))
        return self.outcome == "refused" or (status is not None and int(status[1]) >= _FIRST_ERROR)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


@dataclass(frozen=True)
class _Block:
    info: str
    rest: str
    text: str
    line: int


def read_corpus() -> list[Case]:
    """Read all cases, in the order of files and lines."""
    return [case for path in sorted(FOLDER.glob("*.md")) if path.name not in _OTHERS for case in read_file(path)]


_OTHERS = {"README.md", "rules.md", "still-accepted.md"}


def read_rules() -> dict[str, str]:
    """Read the list of rules: what each says, by its id."""
    return dict(re.findall(r"^- `([a-z0-9/-]+)`: (.+)$", (FOLDER / "rules.md").read_text("utf-8"), re.MULTILINE))


def read_changes() -> dict[str, str]:
    """Read the list of changes that are accepted: the reason of each kind, by its name."""
    text = (FOLDER / "still-accepted.md").read_text("utf-8")
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE))


def read_file(path: Path) -> Iterator[Case]:
    """Read the cases of one file."""
    name = ""
    rules: tuple[str, ...] = ()
    message: _Block | None = None
    for item in _items(path.read_text("utf-8").split("\n")):
        if isinstance(item, str):
            if item.startswith("### "):
                assert message is None, f"{path.name}: {name}: what must come of the message?"
                name, rules = item[4:].strip(), ()
            elif item.startswith("rule: "):
                rules = tuple(rule.strip() for rule in item.removeprefix("rule: ").split(","))
        elif item.info in MESSAGES:
            assert message is None, f"{path.name}:{item.line}: two messages in a row"
            message = item
        else:
            assert item.info in OUTCOMES, f"{path.name}:{item.line}: a block of what? {item.info!r}"
            assert message is not None, f"{path.name}:{item.line}: where is the message?"
            yield _case(path.name, name, rules, message, item)
            message = None


def _case(file: str, name: str, rules: tuple[str, ...], message: _Block, outcome: _Block) -> Case:
    options = [option.partition("=") for option in message.rest.split()]
    return Case(
        file=file,
        line=message.line,
        name=name,
        rules=rules,
        kind=message.info,
        options={key: value for key, _, value in options},
        message=message.text,
        outcome=outcome.info,
        expected=tuple(filter(None, outcome.text.split("\n"))),
    )


def _items(lines: list[str]) -> Iterator[str | _Block]:
    """Yield lines, and blocks between fences."""
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        fence = _FENCE.match(line)
        if fence is None:
            yield line
            continue
        text: list[str] = []
        for _, inner in numbered:
            if inner == "```":
                break
            text.append(inner)
        else:
            raise AssertionError(f"the block of line {number} has no end")
        yield _Block(fence[1], fence[2], "\n".join(text), number)
