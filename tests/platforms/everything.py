"""Everything: a live round trip of every datatype, and sizes that no machine of 32 bits has.

    python -m tests.platforms.everything

A server runs in this process. Both clients send it every datatype, as binary data and as JSON. Then a plain socket
sends what declares more than 32 bits can address. Each of these requests must be answered, and the server must go on.
"""

from __future__ import annotations

import platform
import socket
import struct
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np

from streamcodec import DATATYPES, DEFAULT_LIMITS, MemoryMap, Placement, Pool, TensorSpec, encode_request
from streamcodec.client import AsyncClient, Client
from streamcodec.service import demo_models
from tests.server.programs import server_here

_VALUES: Final[dict[str, Any]] = {
    "BOOL": [True, False, True],
    "FP16": [1.0, -2.5, 65504.0],
    "FP32": [1.0, -2.5, 3e38],
    "FP64": [1.0, -2.5, 1e308],
    "BYTES": [b"one", b"", bytes(range(256))],
}
"""Of datatypes that are no integers, and of BF16, which depends on `ml_dtypes`."""

_BIG: Final = (1 << 31) - 1

_SIZES: Final[dict[str, tuple[str, bytes, int]]] = {
    "no elements, 2^39 in a row": ('"datatype":"FP32","shape":[0,549755813888]', b"", 413),
    "no elements, 2^62 in a row": ('"datatype":"FP32","shape":[0,4611686018427387904]', b"", 413),
    "2^40 elements": ('"datatype":"UINT8","shape":[1099511627776]', b"", 400),
    "a size of 20 digits": ('"datatype":"UINT8","shape":[99999999999999999999]', b"", 413),
    "a text of 2^31 - 1 bytes": ('"datatype":"BYTES","shape":[2]', struct.pack("<II", _BIG, 0), 400),
    "a text of 2^32 - 1 bytes": ('"datatype":"BYTES","shape":[2]', struct.pack("<II", (1 << 32) - 1, 0), 400),
}
"""What a tensor declares, its bytes, and the status of the answer on a machine of 32 bits."""


def main() -> None:
    """Print a line for each check; an exception ends the program."""
    say(f"{platform.machine()}, {sys.byteorder}-endian, {sys.maxsize.bit_length() + 1} bits")
    say(f"Python {platform.python_version()}, numpy {np.__version__}, BF16 as {DATATYPES['BF16'].dtype!r}")
    with server_here(demo_models()) as (_, address):
        url = f"http://{address[0]}:{address[1]}"
        for name in DATATYPES:
            for is_binary in (True, False):
                if is_binary or DATATYPES[name].has_json:
                    round_trips(url, name, is_binary=is_binary)
        refusals(address)
        files(url)
    say("everything works")


def values_of(name: str) -> np.ndarray[Any, Any]:
    """Return values that show whether their bytes are swapped."""
    datatype = DATATYPES[name]
    if name == "BF16":
        return np.array([0x3F80, 0xC020, 0x7F7F], "<u2").view(datatype.dtype)
    if name in _VALUES:
        return np.array(_VALUES[name], datatype.dtype if name != "BYTES" else object)
    bounds = np.iinfo(datatype.dtype)
    return np.array([1, bounds.min, bounds.max], datatype.dtype)


def round_trips(url: str, name: str, *, is_binary: bool) -> None:
    """Send values to the model that returns them, by both clients."""
    values = values_of(name)
    if name == "BYTES" and not is_binary:
        values = np.array([b"one", b"", "\u00e9".encode()], object)
    wire = bytes([*encode_request({"x": values}).buffers][1])
    if name != "BYTES":
        assert wire == values.astype(values.dtype.newbyteorder("<")).tobytes()

    async def infer() -> np.ndarray[Any, Any]:
        async with AsyncClient(url) as client:
            return np.asarray((await client.infer("identity", {"x": values}, is_binary=is_binary))["x"])

    with Client(url) as client:
        answers = [np.asarray(client.infer("identity", {"x": values}, is_binary=is_binary)["x"]), anyio.run(infer)]
    for answer in answers:
        assert answer.dtype == (object if name == "BYTES" else DATATYPES[name].dtype), answer.dtype
        assert answer.tobytes() == values.tobytes() if name != "BYTES" else answer.tolist() == values.tolist()
    if name == "BF16" and values.dtype.kind != "u":
        assert answers[0].astype("f4").tolist()[:2] == [1.0, -2.5]
    say(f"{name} as {'bytes' if is_binary else 'JSON'}: {answers[0].size} values both ways")


def refusals(address: tuple[str, int]) -> None:
    """Send sizes that are too large, and expect an answer to each."""
    is_small = sys.maxsize == _BIG
    for words, (members, payload, status) in _SIZES.items():
        found = status_of(address, members, payload)
        assert found == status if is_small else 200 <= found < 500, (words, found)
        say(f"{words}: {found}")
    for length in (1 << 31, 3 << 30, 1 << 33, 1 << 63, 1 << 64):
        head = f"POST /v2/models/sink/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
        header = '{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}'
        nbytes = length - len(header % (length, length))
        text = (header % (nbytes, nbytes)).ljust(length - nbytes)
        found = asked(address, f"{head}Inference-Header-Content-Length: {len(text)}\r\n\r\n{text}".encode())
        accepted = found == 0 and nbytes <= min(DEFAULT_LIMITS.max_tensor_bytes, sys.maxsize)
        assert accepted or found in {413, 503}, (length, found)
        say(f"a body of {length} bytes: {found or 'read'}")


def status_of(address: tuple[str, int], members: str, payload: bytes) -> int:
    """Return the status of a request with one tensor."""
    header = f'{{"inputs":[{{"name":"x",{members},"parameters":{{"binary_data_size":{len(payload)}}}}}]}}'
    body = header.encode() + payload
    return asked(
        address,
        f"POST /v2/models/sink/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(header)}\r\n\r\n".encode()
        + body,
    )


def asked(address: tuple[str, int], request: bytes) -> int:
    """Return the status of the answer to a request; 0 if it is still awaited after some time.

    Raises:
        ValueError: the connection has ended without an answer.
    """
    with socket.create_connection(address, 20) as sock:
        sock.sendall(request)
        sock.settimeout(3)
        try:
            return int(sock.recv(1 << 16).split()[1])
        except TimeoutError:
            return 0
        except IndexError:
            raise ValueError(request[:200]) from None


def files(url: str) -> None:
    """Receive a tensor into a file, and one into a pool."""
    values = np.arange(1 << 18, dtype="<f4")
    with tempfile.TemporaryDirectory() as folder, Client(url) as client:
        path = Path(folder, "x.npy")
        for placement in (MemoryMap(path), Pool()):
            answer = client.infer("identity", {"x": values}, place=partial(_chosen, placement))
            assert np.array_equal(np.asarray(answer["x"]), values)
            del answer
        assert np.array_equal(np.load(path), values)
    say("a file and a pool: as sent")


def _chosen(placement: Placement, _: TensorSpec) -> Placement:
    return placement


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main()
