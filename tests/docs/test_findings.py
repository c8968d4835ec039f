"""The reproducers on the page of findings run, and this library's server answers as the page says."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from streamcodec.blackbox.probes import PROBES
from streamcodec.service import demo_models
from tests.docs.test_tutorial import _blocks
from tests.server.programs import server_here

_PAGE = Path(__file__).parents[2] / "docs" / "security" / "findings.md"


def test_reproducers() -> None:
    namespace: dict[str, object] = {"__name__": "findings"}
    blocks = list(_blocks(_PAGE))
    assert len(blocks) > 10
    with server_here(demo_models()) as (_, (host, port)):
        for block in blocks:
            source = block.source.replace("127.0.0.1:8000", f"{host}:{port}")
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * block.line + source, _PAGE, "exec"), namespace)  # noqa: S102 - our own page
            assert printed.getvalue() == block.output, f"line {block.line + 1}"


def test_reproducers_are_short() -> None:
    first, *others = _blocks(_PAGE)
    assert len(first.source.splitlines()) <= 25
    assert max(len(block.source.splitlines()) for block in others) <= 10


def test_probes_and_weaknesses_that_are_named() -> None:
    text = _PAGE.read_text()
    probes = {probe.name: probe for probe in PROBES}
    named = re.findall(r"`([a-z-]+/[\w.^-]+)`", text)
    assert len(named) > 10
    assert all(name in probes for name in named)
    assert {*re.findall(r"CWE-\d+", text)} <= {each for name in named for each in probes[name].weaknesses}
