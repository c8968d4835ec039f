"""A request over a link that breaks ten times, from a client that is killed once: `python resumed_request.py 500` (MB).

The bundled server keeps what has come (`resumable_uploads`), and the client goes on there. The name of the upload is in
a file, so the client does so after its restart, too. It reads its tensor from a file, a window at a time. The answer is
a digest of the bytes that the model has got. The last line compares the client's peak of memory with that of a Python
that has imported nothing.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamcodec import Rows
from streamcodec.client import Client

ROW = 1 << 16
BREAKS = 10
KILLED_AFTER = 4
PEAK = "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"


def serve() -> None:
    """Serve a model that returns the digest of its input."""
    from streamcodec.server import ServerOptions, run  # noqa: PLC0415 - the client has to be small
    from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service  # noqa: PLC0415

    def digest(request: InferenceRequest) -> Mapping[str, np.ndarray[Any, Any]]:
        return {"digest": np.frombuffer(hashlib.sha256(request.inputs["x"].data).digest(), np.uint8)}

    def announce(_: str, port: int) -> None:
        print(port, flush=True)

    service = Service(ModelRegistry.of([Model(name="digest", predict=digest)]))
    run(service, port=0, options=ServerOptions(resumable_uploads=1), on_listening=announce)


class Windows:
    """The rows of a file, which are read again after each break."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
        with Path(self.path).open("rb") as file:
            while data := file.read(ROW):
                yield np.frombuffer(data, np.uint8).reshape(1, ROW)


def ask(url: str, path: str, record: str) -> None:
    """Send the file."""
    shape = (Path(path).stat().st_size // ROW, ROW)
    with Client(url) as client:
        result = client.infer("digest", {"x": Rows("UINT8", shape, Windows(path))}, resumable=record)
    print(result["digest"].tobytes().hex())


class Link:
    """Passes connections on to a server. Each breaks after a random number of bytes, as long as there are breaks."""

    def __init__(self, port: int, nbytes: int) -> None:
        self.port = port
        self.breaks = 0
        self.passed = 0
        self.chance = np.random.default_rng(1)
        self.most = nbytes // (BREAKS + 1)
        self.has_broken = threading.Semaphore(0)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client: socket.socket) -> None:
        left = int(self.chance.integers(self.most // 2, self.most)) if self.breaks < BREAKS else sys.maxsize
        with client, socket.create_connection(("127.0.0.1", self.port)) as server, suppress(OSError):
            threading.Thread(target=self.answer, args=(server, client), daemon=True).start()
            while left and (data := client.recv(min(left, 1 << 16))):
                server.sendall(data)
                left -= len(data)
                self.passed += len(data)
            if not left:
                self.breaks += 1
                self.has_broken.release()

    @staticmethod
    def answer(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)


def written(file: IO[bytes], rows: int) -> str:
    """Write random bytes, and return their digest."""
    chance, digest = np.random.default_rng(1), hashlib.sha256()
    for _ in range(rows):
        row = chance.bytes(ROW)
        file.write(row)
        digest.update(row)
    return digest.hexdigest()


def main(megabytes: int) -> None:
    """Send a tensor of so many MiB."""
    import subprocess  # noqa: PLC0415 - as above
    import tempfile  # noqa: PLC0415

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

    rows = (megabytes << 20) // ROW
    with tempfile.TemporaryDirectory() as folder, start("serve") as server:
        assert server.stdout is not None
        link = Link(int(server.stdout.readline()), rows * ROW)
        path, record = f"{folder}/x", f"{folder}/upload"
        with Path(path).open("wb") as file:
            digest = written(file, rows)
        client = start("ask", link.url, path, record)
        for _ in range(KILLED_AFTER):
            link.has_broken.acquire()
        client.kill()
        client.communicate()
        client = start("ask", link.url, path, record)
        answer, peak = client.communicate()[0].split()
        server.terminate()
        bare = int(subprocess.check_output([sys.executable, "-c", PEAK]))  # noqa: S603
        print(f"{rows * ROW} bytes, {link.breaks} breaks, 1 restart, right: {answer == digest}, sent: {link.passed}")
        print(f"peak {int(peak) >> 10} MiB, bare {bare >> 10} MiB, record: {Path(record).exists()}")


if sys.argv[1:2] == ["serve"]:
    serve()
elif sys.argv[1:2] == ["ask"]:
    ask(*sys.argv[2:5])
    exec(PEAK)  # noqa: S102 - as a bare Python says it
elif __name__ == "__main__":
    main(int(sys.argv[1]))
