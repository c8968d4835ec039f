"""Comparing: the same calls by tritonclient and by ours, and how often they end in which way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, seed, settings

from tests.tritonclient.drawing import CALLS, Ask
from tests.tritonclient.faces import OURS, THEIRS, Face, face
from tests.tritonclient.recording import Recorder, recording

_FORGOTTEN: Final = ("failed", "NameError")
"""tritonclient.http.aio uses `raise_error`, and does not import it."""

_ASKED_BY_AIOHTTP: Final = "gzip, deflate, br"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both clients, and the server that they talk to."""

    ours: Face
    theirs: Face
    recorder: Recorder
    seen: Counter[str] = field(default_factory=Counter)
    """How calls have ended, in the words of `assert_same`."""

    def play(self, kind: str, count: int, number: int | None = None) -> None:
        """Compare random calls of one kind; a number makes them the same each time.

        Raises:
            AssertionError: the two differ.
        """

        @settings(max_examples=count, deadline=None, database=None)
        @given(ask=CALLS[kind].calls)
        def compare(ask: Ask) -> None:
            self.recorder.answers(ask.body, *ask.fields, status=ask.status)
            self.assert_same(ask)

        (compare if number is None else seed(number)(compare))()

    def assert_same(self, ask: Callable[[Face], Any]) -> Any:  # noqa: ANN401 - the outcome
        """Call both, and return what came of it.

        Raises:
            AssertionError: the server has seen something else, or the program has got something else.
        """
        self.recorder.requests.clear()
        expected = outcome(self.theirs, ask)
        expected_requests = self._requests()
        self.recorder.requests.clear()
        found = outcome(self.ours, ask)
        assert found == expected or (expected == _FORGOTTEN and found[0] == "refused")
        assert self._requests() == expected_requests
        ending = "NameError by tritonclient, refused by ours" if found != expected else f"the same {found[0]}"
        self.seen.update({ending: 1, "the same requests": len(expected_requests)})
        return expected

    def _requests(self) -> list[dict[str, Any]]:
        requests = [request.plain for request in self.recorder.requests]
        for request in requests:
            if request["fields"].get("accept-encoding") == _ASKED_BY_AIOHTTP:
                del request["fields"]["accept-encoding"]
        return requests


@contextmanager
def compared(kind: str) -> Iterator[Pair]:
    """Make clients of a kind (`sync` or `aio`), whose server records."""
    with (
        recording() as recorder,
        face(OURS, kind, f"{recorder.address}/base/") as ours,
        face(THEIRS, kind, f"{recorder.address}/base/") as theirs,
    ):
        yield Pair(ours, theirs, recorder)


def outcome(client: Face, ask: Callable[[Face], Any]) -> Any:  # noqa: ANN401 - whatever both give
    """Return how a call ends, in a form that can be compared; its first item is the kind."""
    try:
        result = ask(client)
    except client.http.InferenceServerException as error:
        return "refused", str(error), error.message(), error.status(), error.debug_details()
    except Exception as error:  # noqa: BLE001 - the kind is what is compared
        return "failed", type(error).__name__
    if not hasattr(result, "as_numpy"):
        return "value", result
    response = result.get_response()
    outputs = [output["name"] for output in response.get("outputs", ())]
    return "arrays", response, [(result.get_output(name), _values(result, name)) for name in [*outputs, "absent"]]


def _values(result: Any, name: str) -> Any:  # noqa: ANN401 - of either package
    try:
        array = result.as_numpy(name)
    except KeyError as error:  # it is in shared memory
        return repr(error)
    if array is None:
        return None
    return array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()
