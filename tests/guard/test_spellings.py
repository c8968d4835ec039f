"""Spellings: what is passed on is no inference to any router behind, unless it was checked as one, of the same model.

Targets are made by mutation from those that routers know, and judged by a gate. What it would write to the server
behind is given to three routers: Starlette's, with the routes that KServe registers; expressions as Triton's HTTP
server has them, which must match the whole path, as it stands; and a reader that decodes, resolves and matches as
leniently as any might.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

import pytest

from streamcodec import RemoteProtocolError
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.relaying.requests import PlainRequest, PlainRequests
from streamcodec.guard.rules.allowing import BodyCheck
from streamcodec.guard.rules.gate import Gate
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.service.routes import find_route

starlette_routing = pytest.importorskip("starlette.routing")

PREFIX: Final = "/tenant"
SEEDS: Final = (
    "/v2/models/m/infer",
    "/v2/models/m/versions/1/infer",
    "/v2/models/m%20n/infer?x=y",
    "http://h/v2/models/m/infer",
    "/v2/models/m/generate",
    "/v1/models/m:predict",
    "/v2/models/m",
    "/v2/repository/index",
)
PIECES: Final = (
    *("/", "//", "\\", "%2f", "%5C", "%252F", "..", ".", "/../", "/./", "%2e", "%2E%2e", "%252e", "..;", "/..;/"),
    *("%00", "%0a", "%0D%0A", "%7f", "%20", "+", "%09", "%C2%85", "%e2%80%a8", "%ff", "%c0%af", "%E3%80%82"),
    *("?", "#", ";", ";x=y", "%3f", "%23", "%3B", "&", "=", ":", "@", "%", "%%", "%2", "%25", "%u002f", "%69", "%49"),
    *("infer", "INFER", "Infer", "%69nfer", "infe%72", "infer.", "infer%20", "v2", "models", "versions", "1", "m"),
    *(
        "http://h",
        "HTTPS://h",
        "http:",
        "http://g",
        "ftp://h",
        "x:",
        "h",
        "0",
        "*",
        "\t",
        "\u2024",
        "\u212a",
        "\xef\xbd\x89",
    ),
)
TRITON: Final = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|generate(?:_stream)?|ready|config|stats|trace/setting))?"
)
STARLETTE: Final = [
    starlette_routing.Route(f"/v2/models/{{model_name}}{version}/infer", lambda _: None, methods=["POST"])
    for version in ("", "/versions/{model_version}")
]


def mutants(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(count):
        target = rng.choice(SEEDS)
        for _ in range(rng.randint(1, 4)):
            start = rng.randint(0, len(target))
            target = target[:start] + rng.choice(PIECES) + target[start + rng.choice((0, 0, 0, 1, 1, 5)) :]
        yield target


def starlettes(target: str) -> str | None:
    """The model of an inference to Starlette, which decodes the path before it matches."""
    scope = {"type": "http", "method": "POST", "path": unquote(target.partition("?")[0]), "root_path": PREFIX}
    for route in STARLETTE:
        match, found = route.matches(scope)
        if match is starlette_routing.Match.FULL:
            return str(found["path_params"]["model_name"])
    return None


def tritons(target: str) -> str | None:
    """The model of an inference to Triton, which does not decode."""
    found = TRITON.fullmatch(target.partition("?")[0].removeprefix(PREFIX))
    return unquote(found[1]) if found and found[3] == "infer" else None


def may_be_inference(target: str) -> bool:
    """Whether the most lenient reader takes it for one."""
    path = re.split(r"[?#]", target)[0]
    for _ in range(4):
        path = unquote(path).replace("\\", "/")
    segments: list[str] = []
    for part in re.split(r"[/;?#]", path.lower()):
        if part == "..":
            segments = segments[:-1]
        elif part.strip(" .\r\n\t\0"):
            segments.append(part.strip(" .\r\n\t\0"))
    return segments[1:3] == ["v2", "models"] and "infer" in segments[4:]


def judged(gate: Gate, target: str) -> BodyCheck | None:
    """Judge a target as the guard does, and compare with all routers; None if it is refused."""
    try:
        permit = gate.judge(_head(target))
    except RemoteProtocolError:
        return None
    passed = permit.target
    assert passed.startswith(f"{PREFIX}/")
    assert re.fullmatch(r"[!-~]+", passed)
    screened = find_route(passed.removeprefix(PREFIX)).model if permit.check is BodyCheck.MESSAGE else None
    for model in (starlettes(passed), tritons(passed)):
        assert model in {None, screened}, (target, passed)
    assert not may_be_inference(passed) or screened, (target, passed)
    assert gate.judge(_head(passed.removeprefix(PREFIX))) == permit, "what is passed on is read in the same way again"
    return permit.check


def _head(target: str) -> RequestHead:
    return RequestHead(method="POST", target=target, fields=Fields(((b"host", b"h"),)), content_length=3)


@pytest.mark.parametrize("allowed", [(), ("all",)])
@pytest.mark.parametrize(
    "count", [pytest.param(3_000, id="few"), pytest.param(200_000, id="many", marks=pytest.mark.slow)]
)
def test_no_spelling_of_an_inference_is_passed_unchecked(count: int, allowed: tuple[str, ...]) -> None:
    gate = Gate(PREFIX, allowed=allowed)
    found = Counter(judged(gate, target) for target in (*SEEDS, *mutants(count, seed=count)))
    assert found[BodyCheck.MESSAGE] > count / 200
    assert found[None] > count / 2
    assert (found[BodyCheck.NOTHING] > count / 200) is bool(allowed)


def test_a_head_that_is_known_has_the_same_verdict() -> None:
    gate = Gate(PREFIX)
    requests = PlainRequests(GUARD_LIMITS, "behind", gate)
    body = b'{"inputs":[]}'
    found = 0
    for target in (*SEEDS, *mutants(3_000, seed=5)):
        data = b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (target.encode(), len(body), body)
        for _ in range(2):
            request = requests.find(data, "192.0.2.1")
            if isinstance(request, PlainRequest):
                assert request.known.outgoing.split()[1].decode() == gate.judge(_head(target)).target
                found += 1
    assert found > 30


def test_the_routers_know_an_inference() -> None:
    for target in ("/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/m/infer?x"):
        assert starlettes(PREFIX + target) == tritons(PREFIX + target) == "m"
    assert starlettes(f"{PREFIX}/v2/models/m/infer%0A") == "m"
    assert tritons(f"{PREFIX}/v2/models/m/infer%0A") is None
    for target in ("/v2/models/m/x/../infer", "/v2/models/m/INFER", "/v2//models/m/%2569nfer;x"):
        assert may_be_inference(PREFIX + target)
