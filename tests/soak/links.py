"""Bad links by one command: `python -m tests.soak.links --down 600`.

A client sends tensors of 20 MiB with `resumable=` over links that break, to servers that end, and to servers that have
no room. Each line says whether the answer was right, how many bytes the link carried for each byte of the request, and
how long it took.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from streamcodec import encode_request
from streamcodec.client import Client
from streamcodec.server import ServerOptions, open_listener
from tests.server.breaking import Link, breaking
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import Wire, head

_X = np.arange(5 << 20, dtype=np.float32)
_OPTIONS = ServerOptions(resumable_uploads=4)
_OUTAGE = 3600.0
_HELD = encode_request({"x": _X})

Address = tuple[str, int]


class Links:
    """The cases."""

    def __init__(self, folder: Path, down: float, seed: int) -> None:
        self._folder = folder
        self._down = down
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._number = 0

    def run(self) -> None:
        """Do all of them; an exception ends the run."""
        for name, act in {
            "no break": lambda: self._over(iter(())),
            "30% of connections cut": lambda: self._over(self._some_cut(0.3)),
            "every connection cut, after up to 4 MiB": lambda: self._over(self._some_cut(1.0)),
            "every connection cut, after up to 64 KiB": lambda: self._over(self._some_cut(1.0, 64 << 10, 4 << 20)),
            "first answer lost, 6 times": self._first_answer_lost,
            "client restarted": self._client_restarted,
            "server restarted, in memory": lambda: self._server_restarted(None),
            "server restarted, --upload-dir": lambda: self._server_restarted(self._new_folder()),
            "no room, all brought": self._no_room,
            "no room, all interrupted": self._interrupted,
            f"link down for {self._down:g} s": self._link_down,
        }.items():
            began = time.monotonic()
            carried = act()
            print(f"{name}: right, {carried / _X.nbytes:.3f} bytes sent for each, {time.monotonic() - began:.1f} s")

    def _new_folder(self) -> Path:
        self._number += 1
        return self._folder / f"uploads{self._number}"

    def _some_cut(self, share: float, most: int = 4 << 20, total: int = 1 << 40) -> Iterator[int]:
        """Yield after how many bytes each connection is cut; so many that it is not, are never reached."""
        while total > 0:
            cut = self._random.randrange(1, most) if self._random.random() < share else 1 << 40
            total -= cut if cut < 1 << 40 else 0
            yield cut

    def _over(self, cuts: Iterator[int]) -> int:
        with server_here(models(), _OPTIONS) as (_, address), breaking(address, cuts) as link:
            _ask(link.url)
            return link.passed

    def _first_answer_lost(self) -> int:
        nbytes = _first_bytes()
        return self._over(iter([nbytes] * 6))

    def _client_restarted(self) -> int:
        """Three clients, of which two end in the middle; each goes on where the one before was."""
        path = self._folder / "record"
        cuts = [7 << 20, *[1] * 6, 7 << 20, *[1] * 6]
        with server_here(models(), _OPTIONS) as (_, address), breaking(address, iter(cuts)) as link:
            for _ in range(50):
                with suppress(ConnectionError):
                    _ask(link.url, path, outage=0.5)
                    return link.passed
        raise AssertionError("it was never complete")

    def _server_restarted(self, folder: Path | None) -> int:
        """Twice, in the middle of the request."""
        options = replace(_OPTIONS, upload_dir=folder, shutdown_timeout=0.1)
        with closing(open_listener("127.0.0.1", 0)) as first:
            address = first.getsockname()
        link_cuts: Iterator[int] = iter([6 << 20, 6 << 20])
        with ExitStack() as stack:
            link = stack.enter_context(breaking(address, link_cuts))
            asking = threading.Thread(target=_ask, args=(link.url,))
            for number in range(3):
                with server_here(models(), options, listener=open_listener(*address)):
                    if not number:
                        asking.start()
                    while link.breaks <= number and asking.is_alive():
                        time.sleep(0.01)
            asking.join()
            return link.passed

    def _no_room(self) -> int:
        """Other clients bring as many uploads as there may be."""
        with ExitStack() as stack:
            _, address = stack.enter_context(server_here(models(), _OPTIONS))
            for _ in range(_OPTIONS.resumable_uploads):
                _begin(stack.enter_context(Wire(address)), 1000)
            return _asked(stack, address)

    def _interrupted(self) -> int:
        """Other clients have begun as many, and left."""
        with ExitStack() as stack:
            _, address = stack.enter_context(server_here(models(), _OPTIONS))
            for nbytes in range(_OPTIONS.resumable_uploads):
                with Wire(address) as wire:
                    _begin(wire, nbytes)
            return _asked(stack, address)

    def _link_down(self) -> int:
        until = [0.0]

        def cuts() -> Iterator[int]:
            yield 10 << 20
            until[0] = time.monotonic() + self._down
            while time.monotonic() < until[0]:
                yield 1

        return self._over(cuts())


def _asked(stack: ExitStack, address: Address) -> int:
    link: Link = stack.enter_context(breaking(address, iter(())))
    _ask(link.url)
    return link.passed


def _ask(url: str, path: Path | bool = True, outage: float = _OUTAGE) -> None:
    with Client(url, total_timeout=None) as client:
        result = client.infer("identity", {"x": _X}, resumable=path, outage=outage)
    assert np.array_equal(result["x"], _X)


def _begin(wire: Wire, nbytes: int) -> None:
    fields = [f"{name}: {value}" for name, value in _HELD.headers]
    draft = "Upload-Draft-Interop-Version: 8"
    wire.send(head("/v2/models/identity/infer", *fields, "Upload-Complete: ?1", draft), bytes(nbytes))
    assert wire.response(has_body=False).status == 104


def _first_bytes() -> int:
    """Return the size of the request that begins an upload."""
    found: list[int] = []

    def listen() -> None:
        connection, _ = listener.accept()
        with connection:
            found.append(len(connection.recv(1 << 16)))
        listener.close()

    with closing(open_listener("127.0.0.1", 0)) as listener:
        listener.setblocking(True)
        thread = threading.Thread(target=listen)
        thread.start()
        with suppress(ConnectionError):
            _ask("http://{}:{}".format(*listener.getsockname()), outage=0.01)
        thread.join()
    return found[0]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.links", description=__doc__)
    parser.add_argument("--down", type=float, default=60.0, help="seconds of the outage (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="of the cuts (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Links(Path(folder), options.down, options.seed).run()


if __name__ == "__main__":
    main()
