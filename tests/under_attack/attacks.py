"""Attacks: what some connections do at once to one server, by name.

Each is a way in which a few bytes, or a few connections, have once held up, starved or bloated a server that was right
in everything else. An attack is made when it is wanted: some messages take a second to write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.hostile import TEXTS, Pair, entry
from tests.under_attack import batches
from tests.under_attack.acts import Act, ask, be_deaf, connect_and_go, flood, in_single_bytes, send_on, sit, trickle
from tests.under_attack.matrix import KINDS, UPLOAD, WAYS, upload
from tests.under_attack.messages import (
    chunked,
    damaged,
    declared,
    generate,
    get,
    gzip_members,
    many_tensors,
    packed,
    post,
    tensor,
    texts,
    zeros,
)

CONNECTIONS: Final = 16
HEALTH: Final = get("/v2/health/live").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
SMALL_INFERENCE: Final = post(entry("FP32", 1, "1"), model="thread")

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What a number of connections do, each again and again."""

    make: Callable[[], list[Act]]
    """The acts, which the connections have in turn."""
    connections: int = CONNECTIONS
    probe: bytes = HEALTH
    """What honest clients ask meanwhile, each on a connection of its own."""


def _refusal(make: Callable[[int], Pair]) -> Attack:
    """A text that is wrong at its end: short, long, chunked, and compressed with its length and without."""

    def acts() -> list[Act]:
        short, text = make(64 * _KIB).refused, make(_MIB).refused
        return [
            ask(post(short, declared(len(short)))),
            ask(post(text, declared(len(text)))),
            ask(chunked(text)),
            ask(packed(text, declared(len(text)))),
            ask(packed(text)),
        ]

    return Attack(make=acts)


def _alike(act: Callable[[], Act], connections: int = CONNECTIONS, probe: bytes = HEALTH) -> Attack:
    return Attack(make=lambda: [act()], connections=connections, probe=probe)


def _ones(nbytes: int, datatype: str = "FP32") -> bytes:
    return entry(datatype, nbytes // 2, "1," * (nbytes // 2 - 1) + "1")


def _large_head(nbytes: int) -> bytes:
    return get("/v2/health/live")[:-2] + b"X: " + b"a" * nbytes + b"\r\n\r\n"


def _declared_only(nbytes: int, model: str = "sink") -> bytes:
    """The head of a request with a large tensor, and its JSON header."""
    header = tensor("UINT8", nbytes, nbytes)
    return post(header, declared(len(header)), model=model, length=len(header) + nbytes)


def _crossing(kind: str, way: str) -> Attack:
    make, connections = WAYS[way]
    return _alike(lambda: make(KINDS[kind]), connections=connections)


def _batched(make: Callable[[], list[Act]]) -> Attack:
    return Attack(make=make, connections=CONNECTIONS, probe=batches.SMALL_ROW)


_EIGHT_GIB_HEAD: Final = post(b"", declared(1000), length=8 << 30)
_REFUSED_UPLOAD: Final = post(b"", "Inference-Header-Content-Length: x", length=8 << 30)
_UNIQUE: Final = b"".join(get(f"/v2/models/identity?{number}") for number in range(2000))

ATTACKS: Final[dict[str, Attack]] = {
    **{f"JSON with {name}": _refusal(make) for name, make in TEXTS.items()},
    "valid JSON of 16 MB": _alike(lambda: ask(post(_ones(16_000_000)))),
    "valid JSON of 16 MB, chunked": _alike(lambda: ask(chunked(_ones(16_000_000)))),
    "valid JSON of 16 MB, compressed": _alike(lambda: ask(packed(_ones(16_000_000)))),
    "JSON of 4 MB, of empty objects": _alike(
        lambda: ask(packed(b'{"inputs":[],"parameters":{"a":[' + b"{}," * 1_400_000 + b"{}]}}"))
    ),
    "an answer in JSON, of 32 MiB": _alike(
        lambda: ask(zeros(tensor("INT8", 32 * _MIB, 32 * _MIB), 32 * _MIB, model="identity"))
    ),
    "an answer in JSON, of 32 MiB, not read": _alike(
        lambda: be_deaf(zeros(tensor("INT8", 32 * _MIB, 32 * _MIB), 32 * _MIB, model="identity"))
    ),
    "zeros of 64 MiB, compressed": _alike(lambda: ask(zeros(tensor("UINT8", 64 * _MIB, 64 * _MIB), 64 * _MIB))),
    "zeros of 256 MiB, compressed, in windows": _alike(
        lambda: ask(zeros(tensor("UINT8", 256 * _MIB, 256 * _MIB), 256 * _MIB, model="crc"))
    ),
    "50,000 members of gzip": _alike(lambda: ask(gzip_members(50_000))),
    "a checksum that is wrong, compressed": _alike(lambda: ask(damaged(60_000))),
    "chunks of one byte": _alike(lambda: ask(chunked(_ones(150_000), size=1))),
    "chunks of one byte, with extensions": _alike(lambda: ask(chunked(_ones(150_000), size=1, extension=b";a=b"))),
    "12,000 empty tensors": _alike(lambda: ask(many_tensors(12_000, 0))),
    "12,000 tensors of a byte": _alike(lambda: ask(many_tensors(12_000, 1))),
    "12,000 tensors of a byte, chunked": _alike(lambda: ask(many_tensors(12_000, 1, is_chunked=True))),
    "8 million empty elements": _alike(lambda: ask(zeros(tensor("BYTES", 8_000_000, 32_000_000), 32_000_000))),
    "GET pipelined": _alike(lambda: flood(get("/v2/health/ready") * 2000)),
    "404 pipelined": _alike(lambda: flood(get("/nowhere") * 2000)),
    "unlike targets pipelined": _alike(lambda: flood(_UNIQUE)),
    "four that pipeline, and many that connect": Attack(
        make=lambda: [flood(get("/v2/models/identity") * 2000), *[connect_and_go] * 15], connections=64
    ),
    "1.1 KB/s into windows, from eight": _alike(
        lambda: trickle(_declared_only(1 << 27, "crc"), bytes(1100), 1), connections=8, probe=SMALL_INFERENCE
    ),
    "576 idle connections": _alike(lambda: sit(get("/v2/health/live")), connections=576),
    "heads of 30 KB in single bytes": _alike(lambda: in_single_bytes(_large_head(30_000))),
    "heads that declare 8 GiB, then trickle": _alike(
        lambda: trickle(_EIGHT_GIB_HEAD, b" ", 1), connections=64, probe=SMALL_INFERENCE
    ),
    "chunked heads, then nothing": _alike(
        lambda: sit(post(b"1\r\n{\r\n", "Transfer-Encoding: chunked")),
        connections=130,
        probe=SMALL_INFERENCE,
    ),
    "refused uploads that go on": _alike(
        lambda: send_on(post(b"", declared(0).replace("0", "x"), length=8 << 30)), connections=64
    ),
    "48 that send BYTES of 254 KiB": _alike(lambda: ask(texts(254 * _KIB)), connections=48),
    "48 that generate from 256 KiB": _alike(lambda: ask(generate(256 * _KIB)), connections=48),
    UPLOAD: _alike(upload, connections=1),
    "batches of rows of every size": _batched(batches.of_every_size),
    "rows that trickle into batches": _batched(batches.trickling),
    "clients that leave their batches": _batched(batches.leaving),
    "rows that the model refuses": _batched(batches.refused),
    "rows of which none goes together with another": _batched(batches.unlike),
    **{f"{kind}, {way}": _crossing(kind, way) for way in WAYS for kind in KINDS},
}
"""By name."""
