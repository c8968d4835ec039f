"""The walk of the page about the architecture: one request enters the files that it names, and no other."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from types import FrameType

from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, infer_request

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "streamcodec"
_VALUES = 1 << 14
_BESIDE = {"server/serving", "server/listening", "server/sockets/accepting", "service/routes"}
"""Other connections are accepted from time to time. If a turn is over, it is asked whether a health check has come."""


class _Entered:
    """The files whose functions are called in the threads that `watch`, until it is over."""

    def __init__(self) -> None:
        self._entered: set[str] = set()
        self.is_over = False

    def take(self) -> set[str]:
        """Return the files since the last time."""
        entered, self._entered = self._entered, set()
        return entered - _BESIDE

    def watch(self) -> None:
        """Watch this thread from now on."""
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if self.is_over:
            sys.setprofile(None)
        elif event == "call" and path.is_relative_to(_PACKAGE):
            self._entered.add(path.relative_to(_PACKAGE).with_suffix("").as_posix())


def _of_the_page() -> set[str]:
    text = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, walk = text.partition("## One request, file by file")
    rows = [line for line in walk.partition("No task runs")[0].splitlines() if line.startswith("|")]
    return {file for row in rows[2:] for file in re.findall(r"`([^`]+)`", row)}


def test_a_request_enters_the_files_that_the_page_names() -> None:
    entered = _Entered()

    def predict(request: InferenceRequest) -> Outputs:
        entered.watch()  # the thread that the model has, or the event loop, from the next request on
        return {"y": request.inputs["x"]}

    models = [
        Model(name="thread", predict=predict, is_inline=False),
        Model(name="loop", predict=predict, is_inline=True),
    ]
    walks = []
    with server_here(ModelRegistry.of(models)) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("loop")).response().status == 200
        for number in range(20):  # the first ones are new; others may come in two reads
            request = infer_request("thread", count=_VALUES, request_id=f"a{number}")
            assert wire.send(request).response().status == 200
            time.sleep(0.01)  # until the server waits again
            walks.append(entered.take())
    entered.is_over = True
    assert _of_the_page() in walks
